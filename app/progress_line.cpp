#include "app/progress_line.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdint>
#include <ostream>

namespace trident {

namespace {

constexpr double kTerminalSeconds = 0.2, kPlainSeconds = 10;

}  // namespace

void ProgressLine::update(std::int64_t done, std::int64_t total, const std::string& text, double now_seconds) {
  if (done <= 0 || now_seconds - drawn_seconds_ < (mode_ == ConsoleMode::kTerminal ? kTerminalSeconds : kPlainSeconds)) return;
  drawn_seconds_ = now_seconds;
  if (total <= 0) {  // not known
    shown_ = mode_ == ConsoleMode::kTerminal;
    out_ << (shown_ ? "\r\x1b[K" : "") << text << (shown_ ? "" : "\n") << std::flush;
    return;
  }
  const double seconds_left = (now_seconds - start_seconds_) * static_cast<double>(total - done) / static_cast<double>(done);
  if (mode_ == ConsoleMode::kTerminal) {
    out_ << "\r\x1b[K" << progress_bar(done, total, seconds_left) << "  " << text << std::flush;
    shown_ = true;
  } else {
    const double percent = std::floor(100 * static_cast<double>(done) / static_cast<double>(total));
    out_ << fmt::format("{:3.0f}%  ETA {}  {}\n", percent, clock_text(seconds_left), text) << std::flush;
  }
}

void ProgressLine::finish() {
  if (shown_) out_ << "\r\x1b[K" << std::flush;
  shown_ = false;
}

}  // namespace trident

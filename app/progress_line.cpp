#include "app/progress_line.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cmath>
#include <ostream>
#include <utility>

#include "core/number_text.h"

namespace trident {
namespace {

constexpr double kTerminalSeconds = 0.2, kPlainSeconds = 30;

}  // namespace

ProgressLine::ProgressLine(const CommandContext& context, std::string command, double start_seconds)
    : out_(context.err),
      in_place_(context.err_console == ConsoleMode::kTerminal),
      command_(std::move(command)),
      start_seconds_(start_seconds),
      due_seconds_(in_place_ ? start_seconds : start_seconds + kPlainSeconds) {}

void ProgressLine::update(std::int64_t done, std::int64_t total, const std::string& text, double now_seconds) {
  if (done <= 0) start_seconds_ = now_seconds;
  if (now_seconds < due_seconds_) return;
  due_seconds_ = now_seconds + (in_place_ ? kTerminalSeconds : kPlainSeconds);
  std::string line = fmt::format("{}  {}", command_, text);
  if (total > 0) {
    const double share = static_cast<double>(done) / static_cast<double>(total);
    const double seconds_left = (now_seconds - start_seconds_) * (1 / share - 1);  // not finite, thus not known, at 0
    line += fmt::format("  {:.0f}%  ETA {}", std::floor(100 * share), clock_text(seconds_left));
  }
  // In the last column some terminals begin another line.
  out_ << (in_place_ ? "\r\x1b[K" + line.substr(0, terminal_columns(STDERR_FILENO) - 1) : line + '\n') << std::flush;
  shown_ = in_place_;
}

void ProgressLine::count(std::int64_t done, std::int64_t total, const std::string& things) {
  update(done, total, fmt::format("{}/{} {}", done, total, things));
}

void ProgressLine::bytes(std::int64_t done, std::int64_t total) {
  const double now = monotonic_seconds();
  update(done, total, fmt::format("{}/s", bytes_text(static_cast<double>(done) / (now - start_seconds_))), now);
}

void ProgressLine::finish() {
  if (shown_) out_ << "\r\x1b[K" << std::flush;
  shown_ = false;
}

}  // namespace trident

#include "train/log/console.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "core/printable.h"

namespace trident {

ConsoleMode console_mode_of(int descriptor) { return ::isatty(descriptor) == 1 ? ConsoleMode::kTerminal : ConsoleMode::kPlain; }

std::size_t terminal_columns(int descriptor) {
  constexpr std::size_t kUsual = 80, kFewest = 40;
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return std::max<std::size_t>(kFewest, size.ws_col);
}

std::string step_line(const StepMetrics& m, std::int64_t total_steps) {
  std::string line = fmt::format("step {}/{}  loss {:.4f}  grad norm {:.3f}  lr {:.2e}  {:.0f} tokens/s  {:.1f} ms", m.step,
                                 total_steps, m.loss, m.grad_norm, m.lr, m.tokens_per_s, m.step_ms);
  if (m.mfu) line += fmt::format("  mfu {:.1f} %", 100 * *m.mfu);
  if (m.loss_scale) line += fmt::format("  loss scale {:.0f}", *m.loss_scale);
  if (m.skipped > 0) line += fmt::format("  skipped {}", m.skipped);
  return line;
}

std::vector<std::string> eval_lines(const EvalMetrics& m, std::int64_t total_steps) {
  const auto numbers = [](const ValidLoss& valid) {
    const std::string text = fmt::format("loss {:.4f}  perplexity {:.2f}", valid.loss, valid.perplexity());
    return valid.bits_per_byte ? text + fmt::format("  {:.4f} bits per byte", *valid.bits_per_byte) : text;
  };
  std::vector<std::string> lines{fmt::format("step {}/{}  valid {}", m.step, total_steps, numbers(m.valid))};
  for (const auto& [name, valid] : m.sets) lines.push_back(fmt::format("  {}  {}", name, numbers(valid)));
  return lines;
}

std::string clock_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "-:--";
  const auto total = static_cast<std::int64_t>(std::llround(seconds));
  const std::int64_t hours = total / 3600, minutes = total / 60 % 60, rest = total % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, rest) : fmt::format("{}:{:02}", minutes, rest);
}

std::string progress_bar(std::int64_t step, std::int64_t total_steps, double seconds_left, int width) {
  const double done = total_steps > 0 ? std::clamp(static_cast<double>(step) / static_cast<double>(total_steps), 0.0, 1.0) : 0.0;
  const auto filled = static_cast<std::size_t>(done * width);
  std::string bar(filled, '=');
  if (filled < static_cast<std::size_t>(width)) bar += '>';
  bar.resize(static_cast<std::size_t>(width), ' ');
  return fmt::format("[{}] {:3.0f}%  ETA {}", bar, std::floor(100 * done), clock_text(seconds_left));
}

void Console::step(const StepMetrics& metrics, double now_seconds) {
  step_ = metrics.step;
  now_seconds_ = now_seconds;
  line(step_line(metrics, total_steps_));
}

void Console::eval(const EvalMetrics& metrics) {
  for (const std::string& text : eval_lines(metrics, total_steps_)) line(text);
}

void write_console(std::ostream& stream, const std::string& text) {
  const std::ios::iostate before = stream.rdstate();
  stream.clear();
  stream << text << std::flush;
  stream.setstate(before);
}

void Console::line(const std::string& text) {
  const std::string taken_away = no_bar();
  write_console(stream_, taken_away + on_lines(text) + '\n' + bar());
}

void Console::progress(std::int64_t step, double now_seconds) {
  if (mode_ == ConsoleMode::kPlain) return;
  step_ = step;
  now_seconds_ = now_seconds;
  const std::string taken_away = no_bar();
  write_console(stream_, taken_away + bar());
}

void Console::finish() {
  write_console(stream_, no_bar());
  mode_ = ConsoleMode::kPlain;
}

std::string Console::no_bar() { return std::exchange(bar_shown_, false) ? "\r\x1b[K" : ""; }

std::string Console::bar() {
  if (mode_ == ConsoleMode::kPlain || step_ <= first_step_) return "";
  const double per_step = (now_seconds_ - start_seconds_) / static_cast<double>(step_ - first_step_);
  bar_shown_ = true;
  return progress_bar(step_, total_steps_, per_step * static_cast<double>(total_steps_ - step_));
}

}  // namespace trident

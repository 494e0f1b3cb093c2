#include "train/log/console.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "core/clock.h"
#include "core/number_text.h"
#include "core/printable.h"

namespace trident {

ConsoleMode console_mode_of(int descriptor) {
  const char* const terminal = std::getenv("TERM");
  const bool dumb = terminal != nullptr && std::string_view(terminal) == "dumb";
  return ::isatty(descriptor) == 1 && !dumb ? ConsoleMode::kTerminal : ConsoleMode::kPlain;
}

std::size_t terminal_columns(int descriptor) {
  constexpr std::size_t kUsual = 80, kFewest = 40;
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return std::max<std::size_t>(kFewest, size.ws_col);
}

std::string folded_line(const std::string& line, std::size_t columns) {
  constexpr std::size_t kLabel = std::string_view("model:  ").size(), kNone = 2;
  constexpr std::string_view kCommand = "trident ";  // which is pasted
  if (line.size() <= columns) return line;
  const bool has_label = line[kLabel - 1] == ' ' && line.find(": ") < kLabel;
  if (has_label && line.compare(kLabel, kCommand.size(), kCommand) == 0) return line;
  return folded_between_words(line, has_label ? kLabel : kNone, columns);
}

std::string shown_line(const std::string& line, ConsoleMode mode, int descriptor) {
  const std::string clean = on_lines(line);
  return mode == ConsoleMode::kTerminal ? folded_line(clean, terminal_columns(descriptor)) : clean;
}

std::string dressed_line(int descriptor, Color color, LogLevel level, const std::string& line) {
  const bool terminal = console_mode_of(descriptor) == ConsoleMode::kTerminal;
  const char* const without = std::getenv("NO_COLOR");
  const bool has_color = color == Color::kAlways || (color == Color::kAuto && terminal && (without == nullptr || *without == '\0'));
  std::string shown = terminal ? folded_line(line, terminal_columns(descriptor)) : line;
  if (has_color && level >= LogLevel::kWarning) {
    const std::size_t word = std::min(shown.find(": "), shown.size());
    const std::string_view color_of_level = level == LogLevel::kError ? "1;31" : "1;33";  // red, yellow
    shown = fmt::format("\x1b[{}m{}\x1b[0m{}", color_of_level, shown.substr(0, word), shown.substr(word));
  }
  return terminal ? "\r\x1b[K" + shown : shown;
}

namespace {

std::string beside_loss(const std::optional<double>& token_accuracy, const std::optional<PairRewards>& rewards) {
  std::string text;
  if (token_accuracy) text += fmt::format("  token accuracy {:.4f}", *token_accuracy);
  if (rewards) text += fmt::format("  accuracy {:.4f}  margin {:.4f}", rewards->accuracy, rewards->margin());
  return text;
}

}  // namespace

std::string step_line(const StepMetrics& m, std::int64_t total_steps) {
  std::string line = fmt::format("step {}/{}  loss {:.4f}{}  grad norm {:.3f}  lr {:.2e}  {} tokens/s  {:.1f} ms", m.step,
                                 total_steps, m.loss, beside_loss(m.token_accuracy, m.rewards), m.grad_norm, m.lr,
                                 with_commas(std::llround(m.tokens_per_s)), m.step_ms);
  if (const std::optional<double> mfu = m.computed_mfu())
    line += fmt::format("  {} {:.1f} %", m.masked_flops_share ? "mfu_masked" : "mfu", 100 * *mfu);
  if (m.loss_scale) line += fmt::format("  loss scale {:.0f}", *m.loss_scale);
  if (m.skipped > 0) line += fmt::format("  skipped {}", m.skipped);
  return line;
}

std::vector<std::string> eval_lines(const EvalMetrics& m, std::int64_t total_steps) {
  const auto numbers = [](const ValidLoss& valid) {
    const double perplexity = valid.perplexity();
    const std::string text =
        fmt::format("loss {:.4f}{}{}", valid.loss, beside_loss(valid.token_accuracy, valid.rewards),
                    valid.rewards ? "" : fmt::format("  perplexity {:.{}f}", perplexity, perplexity < 1000 ? 2 : 0));
    return valid.bits_per_byte ? text + fmt::format("  {:.4f} bits/byte", *valid.bits_per_byte) : text;
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

namespace {

// "step 71/1500 ..." as "step   71/1500 ...": in a terminal the columns of step lines stand below each other.
std::string in_columns(std::string line, ConsoleMode mode) {
  const std::size_t begin = line.find(' ') + 1, slash = line.find('/'), digits = line.find(' ', slash) - slash - 1;
  return mode == ConsoleMode::kTerminal ? line.insert(begin, digits - std::min(digits, slash - begin), ' ') : line;
}

std::string at_time(const std::string& line) { return fmt::format("[{}] {}", local_time_text("%H:%M:%S"), line); }

// "[=====>     ]"
std::string bar_of(double done, std::size_t width) {
  const auto filled = static_cast<std::size_t>(done * static_cast<double>(width));
  std::string bar(filled, '=');
  if (filled < width) bar += '>';
  bar.resize(width, ' ');
  return '[' + bar + ']';
}

double share_done(std::int64_t step, std::int64_t total_steps) {
  return total_steps > 0 ? std::clamp(static_cast<double>(step) / static_cast<double>(total_steps), 0.0, 1.0) : 0.0;
}

// "963", "5.9k", "59k", "1.2M".
std::string short_number(double value) {
  constexpr std::string_view kUnits = " kMGT";
  std::size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  const std::string digits = fmt::format("{:.{}f}", value, unit > 0 && value < 9.95 ? 1 : 0);
  return unit == 0 ? digits : digits + kUnits[unit];
}

}  // namespace

std::string plain_step_line(const StepMetrics& m, std::int64_t total_steps) {
  const double percent = std::floor(100 * share_done(m.step, total_steps));
  return fmt::format("{}  {:.0f} % done  ETA {}", step_line(m, total_steps), percent, clock_text(m.seconds_left));
}

void write_console(std::ostream& stream, const std::string& text) {
  const std::ios::iostate before = stream.rdstate();
  stream.clear();
  stream << text << std::flush;
  stream.setstate(before);
}

Console::Console(std::ostream& stream, ConsoleMode mode, std::int64_t total_steps, std::int64_t first_step, int descriptor)
    : stream_(stream), mode_(mode), has_bar_(mode == ConsoleMode::kTerminal), total_steps_(total_steps), descriptor_(descriptor) {
  last_.step = first_step;
}

void Console::step(const StepMetrics& metrics) {
  last_ = metrics;
  doing_.clear();
  const auto text = mode_ == ConsoleMode::kTerminal ? step_line : plain_step_line;
  line(cut(at_time(in_columns(text(metrics, total_steps_), mode_))));
}

void Console::eval(const EvalMetrics& metrics) {
  doing_.clear();
  std::vector<std::string> lines = eval_lines(metrics, total_steps_);
  lines.front() = at_time(in_columns(lines.front(), mode_));
  for (std::string& text : lines) line(cut(std::move(text)));
}

// In a narrow terminal the last numbers are left out, which the bar or the logs have: a table reads better than folded rows.
std::string Console::cut(std::string row) const {
  const std::size_t columns = mode_ == ConsoleMode::kTerminal ? terminal_columns(descriptor_) : row.size();
  for (std::size_t end = row.rfind("  "); row.size() > columns && end != row.npos; end = row.rfind("  ")) row.resize(end);
  return row;
}

void Console::line(const std::string& text) {
  const std::string taken_away = no_bar();
  write_console(stream_, taken_away + shown_line(text, mode_, descriptor_) + '\n' + bar());
}

void Console::progress(const StepMetrics& metrics) {
  last_ = metrics;
  doing_.clear();
  redraw();
}

void Console::doing(const std::string& what) {
  if (what != std::exchange(doing_, what)) redraw();
}

void Console::redraw() {
  if (!has_bar_) return;
  const std::string taken_away = no_bar();
  write_console(stream_, taken_away + bar());
}

void Console::finish() {
  write_console(stream_, no_bar());
  has_bar_ = false;
}

std::string Console::no_bar() { return std::exchange(bar_shown_, false) ? "\r\x1b[K" : ""; }

std::string Console::bar() {
  if (!has_bar_) return "";
  constexpr std::size_t kWidest = 30, kBrackets = 3;
  std::string text = fmt::format("step {}/{}", last_.step, total_steps_);
  if (!doing_.empty()) text += "  " + doing_;
  else if (last_.tokens_per_s > 0) text += fmt::format("  loss {:.2f}  {} tok/s", last_.loss, short_number(last_.tokens_per_s));
  if (last_.tokens_per_s > 0) text += "  ETA " + clock_text(last_.seconds_left);
  const std::size_t columns = terminal_columns(descriptor_) - 1;  // in the last one some terminals begin another line
  if (text.size() + kBrackets < columns)
    text = bar_of(share_done(last_.step, total_steps_), std::min(kWidest, columns - text.size() - kBrackets)) + ' ' + text;
  bar_shown_ = true;
  return text.substr(0, columns);
}

}  // namespace trident

// What a person sees while a run goes on: one line per logged step; on a terminal also a progress bar with the time left.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "train/log/metrics.h"

namespace trident {

enum class ConsoleMode : std::uint8_t { kPlain, kTerminal };

// kTerminal when the file descriptor is a terminal.
ConsoleMode console_mode_of(int descriptor);
// Columns of the terminal that the descriptor is, at least 40; 80 where it is none or does not say.
std::size_t terminal_columns(int descriptor);

// "step 20/200  loss 6.1234  grad norm 1.234  lr 3.00e-04  1234 tokens/s  56.7 ms"
std::string step_line(const StepMetrics& metrics, std::int64_t total_steps);
// "step 20/200  valid loss 6.0000  perplexity 403.43  1.2345 bits per byte", and of several sets a line "  NAME  loss ..." for
// each.
std::vector<std::string> eval_lines(const EvalMetrics& metrics, std::int64_t total_steps);
// "[=====>     ]  45%  ETA 1:02:03"; `width` is that of the bar in characters.
std::string progress_bar(std::int64_t step, std::int64_t total_steps, double seconds_left, int width = 30);
// "1:02:03", "4:05"; "-:--" for a time that is not known.
std::string clock_text(double seconds);

// Writes `text` and flushes it, also to a stream that took nothing before. A failure stays marked, for whoever asks at the end.
void write_console(std::ostream& stream, const std::string& text);

// Writes to a stream that outlives it; used by one thread. On a terminal the bar is the last line, redrawn in place.
class Console {
 public:
  // `start_seconds`: monotonic time when step first_step + 1 began; the time left is extrapolated from it.
  Console(std::ostream& stream, ConsoleMode mode, std::int64_t total_steps, std::int64_t first_step, double start_seconds)
      : stream_(stream),
        mode_(mode),
        total_steps_(total_steps),
        first_step_(first_step),
        start_seconds_(start_seconds),
        step_(first_step) {}

  void step(const StepMetrics& metrics, double now_seconds);
  void eval(const EvalMetrics& metrics);
  // Any other line.
  void line(const std::string& text);
  // Moves the bar without a line (a step that is not logged); nothing in plain mode.
  void progress(std::int64_t step, double now_seconds);
  // Takes the bar away.
  void finish();

 private:
  std::string no_bar();
  std::string bar();

  std::ostream& stream_;
  ConsoleMode mode_;
  std::int64_t total_steps_, first_step_;
  double start_seconds_;
  std::int64_t step_;
  double now_seconds_ = 0;
  bool bar_shown_ = false;
};

}  // namespace trident

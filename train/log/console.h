// The console of a run: one line per logged step; on a terminal also a progress bar with the time left.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "core/logging.h"
#include "train/log/metrics.h"

namespace trident {

enum class ConsoleMode : std::uint8_t { kPlain, kTerminal };

// kTerminal when the file descriptor is a terminal that can take back what it shows: TERM is not "dumb".
ConsoleMode console_mode_of(int descriptor);
// Columns of the terminal that the descriptor is, at least 40; 80 where it is none or does not say.
std::size_t terminal_columns(int descriptor);

// A line broken between words where it has more columns; what goes on stands under what follows a label such as "model:  ".
std::string folded_line(const std::string& line, std::size_t columns);
// A line as `descriptor` shows it, without what steers terminals: on one it is folded.
std::string shown_line(const std::string& line, ConsoleMode mode, int descriptor);

// --color: whether warnings and errors are coloured. kAuto: where the descriptor is a terminal and NO_COLOR is not set.
enum class Color : std::uint8_t { kAuto, kAlways, kNever };
// A warning or error without its end, "WORD: TEXT", as `descriptor` shows it: on a terminal it is folded and takes a bar's place.
std::string dressed_line(int descriptor, Color color, LogLevel level, const std::string& line);

// "step 20/200  loss 6.1234  grad norm 1.234  lr 3.00e-04  1234 tokens/s  56.7 ms"
std::string step_line(const StepMetrics& metrics, std::int64_t total_steps);
// The same with how much is done and the time left.
std::string plain_step_line(const StepMetrics& metrics, std::int64_t total_steps);
// "step 20/200  valid loss 6.0000  perplexity 403.43  1.2345 bits per byte", and of several sets a line "  NAME  loss ..." for
// each.
std::vector<std::string> eval_lines(const EvalMetrics& metrics, std::int64_t total_steps);
// "1:02:03", "4:05"; "-:--" for a time that is not known.
std::string clock_text(double seconds);

// Writes `text` and flushes it, also to a stream that took nothing before. A failure stays marked, for whoever asks at the end.
void write_console(std::ostream& stream, const std::string& text);

// Where what a run says to people goes.
struct TrainOutput {
  std::ostream& console;  // step lines and the closing report
  ConsoleMode mode = ConsoleMode::kPlain;
  LogSink& log;           // warnings and errors of ranks
  int descriptor = -1;    // of the terminal that the console is, for its width
};

// Writes to a stream that outlives it; used by one thread. On a terminal lines are folded and the bar is the last one, redrawn in
// place: "[==>   ] step 71/1500  loss 2.31  5.9k tok/s  ETA 13:20".
class Console {
 public:
  // `descriptor`: of the terminal, whose width is asked for whenever something is shown.
  Console(std::ostream& stream, ConsoleMode mode, std::int64_t total_steps, std::int64_t first_step, int descriptor = -1);

  // Lines of steps and evaluations begin with the time of day; without a bar those of steps end with how much is done and the time
  // left.
  void step(const StepMetrics& metrics);
  void eval(const EvalMetrics& metrics);
  // Any other line.
  void line(const std::string& text);
  // Moves the bar without a line (a step that is not logged); nothing in plain mode.
  void progress(const StepMetrics& metrics);
  // The bar says this in place of a step's numbers, until the next step or evaluation: "evaluating 12/32".
  void doing(const std::string& what);
  // Takes the bar away.
  void finish();

 private:
  std::string no_bar();
  std::string bar();
  std::string cut(std::string row) const;
  void redraw();

  std::ostream& stream_;
  ConsoleMode mode_;
  bool has_bar_;
  std::int64_t total_steps_;
  int descriptor_;
  StepMetrics last_;
  std::string doing_;
  bool bar_shown_ = false;
};

}  // namespace trident

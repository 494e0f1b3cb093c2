// Where a run tells of itself: lines and a progress bar for people, files for programs, a trace of the steps that are traced. Of a
// job, one rank's is opened; those of the others take steps and evaluations without a word.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/clock.h"
#include "train/log/console.h"
#include "train/log/log_errors.h"
#include "train/log/run_log.h"
#include "train/log/trace_writer.h"

namespace trident {

class RunSink {
 public:
  // log.on_error concerns files from open_files() on.
  explicit RunSink(const TrainOutput& output, const LogConfig& config = {})
      : output_(output), verbose_(config.verbose), errors_(config.on_error, Logger(output.log)) {}
  ~RunSink();
  RunSink(const RunSink&) = delete;
  RunSink& operator=(const RunSink&) = delete;

  // The files of a run whose folder is there, from `step` on (RunLog). StorageError.
  const RunLog& open_files(const RunPlan& plan, std::int64_t step) { return files_.emplace(plan, errors_, step, start_); }
  // From now on there is a bar, of steps behind `first_step`.
  void open_console(std::int64_t total_steps, std::int64_t first_step);

  // Lines from the first of these on are in run.log, as are this process's warnings.
  void line(const std::string& text);
  void detail(const std::string& text);  // a line that is shown with log.verbose
  void lines(const LogLines& lines);
  // As RunLog::step.
  void step(const StepMetrics& metrics, std::int64_t steps, const StepTimes& times, const Extremes& busy,
            std::optional<double> save_seconds);
  void samples(std::int64_t step, std::span<const TextSample> samples);
  void eval(const EvalMetrics& metrics);
  void checkpoint(std::int64_t step);  // as RunLog::checkpoint
  // As TraceWriter, between open_trace(), which makes the file's folder, and close_trace(). A trace that cannot be written is given
  // up as a whole, because a part of it is no trace.
  void open_trace(const std::string& path, TraceLayout layout, std::vector<ClockOffset> clocks, double start);
  void trace(int rank, std::span<const TraceSlice> slices);
  bool close_trace();  // whether it is there now; false if none is open

  LogErrors& errors() { return errors_; }

  // A step that has no line.
  void progress(const StepMetrics& metrics);
  void doing(const std::string& what);  // as Console::doing
  void close();  // the bar

 private:
  void show(const std::string& text);
  void record(const std::string& text);
  void add_to_record(const std::string& text);  // by any thread
  void write_record();

  const TrainOutput& output_;
  const double start_ = monotonic_seconds();
  const bool verbose_;
  LogErrors errors_;
  std::optional<RunLog> files_;
  std::optional<Console> console_;
  std::int64_t total_steps_ = 0;
  std::mutex record_mutex_;  // any rank of this process may warn
  std::string record_;       // lines that run.log has not yet
  bool hears_warnings_ = false;
  std::optional<TraceWriter> trace_;
};

}  // namespace trident

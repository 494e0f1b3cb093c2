#include "train/log/run_sink.h"

#include <cstdint>
#include <utility>

#include "core/clock.h"
#include "core/file_io.h"
#include "core/printable.h"

namespace trident {

void RunSink::open_console(std::int64_t total_steps, std::int64_t first_step, double now_seconds) {
  console_.emplace(output_.console, output_.mode, total_steps, first_step, now_seconds);
}

void RunSink::line(const std::string& text) {
  if (console_)
    console_->line(text);
  else
    write_console(output_.console, on_lines(text) + '\n');
}

void RunSink::step(const StepMetrics& metrics, std::int64_t steps, const StepTimes& times, const Extremes& busy,
                   std::optional<double> save_seconds) {
  if (files_) files_->step(metrics, steps, times, busy, save_seconds);
  if (console_) console_->step(metrics, monotonic_seconds());
}

void RunSink::samples(std::int64_t step, std::span<const TextSample> samples) {
  if (files_) files_->samples(step, samples);
}

void RunSink::eval(const EvalMetrics& metrics) {
  if (files_) files_->eval(metrics);
  if (console_) console_->eval(metrics);
}

void RunSink::open_trace(const std::string& path, TraceLayout layout, std::vector<ClockOffset> clocks, double start) {
  errors_.keep(path, [&] {
    create_folder_of(path);
    trace_.emplace(path, std::move(layout), std::move(clocks), start);
  }, 0);
}

void RunSink::trace(int rank, std::span<const TraceSlice> slices) {
  if (trace_ && !errors_.keep(trace_->path(), [&] { trace_->add(rank, slices); }, 0)) trace_.reset();
}

bool RunSink::close_trace() {
  const bool written = trace_ && errors_.keep(trace_->path(), [&] { trace_->finish(); }, 0);
  trace_.reset();
  return written;
}

void RunSink::progress(std::int64_t step) {
  if (console_) console_->progress(step, monotonic_seconds());
}

void RunSink::close() {
  if (console_) console_->finish();
}

}  // namespace trident

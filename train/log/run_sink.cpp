#include "train/log/run_sink.h"

#include <utility>

#include "core/file_io.h"
#include "core/printable.h"

namespace trident {

RunSink::~RunSink() {
  if (hears_warnings_) output_.log.copy_to({});
  try {
    write_record();  // the last warnings of a run that fails
  } catch (const Error&) {
  }
}

void RunSink::open_console(std::int64_t total_steps, std::int64_t first_step) {
  total_steps_ = total_steps;
  console_.emplace(output_.console, output_.mode, total_steps, first_step, output_.descriptor);
}

void RunSink::line(const std::string& text) {
  record(text);
  write_record();
  show(text);
}

void RunSink::detail(const std::string& text) {
  if (verbose_) line(text);
  else record(text);
}

void RunSink::lines(const LogLines& lines) {
  for (const std::string& one : lines.shown) line(one);
  for (const std::string& one : lines.details) detail(one);
}

void RunSink::show(const std::string& text) {
  if (console_)
    console_->line(text);
  else
    write_console(output_.console, shown_line(text, output_.mode, output_.descriptor) + '\n');
}

void RunSink::record(const std::string& text) {
  if (!std::exchange(hears_warnings_, true)) output_.log.copy_to([this](const std::string& line) { add_to_record(line); });
  add_to_record(text);
}

void RunSink::add_to_record(const std::string& text) {
  const std::lock_guard lock(record_mutex_);
  record_ += fmt::format("{} {}\n", local_time_text("%Y-%m-%d %H:%M:%S"), on_one_line(text));
}

void RunSink::write_record() {
  if (!files_) return;
  std::string lines;
  {
    const std::lock_guard lock(record_mutex_);
    lines.swap(record_);
  }
  if (!lines.empty()) files_->said(lines);
}

void RunSink::step(const StepMetrics& metrics, std::int64_t steps, const StepTimes& times, const Extremes& busy,
                   std::optional<double> save_seconds) {
  if (files_) files_->step(metrics, steps, times, busy, save_seconds);
  if (!console_) return;
  record(plain_step_line(metrics, total_steps_));
  write_record();
  console_->step(metrics);
}

void RunSink::samples(std::int64_t step, std::span<const TextSample> samples) {
  if (files_) files_->samples(step, samples);
}

void RunSink::eval(const EvalMetrics& metrics) {
  if (files_) files_->eval(metrics);
  if (!console_) return;
  for (const std::string& text : eval_lines(metrics, total_steps_)) record(text);
  write_record();
  console_->eval(metrics);
}

void RunSink::checkpoint(std::int64_t step) {
  if (files_) files_->checkpoint(step);
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

void RunSink::progress(const StepMetrics& metrics) {
  if (console_) console_->progress(metrics);
}

void RunSink::doing(const std::string& what) {
  if (console_) console_->doing(what);
}

void RunSink::close() {
  if (console_) console_->finish();
}

}  // namespace trident

#include "train/log/run_sink.h"

#include <cstdint>

#include "core/clock.h"

namespace trident {

void RunSink::open_console(std::int64_t total_steps, std::int64_t first_step, double now_seconds) {
  console_.emplace(output_.console, output_.mode, total_steps, first_step, now_seconds);
}

void RunSink::line(const std::string& text) {
  if (console_)
    console_->line(text);
  else
    output_.console << text << '\n';
}

void RunSink::step(const StepMetrics& metrics, std::int64_t steps, const StepTimes& times, const Extremes& busy,
                   std::optional<double> save_seconds) {
  if (files_) files_->step(metrics, steps, times, busy, save_seconds);
  if (console_) console_->step(metrics, monotonic_seconds());
}

void RunSink::eval(const EvalMetrics& metrics) {
  if (files_) files_->eval(metrics);
  if (console_) console_->eval(metrics);
}

void RunSink::progress(std::int64_t step) {
  if (console_) console_->progress(step, monotonic_seconds());
}

void RunSink::close() {
  if (console_) console_->finish();
}

}  // namespace trident

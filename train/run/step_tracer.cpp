#include "train/run/step_tracer.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "core/clock.h"
#include "train/run/clock_offset.h"
#include "train/run/gather_bytes.h"

namespace trident {

StepTracer::StepTracer(RankTrainer& trainer, RunSink& sink, std::int64_t first, std::int64_t last)
    : trainer_(trainer), sink_(sink), first_(first), last_(last) {
  ParallelContext& context = trainer.context();
  const auto lane = [&](TraceLane lane) -> const Stream*& { return streams_[static_cast<std::size_t>(lane)]; };
  lane(TraceLane::kCollectives) = &context.compute_stream();
  lane(TraceLane::kReduce) = &context.reduce_stream();
  lane(TraceLane::kGather) = &context.gather_stream();
  lane(TraceLane::kSendForward) = &context.send_stream(Direction::kForward);
  lane(TraceLane::kSendBackward) = &context.send_stream(Direction::kBackward);
  lane(TraceLane::kRecvForward) = &context.recv_stream(Direction::kForward);
  lane(TraceLane::kRecvBackward) = &context.recv_stream(Direction::kBackward);
  context.device().log_operations(&log_);
}

StepTracer::~StepTracer() { trainer_.context().device().log_operations(nullptr); }

std::string StepTracer::path_of(const RunPlan& plan, std::int64_t first, std::int64_t last) {
  return fmt::format("{}/trace/steps_{}-{}.json", plan.config.run.dir, first, last);
}

// Steps are alike in their operations, but each waits at moments of its own: twice what the busiest one so far had, and some. The
// very first step may allocate what it needs.
void StepTracer::before_step(std::int64_t update) {
  if (traces(update)) {
    open();
    log_.reserve(2 * most_per_step_ + 256);
    log_.set_mode(OperationLog::Mode::kRecord);
  }
  count_before_ = log_.count();
}

void StepTracer::after_step(std::int64_t update, double start, double end) {
  most_per_step_ = std::max(most_per_step_, log_.count() - count_before_);
  if (!traces(update)) return;
  add_instructions(update, start, end);
  ++attempts_;
  if (++buffered_ == kStepsPerFlush || update == last_) flush();
}

// Records the step that has just ended; its operations that are under way follow when they complete.
void StepTracer::add_instructions(std::int64_t update, double start, double end) {
  TraceSlice slice;
  slice.step = static_cast<std::int32_t>(update);
  slice.attempt = attempts_;
  const auto add = [&](std::int32_t instruction, TraceLane lane, const InstructionTimes& times) {
    slice.instruction = instruction;
    slice.lane = lane;
    slice.start = times.start, slice.end = times.end;
    slice.cpu = static_cast<float>(times.cpu), slice.waited = static_cast<float>(times.waited);
    slices_.push_back(slice);
  };
  add(TraceSlice::kStep, TraceLane::kStep, {start, end, 0, 0});
  add(TraceSlice::kBatch, TraceLane::kCompute, {start, start + trainer_.batch_seconds(), 0, 0});
  std::int32_t index = 0;
  for (const InstructionTimes& times : trainer_.instruction_times()) add(index++, TraceLane::kCompute, times);
}

// An operation belongs to the instruction during which it was issued; those of no traced instruction (of evaluations, of the loop)
// are left out.
void StepTracer::add_operations() {
  std::vector<TraceSlice> instructions;
  std::copy_if(slices_.begin(), slices_.end(), std::back_inserter(instructions),
               [](const TraceSlice& s) { return s.instruction >= 0; });
  for (const OperationRecord& record : log_.records()) {
    const auto after = std::upper_bound(instructions.begin(), instructions.end(), record.issued,
                                        [](double time, const TraceSlice& s) { return time < s.start; });
    if (after == instructions.begin() || record.issued > std::prev(after)->end) continue;
    const auto stream = std::find(streams_.begin(), streams_.end(), record.stream);
    if (stream == streams_.end()) continue;
    TraceSlice slice = *std::prev(after);
    slice.lane =
        record.kind == OperationRecord::Kind::kWait ? TraceLane::kWaiting : static_cast<TraceLane>(stream - streams_.begin());
    slice.start = record.start, slice.end = record.end;
    slice.cpu = slice.waited = 0;
    slices_.push_back(slice);
  }
}

void StepTracer::open() {
  if (std::exchange(opened_, true)) return;
  ParallelContext& context = trainer_.context();
  std::vector<ClockOffset> clocks = estimate_clock_offsets(context.world(), context.device(), clock_identity(), monotonic_seconds);
  if (context.rank() != 0) return;
  const RunPlan& plan = trainer_.plan();
  // Other ranks begin their step a little earlier or later: a millisecond before now is the trace's zero, and a negative time is
  // legal.
  sink_.open_trace(path_of(plan, first_, last_),
                   {plan.grid, plan.step_programs, plan.num_micro_batches, plan.step_spec.schedule.num_virtual_stages()},
                   std::move(clocks), monotonic_seconds() - 1e-3);
}

void StepTracer::flush() {
  ParallelContext& context = trainer_.context();
  trainer_.drain();  // both ends of every message of the traced steps are there
  log_.set_mode(OperationLog::Mode::kCount);
  add_operations();
  gather_bytes(context.world(), context.device(), std::as_bytes(std::span(slices_)),
               [&](int rank, std::span<const std::byte> bytes) {
                 sink_.trace(rank, {reinterpret_cast<const TraceSlice*>(bytes.data()), bytes.size() / sizeof(TraceSlice)});
               });
  slices_.clear();
  log_.clear();
  buffered_ = 0;
}

std::optional<std::string> StepTracer::finish() {
  if (buffered_ > 0) flush();
  return sink_.close_trace() ? std::optional(path_of(trainer_.plan(), first_, last_)) : std::nullopt;
}

}  // namespace trident

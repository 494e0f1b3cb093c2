#include "train/run/step_tracer.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "core/at.h"
#include "core/clock.h"
#include "core/file_io.h"
#include "core/fnv1a.h"
#include "train/run/between_steps.h"

namespace trident {
namespace {

void exchange(Communicator& world, Stream& stream, double& value, int peer, bool sends) {
  const TensorView view(&value, DType::kF64, {1});
  if (sends) world.send(stream, view, peer);
  else world.recv(stream, view, peer);
}

// The peer read its clock somewhere between `sent` and `received`: halfway, give or take half of it.
ClockOffset ping(Communicator& world, Stream& stream, double& token, int peer, const std::function<double()>& clock) {
  const double sent = clock();
  exchange(world, stream, token, peer, true);
  exchange(world, stream, token, peer, false);
  const double received = clock();
  return {(sent + received) / 2 - token, (received - sent) / 2};
}

}  // namespace

std::uint64_t clock_identity() {
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(boot, text);
  std::error_code none;
  text += std::filesystem::read_symlink("/proc/self/ns/time", none).string();
  Fnv1a hash;
  hash.add(text);
  return hash.value();
}

std::vector<ClockOffset> estimate_clock_offsets(Communicator& world, Device& device, std::uint64_t identity,
                                                const std::function<double()>& clock) {
  Stream& stream = device.host_stream();
  const Buffer memory = device.allocate_host_shared(sizeof(double), "clock ping");  // messages go through memory that peers reach
  double& token = *reinterpret_cast<double*>(memory.data());
  auto mine = static_cast<std::int64_t>(identity);
  std::vector<std::int64_t> clock_of(static_cast<std::size_t>(world.size()));
  world.all_gather(stream, TensorView(clock_of.data(), DType::kI64, {world.size()}), TensorView(&mine, DType::kI64, {1}));
  const auto first_of = [&](std::int64_t clock) { return static_cast<int>(std::ranges::find(clock_of, clock) - clock_of.begin()); };
  if (world.rank() != 0) {
    const bool answers = first_of(mine) == world.rank();
    for (int i = 0; i < kPings && answers; ++i) {
      exchange(world, stream, token, 0, false);
      token = clock();
      exchange(world, stream, token, 0, true);
    }
    return {};
  }
  std::vector<ClockOffset> clocks(clock_of.size());
  for (int rank = 1; rank < world.size(); ++rank) {
    ClockOffset& best = at(clocks, rank);
    const int first = first_of(at(clock_of, rank));
    if (first != rank) {
      best = at(clocks, first);
      continue;
    }
    for (int i = 0; i < kPings; ++i) {
      const ClockOffset one = ping(world, stream, token, rank, clock);
      if (i == 0 || one.bound < best.bound) best = one;
    }
  }
  return clocks;
}

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

std::string StepTracer::path() const {
  return fmt::format("{}/trace/steps_{}-{}{}.json", trainer_.plan().config.run.dir, first_, last_,
                     number_ == 1 ? "" : fmt::format(".{}", number_));
}

// Steps are alike in their operations, but each waits at moments of its own: twice what the busiest one so far had, and some. The
// very first step may allocate what it needs.
void StepTracer::before_step(std::int64_t update) {
  if (traces(update)) {
    open(update);
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
  add(TraceSlice::kBatch, TraceLane::kCompute, trainer_.batch_times());
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

void StepTracer::open(std::int64_t update) {
  if (std::exchange(opened_, true)) return;
  first_ = update;  // a start that goes on within the steps asked for leaves the earlier start's file
  ParallelContext& context = trainer_.context();
  std::vector<ClockOffset> clocks = estimate_clock_offsets(context.world(), context.device(), clock_identity(), monotonic_seconds);
  if (context.rank() != 0) return;
  while (file_exists(path())) ++number_;
  const RunPlan& plan = trainer_.plan();
  // Other ranks begin their step a little earlier or later: a millisecond before now is the trace's zero, and a negative time is
  // legal.
  sink_.open_trace(path(),
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

std::string StepTracer::finish(std::int64_t updates) {
  if (buffered_ > 0) flush();
  if (sink_.close_trace()) return fmt::format("trace: {} (open it with ui.perfetto.dev)", path());
  if (opened_) return "no trace: its file could not be written";
  if (updates < first_) return "no trace: the run ended before the first of log.trace_steps";
  return file_exists(path()) ? "" : "no trace: this start began behind log.trace_steps";
}

}  // namespace trident

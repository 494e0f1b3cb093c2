// Collects what a rank did in the steps that log.trace_steps names, and brings it to rank 0's sink.
//
// Times go into memory reserved before each step. After every kStepsPerFlush traced steps, and after the last, the ranks bring them
// to rank 0, one rank after the other: how many steps are traced does not matter to memory. Between such steps there is a gap in
// the trace.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/operation_log.h"
#include "parallel/communicator/communicator.h"
#include "train/log/run_sink.h"
#include "train/log/trace_writer.h"
#include "train/run/rank_trainer.h"

namespace trident {

// Equal for processes that read the same monotonic clock: the machine since its start, in this time namespace.
std::uint64_t clock_identity();

// Collective. On rank 0: by rank, what to add to its monotonic clock, so that times of several machines lie side by side; empty
// elsewhere. Ranks with rank 0's identity need nothing; of each other clock the first rank answers kPings short messages, and the
// fastest round trip says the offset, to within half its duration.
inline constexpr int kPings = 16;
std::vector<ClockOffset> estimate_clock_offsets(Communicator& world, Device& device, std::uint64_t identity,
                                                const std::function<double()>& clock);

class StepTracer {
 public:
  static constexpr int kStepsPerFlush = 8;

  // Traces updates first..last. `trainer` and `sink` outlive the tracer; the trainer's device must not be used for training after
  // it.
  StepTracer(RankTrainer& trainer, RunSink& sink, std::int64_t first, std::int64_t last);
  ~StepTracer();
  StepTracer(const StepTracer&) = delete;
  StepTracer& operator=(const StepTracer&) = delete;

  // Around each step, in which the rank works on update `update`; collective. start, end: of the step, monotonic.
  void before_step(std::int64_t update);
  void after_step(std::int64_t update, double start, double end);
  // After the run's last step, the rank having made `updates` of all; collective. On rank 0: a line on the file, or why there is
  // none; "" where an earlier start has it.
  std::string finish(std::int64_t updates);
  // <run.dir>/trace/steps_50-52.json: the first step that this start traces, and the last one asked for; steps_50-52.2.json
  // where an earlier start traced the same ones.
  std::string path() const;

 private:
  bool traces(std::int64_t update) const { return update >= first_ && update <= last_; }
  void add_instructions(std::int64_t update, double start, double end);
  void add_operations();
  void open(std::int64_t update);
  void flush();

  RankTrainer& trainer_;
  RunSink& sink_;
  std::int64_t first_, last_;
  OperationLog log_;
  std::size_t count_before_ = 0, most_per_step_ = 0;
  std::vector<TraceSlice> slices_;
  std::array<const Stream*, kNumTraceLanes> streams_{};  // by lane; null: no stream's
  int attempts_ = 0, buffered_ = 0, number_ = 1;
  bool opened_ = false;
};

}  // namespace trident

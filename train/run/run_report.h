// The closing lines of a run: what was trained, and every prediction beside what was measured.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/log/metrics.h"
#include "train/log/step_times.h"
#include "train/plan/run_plan.h"
#include "train/run/data_summary.h"
#include "train/run/rank_trainer.h"
#include "train/run/stop_request.h"

namespace trident {

// Facts about a finished run, on rank 0.
struct RunSummary {
  double first_loss = 0, last_loss = 0;  // nats per token, training: of the run's first step, as far as logs go back, and the last
  std::optional<EvalMetrics> first_valid, last_valid;  // of the run, as far as logs go back, and of this start
  std::optional<PairRewards> last_rewards;             // of the last step
  std::vector<std::string> files;                      // in run.dir, to be looked at
  std::int64_t updates = 0, tokens = 0;  // of this start
  std::int64_t skipped = 0, step = 0, run_tokens = 0;  // of the run
  double seconds = 0;                    // of the loop
  bool out_of_time = false;              // run.max_minutes ended it
  std::array<double, kNumAxes> bytes_predicted{}, bytes_counted{};  // one step, summed over ranks
  std::int64_t bytes_between_nodes = 0;  // payload, start to end, summed over ranks
  std::int64_t planned_bytes = 0, granted_bytes = 0;  // arena, maximum over ranks
  StepTimes times;                       // mean of a step and a rank, without the first step
  double timed_steps = 0;                // of `times`
  NumberRange step_spread;               // of the last of those, seconds on rank 0
  bool first_step_alone = false;         // `times` are of the first step, because there was no other
  std::optional<std::int64_t> resident_bytes;  // of this process, while all ranks still had their memory
  double replayed_bubble = 0;            // over ideal: measured CPU seconds per instruction through the simulator
};

ValidLoss valid_loss(const EvalResult& result);  // bits per byte: nats per token / ln 2 / bytes per token

// CPU seconds of every instruction of one step, of all ranks; collective over the world. On every rank: [pipeline rank][instruction],
// the mean over the data- and tensor-parallel ranks.
std::vector<std::vector<double>> collect_cpu_seconds(RankTrainer& trainer);

// When every instruction of the last step ran, on the ranks of this rank's pipeline: [pipeline rank][instruction], seconds since
// the first of them began; collective over the world.
std::vector<std::vector<InstructionTimes>> collect_last_step(RankTrainer& trainer);

// Times of the ranks of a pipeline, each by the clock of its machine, become seconds since the first of them began. Clocks that
// differ by more than the step are taken to agree where the norm ends, which all ranks leave together.
void put_on_one_clock(const std::vector<StepProgram>& programs, std::vector<std::vector<InstructionTimes>>& step);

// The bubble these times would make with one core per rank.
double replay_bubble(const RunPlan& plan, const std::vector<std::vector<double>>& cpu_seconds);

// "model: llama of 12.34M parameters, ...", "layout: 2DP x 4PP x 4TP = 32 ranks, 1f1b, ...".
std::string model_text(const ModelConfig& model);
std::string model_line(const RunPlan& plan);
std::string layout_line(const RunPlan& plan);
// "zero3 with 4 micro-batches: 10.1 MB sent ...": what the policy costs, and which preset costs less.
struct ZeroLine {
  std::string text;
  bool saves_a_tenth = false;  // the other one, of the bytes that are sent
};
ZeroLine zero_line(const RunPlan& plan);
// Aligned lines on model, layout, device, memory and data, then what nobody may miss; and the rest. `memory`: rank 0's arena.
// `largest_arena`: bytes of the rank that has most.
LogLines opening_lines(const RunPlan& plan, const std::string& device, const ArenaPlan& memory, std::int64_t largest_arena,
                           const DataSummary& data);
// The opening and the result say the same, but for batches that were skipped.
std::string trained_line(const RunPlan& plan, const RunSummary& summary);
LogLines closing_lines(const RunPlan& plan, const RunSummary& summary);
// The last three of a run: what it reached, where that is, and what to type next.
std::vector<std::string> result_lines(const RunPlan& plan, const RunSummary& summary, const RunEnd& end);

}  // namespace trident

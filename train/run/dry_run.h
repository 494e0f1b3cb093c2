// Runs a rank dry to find what it will do: its RankTrainer, or where nothing is trained its RankEvaluator, constructed and
// stepped on a device that only counts (device/dry) in a world without peers. The plan of its memory and its traffic are what came
// of that, not a second account of the layers.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/arena.h"
#include "device/ops.h"
#include "parallel/grid/process_grid.h"
#include "pipeline/stage.h"
#include "train/plan/run_plan.h"
#include "train/plan/step_record.h"

namespace trident {

class StepRecorder;  // step_recorder.h

struct DryRun {
  int rank = 0;
  ArenaPlan arena;                            // the same, entry by entry, as the rank's own
  std::int64_t logits_bytes = 0;              // of the activations: what recompute.head_chunk would keep to a chunk
  std::array<double, kNumAxes> bytes_sent{};  // by the rank, in the work, by axis; zeros without any
  std::vector<ActivationBlocks> blocks = {};  // by chunk; of training alone
  BytesByKind held_by_kind = {};              // of all these blocks; likewise
  std::int64_t staging = 0;                   // staging_of() a rank on processors, which saves take beside the arena
};

enum class DryWork : std::uint8_t { kConstruct, kStep, kEvaluation };  // kEvaluation: of one global batch

// Rank `rank` of plan.world_size(), constructed, and stepped once if `work` says so. `oracle`: the operations of the device that
// the rank would have, on the thread that made them; it is asked for workspaces and computes nothing. Without one the arena has no
// workspaces of products and attention in it; the traffic does not depend on them. Reads no data, draws no weights, needs no memory
// of the arena's size.
// `recorder`, if there is one, is told what the work consists of.
DryRun dry_run(const RunPlan& plan, int rank, Ops* oracle, DryWork work, StepRecorder* recorder = nullptr);

// That rank's work, instruction by instruction; `run`, if it is given, gets the dry run itself.
StepRecord record_step(const RunPlan& plan, int rank, Ops* oracle, DryWork work, Interning interning = Interning::kOn,
                       DryRun* run = nullptr);

// The same of one rank of each pipeline stage, that of tp 0 and dp 0. The others of the stage need and send as much.
std::vector<DryRun> dry_stages(const RunPlan& plan, Ops* oracle, DryWork work);

// Operations of GPUs that are not here, as an oracle: the most that their workspaces take.
// `deterministic`: cuda.deterministic.
std::unique_ptr<Ops> any_gpu(bool deterministic);

// This machine's processor as the plan's ranks have it, as an oracle on the calling thread.
std::shared_ptr<Ops> processor_here(const RunPlan& plan);

// The same as dry_stages() with workspaces that are enough for any device of this kind: of GPUs those of any_gpu(), of processors
// what the widest vectors take, with as many threads as the plan has.
std::vector<DryRun> dry_stages_on_any(const RunPlan& plan, DeviceKind device, DryWork work);

// The same with the workspaces of this machine's processor as the oracle; for GPUs, which are not asked, without any: what does
// not fit then fits no GPU.
std::vector<DryRun> dry_stages_here(const RunPlan& plan, DeviceKind device, DryWork work);

// Logical bytes sent in one training step, summed over all ranks, by axis (docs/design/communication.md).
std::array<double, kNumAxes> bytes_of_all_ranks(const RunPlan& plan, std::span<const DryRun> stages);
std::array<double, kNumAxes> step_bytes_sent(const RunPlan& plan);  // of dry_stages()

}  // namespace trident

// The answer of `trident plan`: for each pipeline stage the memory of its ranks, and the bytes that a step sends. Found by
// letting one rank of each stage do it, dry (train/run/dry_run.h); no limit of this machine counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json_reader.h"
#include "parallel/cuda/cuda_backend.h"
#include "planner/predict/rank_memory.h"
#include "train/plan/run_plan.h"
#include "train/run/dry_run.h"

namespace trident {

struct DryPlan {
  RunPlan plan;
  std::vector<DryRun> stages;  // of the rank of each stage that has tp 0 and dp 0; the others need and send as much
  Certainty workspaces = Certainty::kExact;  // of matmuls and attention: those of this machine's processor, or a GPU's at most
};

// The plan of `config` for `ranks` ranks (0: as many as its degrees say), on machines like this one that have as much memory as it
// takes; and what comes of it. On GPUs where the configuration asks for them, or leaves the choice and this machine has one.
DryPlan plan_run(const TrainConfig& config, int ranks, CudaBackend& cuda);

// kProgram: with the instructions of every stage in a step, in the words of pipeline/schedule/step_program.h.
enum class PlanDetail : std::uint8_t { kSums, kProgram };
std::string to_text(const DryPlan& report, PlanDetail detail, std::size_t columns = std::string::npos);
// Parts of it: model, layout and notes; what each stage holds; what a step sends; the instructions of every stage.
std::string heading_text(const RunPlan& plan);
std::string holds_text(const RunPlan& plan);
std::string traffic_text(const DryPlan& report);
std::string program_text(const RunPlan& plan);
// {"ranks", "parameters", "compute", "zero", "micro_batches", "bubble_over_ideal", "workspaces": "exact" | "bound",
//  "stages": [{"stage", "rank", "holds", "bytes", "by_use": {...}, "allocations": [{"name", "use", "bytes"}, ...]}],
//  "step_comm_bytes": {"tp", "cp", "dp", "pp"}}: bytes, of one rank and (step_comm_bytes) summed over all ranks. kProgram: every
//  stage
// has its "program", too, a list of instructions, and their work (train/plan/step_record.h): "passes", lists of calls in order
// ({"operation", "flops", "bytes"} or {"collective", "group", "ranks", "bytes" of the whole operand}), the first of what lies
// outside of instructions, and "pass_of", the number among them for each instruction.
JsonValue to_json(const DryPlan& report, PlanDetail detail);

}  // namespace trident

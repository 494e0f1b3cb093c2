// A run leaves these in its directory: the resolved configuration, the plan, every rank's memory, and its starts.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_reader.h"
#include "device/arena.h"
#include "parallel/grid/parallel_context.h"
#include "train/log/metrics.h"
#include "train/plan/run_plan.h"

namespace trident {

// {"parameters": bytes, "gradients": ...}, and [{"name", "use", "bytes"}, ...]: an arena, as files and commands have it.
JsonValue bytes_by_use(const ArenaPlan& memory);
JsonValue allocations_of(const ArenaPlan& memory);

// Creates the directory and its parents, or none of them. Throws StorageError naming it.
void make_run_folder(const std::string& folder);

// config.resolved.json and plan.json: what was asked for, and what was decided and predicted. Whole files or none.
void write_config_file(const std::string& folder, const TrainConfig& config);
// `memory`: rank 0's arena, every named allocation. `bytes_sent`: in a step by all ranks. `step`: what it is predicted to take;
// null: not said.
void write_plan_file(const std::string& folder, const RunPlan& plan, const ArenaPlan& memory,
                     const std::array<double, kNumAxes>& bytes_sent, const JsonValue& step);
// run.json: {"id", "starts": [{"time", "step", "resumed_from", "ranks", "layout", "hosts", "version", "command", "working_dir",
// "ended"}, ...]}, the last 1000 starts. "resumed_from" is the path of a checkpoint, or null. "layout" is layout_json(). "ended" of
// a start that did not die: {"time", "step", "exit_code", "why"}. Times are unix seconds. Whole files or none. The first returns
// what the second knows the start by, which writes nothing where the file does not have that start or has its end. StorageError.
std::int64_t write_run_start(const std::string& folder, const RunPlan& plan, std::int64_t step,
                             const std::string& resumed_from, const std::vector<std::string>& hosts);
void write_run_end(const std::string& folder, const RunPlan& plan, std::int64_t start, std::int64_t step, int exit_code,
                   std::string_view why);
// The checkpoint that the last start there went on from, which is kept for it; "" where no file says one.
std::string resumed_from_in(const std::string& folder);
// A message without its remedies, which were for where it was said first.
std::string cause_of(const std::string& message);
// How the last start there ended if not by itself: "ended with 76: rank 1 was killed", or that it has no end, because it was killed
// or its machine failed; else "". For who has the folder.
std::string bad_end(const std::string& folder);
// The loss of step 1 in a run's metrics.jsonl; nothing where its first line is of another step, or none.
std::optional<double> first_logged_loss(const std::string& folder);
// The first evaluation in the eval.jsonl of `now`; nothing where its first line is none, or where `now` evaluates other tokens than
// `then`, with which the log ends.
std::optional<EvalMetrics> first_logged_evaluation(const TrainConfig& now, const TrainConfig& then);
// The files that a run appends to are on the disk: what they say outlives the machine.
void sync_run_files(const std::string& folder);

// memory.json: of every rank its place, bytes and bytes by use, and bytes of host memory beside them that checkpoints go through
// (`staging_bytes`); of the first rank of each pipeline stage also every named allocation, which its data- and tensor-parallel
// peers repeat. Collective; `memory` is the caller's own arena. `folder` "" on rank 0: nothing is written.
void write_memory_file(const std::string& folder, ParallelContext& context, const ArenaPlan& memory, std::int64_t staging_bytes);

}  // namespace trident

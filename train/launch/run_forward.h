// Ranks that run forwards over a trained model: threads of this process, or the processes that mpirun or srun started.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/logging.h"
#include "device/cpu/cpu_device.h"
#include "parallel/cuda/cuda_backend.h"
#include "train/config/train_config.h"
#include "train/plan/run_plan.h"
#include "train/run/arena_check.h"
#include "train/run/job_rank.h"
#include "train/run/resume.h"

namespace trident {

// Where weights come from, and who says so.
struct ForwardModel {
  // The model; precision, layout, micro-batch and sequence of the ranks. batch.global does not count, and batch.sequence may be no
  // multiple of the tensor ranks that share it out: whoever sets it before the ranks run sees to that.
  TrainConfig config;
  // Neither `settings` nor the run that saved the weights said batch.micro: it is 1 until whoever runs the model sets it, and is
  // halved for as long as memory does not allow it, which is said.
  bool halves_micro = false;
  Resume checkpoint;      // without a folder: weights are drawn at random; its notes are said once, before the work
  std::string key, path;  // "--ckpt" and what was given for it, for messages
};

// The model of a checkpoint ("DIR", "DIR/step-00000100", or "DIR/100" in a folder of them), to be run on one rank, or on as many as
// `settings` (--set path=value) and the launcher say: its model and its precision, and everything else as it is by default.
// DataError for a folder that is no checkpoint; ConfigError for settings that cannot be.
ForwardModel forward_model_of_checkpoint(const std::string& path, const std::vector<std::string>& settings, std::string_view key);

// The same of a Hugging Face folder: its config.json's model, precision and all else as they are by default, and sequences of as
// many tokens as the model has positions and at most kFolderSequence. `adapter`: a PEFT folder that is merged into it, or "".
// DataError for a folder that is none.
ForwardModel forward_model_of_hf(const std::string& path, const std::vector<std::string>& settings, std::string_view key,
                                 const std::string& adapter);

// The same of a run's configuration: its model with the weights of the run's newest checkpoint, or drawn at random where it has
// none, or none is wanted. ConfigError for one that cannot be trained with, or whose run has checkpoints of another model.
enum class ConfigWeights : std::uint8_t { kNewest, kRandom };
ForwardModel forward_model_of_config(const std::string& path, const std::vector<std::string>& settings, std::string_view key,
                                     ConfigWeights weights);

// Refuses (ConfigError) what has no effect where nothing is trained, and what lies in `more` (paths or blocks), by the --set text
// that asks for it. `why_more`: why those do not count.
void refuse_unused_settings(const std::vector<std::string>& settings, std::initializer_list<std::string_view> more = {},
                            std::string_view why_more = {});

struct ForwardInputs {
  ForwardModel model;
  RunPlan plan;  // as ForwardKind::plan made it; tokens_per_step() are of one global batch
};

// The work of one rank. The same inputs on every rank.
using ForwardWork = std::function<void(const ForwardInputs& inputs, JobRank rank)>;

// The differences between kinds of work. Not set: those of an evaluation.
struct ForwardKind {
  std::function<RunPlan(RunPlan plan)> plan = forward_only;  // of a plan for training; may refuse it
  // Refuses (ConfigError) what the machine has no room for.
  std::function<void(const RunPlan& plan, std::span<const ArenaNeed> needs)> check_memory =
      [](const RunPlan& plan, std::span<const ArenaNeed> needs) { check_arenas(plan, needs); };
  SmallProducts small_products = SmallProducts::kBlocked;
};

// `read`: called once in each process, on whose threads or on which `work` then runs once for each rank. What can be refused is
// refused before a rank has memory; the arenas are compared with the machine. ConfigError, DataError, StorageError: the first
// cause, on rank 0 of several processes, and ReportedElsewhere on the rest. Processes notice each other's deaths while they work:
// the rest then end with one line and 76, as in training (docs/stopping.md).
void run_forward(const std::function<ForwardModel()>& read, const ForwardWork& work, LogSink& log, CudaBackend& cuda,
                 const ForwardKind& kind = {});

}  // namespace trident

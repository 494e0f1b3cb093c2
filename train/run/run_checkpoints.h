// The checkpoints of a run, from one rank's side: what it goes on from, and what it saves while it goes on.
//
// Every rank writes its part by itself. When all are done, rank 0 gets one record per file and commits; then every rank reads back
// what it wrote, and rank 0 removes what is no longer to be kept. Ranks agree at step boundaries that all have come as far, so no
// step waits for a disk.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/keep_checkpoints.h"
#include "checkpoint/lease.h"
#include "checkpoint/shard_writer.h"
#include "core/logging.h"
#include "device/background_reads.h"
#include "train/log/log_errors.h"
#include "train/run/load_checkpoint.h"
#include "train/run/rank_trainer.h"
#include "train/run/run_inputs.h"

namespace trident {

// The values of the trainer's rank in a save of its run: of `tensors` but for those that are left in a base.
SavePlan save_plan_of(const RunPlan& plan, RankTrainer& trainer, const std::vector<ManifestTensor>& tensors);
// Bytes of host memory beside the arena that a rank's values go through (checkpoint.staging). `spare`: of its machine, unplanned.
std::int64_t staging_of(const TrainConfig& config, const SavePlan& plan, double spare);
// The unplanned host memory of a rank that computes on processors: its share of the machine but for its arena.
double spare_host_bytes(const RunPlan& plan, int rank, std::int64_t arena_bytes);

class RunCheckpoints {
 public:
  // `inputs` and `trainer` outlive it.
  RunCheckpoints(const RunInputs& inputs, RankTrainer& trainer, const Logger& logger, LogErrors& log_errors);
  ~RunCheckpoints();

  // Collective. Where the run saves, rank 0 takes checkpoint.dir first (take_checkpoint_dir()). load_checkpoint(); then makes ready
  // for saving: what lies behind the step that the run goes on from is set aside. Says where nothing is saved.
  std::optional<TrainingState> begin(const Say& say);

  // The checkpoint that the run went on from, once it has begun, and the configuration that goes on.
  std::optional<Resume> resume() const { return loaded_ ? std::optional(loaded_->resume) : std::nullopt; }
  const TrainConfig& config() const { return loaded_ ? loaded_->config : plan_.config; }

  // The run's, once it has begun: with their hashes where they lie in a base.
  const std::vector<ManifestTensor>& tensors() const { return tensors_; }

  bool saves() const { return !token_.empty(); }
  // Why checkpoint.dir takes no save, on rank 0, where the run trains all the same because nobody gave checkpoint.every; or "".
  const std::string& fault() const { return fault_; }
  // Rank 0: which checkpoints of an earlier run were set aside, for a run that begins anew and says it; where it ends before
  // that, the destructor does.
  std::string take_set_aside() { return std::exchange(set_aside_, ""); }
  bool saves_on_the_way() const { return saves() && plan_.config.checkpoint.every.on_the_way().ever(); }
  // staging_of() this rank; 0 where it has not taken them.
  std::int64_t staging_bytes() const { return staging_bytes_; }
  // `at_interval`: whether checkpoint.every names this step.
  bool is_due(std::int64_t updates, bool at_interval) const {
    return saves_on_the_way() && at_interval && updates != started_step_;
  }

  // Collective, between steps. Begins to save. While another save is in progress one of an epoch waits for it, and another is left
  // out, which is said.
  void save(const TrainingState& state, const Say& say);
  // Whether this rank has something to do that a step boundary need not wait for.
  bool busy() const { return writer_ != nullptr && writer_->busy(); }
  // Collective. The next stage of a save in progress, when no rank is busy. StorageError where one failed and checkpoint.on_error says
  // stop; on rank 0 ConfigError where another run has taken checkpoint.dir over.
  void advance(const Say& say);
  // Collective. Until nothing is in progress; after 10 s without progress a rank says which file keeps it.
  void finish(const Say& say);

  // Seconds that saving held this rank up since the last call: for memory, and for what ranks exchange about a save.
  double take_blocked_seconds() { return std::exchange(blocked_seconds_, 0.0); }

  // The step of the newest checkpoint that was committed and read back, or gone on from; -1: none.
  std::int64_t committed_step() const { return committed_step_; }
  // The lowest validation loss at a step that committed_step() was, and that step.
  struct BestValid {
    std::optional<double> loss;
    std::int64_t step = 0;
  };
  const BestValid& best_valid() const { return best_valid_; }

 private:
  enum class Stage : std::uint8_t { kNone, kWriting, kCommitting, kChecking, kPruning };

  std::int64_t take_directory(const SavePlan& plan);
  void prepare_directory(std::int64_t bytes_of_a_save, const Say& say);
  Say set_aside_says();
  void say_that_nothing_is_saved(const Say& say);
  bool make_ready(const Say& say);
  void make_room(std::int64_t bytes_of_a_save);
  KeepRules keep_rules(const BestValid& best) const;
  void make_writer(SavePlan plan, const Say& say);
  bool on_gpu() const { return trainer_.device().kind() != DeviceKind::kCpu; }
  double spare_bytes() const;
  void say_page_locked(std::int64_t bytes, const Say& say) const;
  void note_failure(const std::string& what, const Say& say);
  void note_unreadable(const Say& say);
  void warn_of_hang();
  void next_stage(const Say& say);
  bool agree(const std::optional<std::string>& error);
  void begin_commit();
  void begin_check();
  void begin_prune();
  std::string path_of(std::int64_t step) const;

  const RunInputs& inputs_;
  const RunPlan& plan_;
  RankTrainer& trainer_;
  const Logger& logger_;
  LogErrors& log_errors_;
  std::string directory_;
  std::string token_;  // of this run's files while they are written; "" where it saves nothing
  std::string fault_, set_aside_;
  std::optional<LoadedCheckpoint> loaded_;  // what the run went on from
  std::vector<ManifestTensor> tensors_;
  std::vector<ManifestFile> files_;  // this rank's, of the save in progress
  TrainingState state_;              // of the save in progress
  Stage stage_ = Stage::kNone;
  std::int64_t started_step_ = -1, committed_step_ = -1;
  BestValid best_valid_;
  double started_ = 0, blocked_seconds_ = 0;
  int rank_ = 0;
  double hang_said_ = 0;  // seconds after which warn_of_hang() said so last; 0: it has not
  std::unique_ptr<Lease> lease_;            // of directory_, on rank 0
  std::unique_ptr<BackgroundReads> reads_;  // on GPUs
  std::int64_t staging_bytes_ = 0;
  std::unique_ptr<ShardWriter> writer_;     // last: its thread uses what stands above
};

}  // namespace trident

// Checks checkpoint.dir before a run that saves trains: the file system does what saving needs, all nodes see
// the same folder, that it has room, and that no other run saves there. What is not so is refused with code 64.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/lease.h"
#include "checkpoint/save_plan.h"
#include "core/logging.h"
#include "parallel/communicator/rendezvous.h"
#include "train/config/train_config.h"
#include "train/run/run_inputs.h"

namespace trident {

// Makes the folder, and takes away again what it made of the path as long as nothing lies there: a start that is refused, for
// whatever reason, leaves no folder behind. Neither throws.
class MadeFolder {
 public:
  explicit MadeFolder(const std::string& folder);
  ~MadeFolder();
  MadeFolder(const MadeFolder&) = delete;
  MadeFolder& operator=(const MadeFolder&) = delete;

 private:
  std::vector<std::string> made_;  // the folder first, then those above it
};

// The folder does not do: it cannot be written, is not the same on all nodes, or has no room.
class UnfitFolderError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

// Collective, for the processes of a job: rank 0 makes a file of a random name and content in the folder, flushes, renames and
// removes it, before which the first rank of every node looks for it, up to `patience_seconds`. Only rank 0's `directory` counts;
// "": nothing is saved. Where the file system refuses any of that, or a node does not see the file, or sees another one, all ranks
// throw as run_together() does; the only process of a job throws an UnfitFolderError.
void check_checkpoint_dir(Rendezvous& job, bool is_first_of_node, const std::string& directory, double patience_seconds = 10);

// The error with which `check` says that the folder does not do, "" where it does; thrown on where checkpoint.every `was_given`, and
// where it is a fault of the storage that may pass.
std::string fault_unless(bool was_given, const std::function<void()>& check);

// The disk space of a plan's files, in whole blocks.
std::int64_t bytes_on_disk(const SavePlan& plan);
// kAnew: what is there will be set aside, where nothing removes it, and is none of the run's keep_last.
enum class RunBegins : std::uint8_t { kAnew, kGoesOn };
// The keep_last that counts for that: a run that saves at its end alone needs room for one save.
std::int64_t keep_last_for_room(const TrainConfig& config);
// Whether the folder's file system has that room, or does not say; and UnfitFolderError, with the numbers, where it has not.
bool has_room(const std::string& directory, std::int64_t bytes_of_a_save, std::int64_t keep_last);
void check_room(const std::string& directory, std::int64_t bytes_of_a_save, std::int64_t keep_last,
                RunBegins begins = RunBegins::kGoesOn);

// On rank 0, before anything in the folder is touched: takes the lease, which a run that saves at its end alone does not renew
// until then; removes what killed saves left, and looks again at what the others believe to be the newest checkpoint (not where
// run.overwrite begins anew) and, where the run begins, at the room for saves of so many bytes. ConfigError if another run has the
// folder, UnfitFolderError if there is no room; StorageError (74) if another run committed a checkpoint since `inputs` were
// prepared: the next start goes on from it.
std::unique_ptr<Lease> take_checkpoint_dir(const RunInputs& inputs, std::int64_t bytes_of_a_save, const Logger& logger);
// The lease alone, in a folder that is made where it is not there. "" as the token: the supervisor's, or a new one.
std::unique_ptr<Lease> take_lease(const std::string& directory, const Logger& logger, LeaseOptions options = {},
                                  const std::string& token = "");

}  // namespace trident

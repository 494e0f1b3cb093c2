// The parts of trident ckpt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "app/subcommands.h"

namespace trident {

// The checkpoint that a path means (checkpoint_path): of several the newest_checkpoint(). DataError if there is none.
std::string find_checkpoint(const std::string& given);
// Refuses what stands at a path in place of checkpoints, of which there are none.
void refuse_other_folder(const std::string& path);

// The texts that the actions print.
void ckpt_ls(const std::string& path, const CommandContext& context);
void ckpt_show(const std::string& path, const CommandContext& context);
// All checkpoints of a folder of several are read. An error unless they are whole; what is wrong is printed line by line before.
void ckpt_verify(const std::string& path, const CommandContext& context);
// Error of code kExitDifferent unless the two are equal; what differs is printed before.
void ckpt_diff(const std::string& a, const std::string& b, const CommandContext& context);

struct PruneRequest {
  std::string folder;
  std::optional<std::int64_t> keep_last, keep_every;  // nothing: what the run that wrote the newest one keeps
  bool dry_run = false;                               // says what would go
  bool unread = false;                                // without reading the newest one back
};
// Removes what a run with such rules would (checkpoint/keep_checkpoints.h), and says what. DataError if the newest checkpoint is not
// whole; StorageError while a run writes there: then nothing is removed.
void ckpt_prune(const PruneRequest& request, const CommandContext& context);

}  // namespace trident

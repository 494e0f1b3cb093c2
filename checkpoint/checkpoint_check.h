// Whether a checkpoint is whole, down to its last byte.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "core/on_progress.h"

namespace trident {

// Every file of the manifest is there, a regular file of its size. DataError naming the first that is not. Reads nothing of them.
void check_files(const std::string& folder, const Manifest& manifest);

// Reads every block of every file. What is wrong, one message each, in the files' order: what BoxReader and CheckpointIndex refuse,
// the first damaged block of a file; and if all tables could be read, tensors that the boxes do not make up. Empty: the checkpoint
// is whole. `progress` counts bytes. Locks it as readers do; `say` is told where another has the lock. DataError where it was
// removed meanwhile, StorageError if a disk fails. Memory: the tables and one block.
std::vector<std::string> check_checkpoint(const std::string& folder, const Manifest& manifest, const OnProgress& progress = {},
                                          const std::function<void(const std::string& line)>& say = {});

}  // namespace trident

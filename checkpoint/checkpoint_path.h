// Which folder a path means that a user gives for a checkpoint.
#pragma once

#include <string>

namespace trident {

// A checkpoint's folder, or one that has several: `path` if it is either; of a run's folder the one that its configuration names
// (checkpoint.dir), or ckpt; DIR/1000 is step-00001000 of DIR, which may be a run's, too. `path` itself where nothing is found.
// StorageError if a folder cannot be listed.
std::string checkpoint_path(const std::string& path);

}  // namespace trident

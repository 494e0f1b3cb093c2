// How a checkpoint appears in its folder, and how it goes: names, the one rename that makes it valid, setting aside, removing.
//
// Files are written into "step-00001000.tmp-<token>"; when all of them are on the disk, the manifest is written there, and the folder
// is renamed to "step-00001000". Whatever is killed in between leaves either the checkpoint whole, or a temporary folder that nobody
// takes for one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "core/file_descriptor.h"

namespace trident {

class Lease;

std::string temporary_name(std::int64_t step, std::string_view token);    // "step-00001000.tmp-<token>"

// The steps of folders in `directory` that have a checkpoint's own name (checkpoint_folder.h), newest first; they need not be valid. None
// where there is no such directory. NotPermitted; StorageError.
std::vector<std::int64_t> checkpoint_steps(const std::string& directory);

// Keeps a checkpoint from being removed while it is read, where the file system has locks. Nothing if it is not there. Where
// another keeps it locked, as everybody can who may read the folder, it goes without a lock after 2 s.
class CheckpointReadLock {
 public:
  explicit CheckpointReadLock(const std::string& folder);

  // A line for people where there is no lock because another has it; else "".
  const std::string& note() const { return note_; }

 private:
  FileDescriptor descriptor_;
  std::string note_;
};
bool is_being_read(const std::string& folder);

// Makes a temporary folder with the folders that files lie in, and the folders above it. May be there. StorageError.
void make_temporary_folder(const std::string& folder);

// Writes the manifest into `temporary`, a folder of `directory` whose files are all on the disk, and renames it to its step's name.
// StorageError: then it is no checkpoint. `lease`, where the run has one, is asked right before the rename: ConfigError if another run
// has the directory now.
void commit_checkpoint(const std::string& directory, const std::string& temporary, std::int64_t step, const Manifest& manifest,
                       Lease* lease = nullptr);

// PATH.aside-K, K = 1, 2, ... the first that is free.
std::string free_aside(const std::string& path);
// Renames step-N to free_aside(); the new path.
std::string set_checkpoint_aside(const std::string& directory, std::int64_t step);

// Renames the folder, so that nothing takes it for a checkpoint, and removes what is in it, never through a link. Nothing if it is
// not there.
void remove_checkpoint_folder(const std::string& directory, const std::string& name);

// Removes what killed or failed saves left: temporary and half-removed folders. Returns why some stay, a line each: nothing takes
// them for checkpoints, so they are in nobody's way.
std::vector<std::string> remove_leftovers(const std::string& directory);

}  // namespace trident

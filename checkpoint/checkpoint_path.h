// Which folder a path means that a user gives for a checkpoint, and which checkpoint a folder.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trident {

// A checkpoint's folder, or one that has several: `path` if it is either; of a run's folder the one that its configuration names
// (checkpoint.dir, which may be relative to where the run was started), or ckpt; DIR/1000 is step-00001000 of DIR, which may be a
// run's, too. `path` itself where nothing is found. NotPermitted or StorageError if a folder cannot be listed.
std::string checkpoint_path(const std::string& path);

// A start that left a folder: what its configuration calls that folder, where that lies now, and in which folder the start worked
// (run.json and the manifest's writer have it; "": not known).
struct RecordedStart {
  std::string recorded, now, working_dir;
};
// Where a path may lie that such a start recorded, the likeliest first: below the folder in which it worked, which of a relative
// `recorded` lies as many folders above `now` as that has parts; below `working_dir`; from here. An absolute path lies where it
// says.
std::vector<std::string> places_of(const std::string& path, const RecordedStart& start);

// `folder` if it is a checkpoint, else the newest checkpoint in it whose manifest is valid; nothing where there is none.
// NotPermitted where this user may not read a newer one, which may be whole.
std::optional<std::string> newest_checkpoint(const std::string& folder);

}  // namespace trident

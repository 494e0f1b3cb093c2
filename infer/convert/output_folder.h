// A folder that appears under its name when all that belongs in it is on the disk, and not before.
#pragma once

#include <string>
#include <string_view>

#include "core/file_descriptor.h"

namespace trident {

// Refuses a path whose name is that of a step's checkpoint, or of what becomes of one (checkpoint_folder.h): whoever trains in the
// folder above would take it for that. `own` is the name that would be right. ConfigError.
void refuse_name_of_step(const std::string& path, std::string_view own = "");

class OutputFolder {
 public:
  // Makes "<path>.tmp-<16 random hexadecimal digits>", and the folders above it; removes those of this path that killed processes
  // of this user left. ConfigError where something has the path's name already; StorageError.
  explicit OutputFolder(std::string path);
  ~OutputFolder();  // without commit(): removes what was made
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // The folder that is being written.
  const std::string& path() const { return temporary_; }

  // Everything that was written is on the disk, except what files' writers have put there themselves (BlockFile::finish()), and the
  // folder has its name. ConfigError where another has taken it meanwhile; StorageError.
  void commit();

 private:
  std::string final_, temporary_;
  FileDescriptor lock_;  // of the folder, for as long as this process writes it; none on file systems without locks
  bool committed_ = false;
};

}  // namespace trident

// A folder for what does not outlive its use.
#pragma once

#include <string>
#include <string_view>

namespace trident {

// A new folder among those for temporary files, "<name>_XXXXXX", removed with all it holds. StorageError where none can be made.
class ScratchFolder {
 public:
  explicit ScratchFolder(std::string_view name);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + '/' + std::string(name); }

 private:
  std::string path_;
};

}  // namespace trident

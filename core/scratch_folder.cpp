#include "core/scratch_folder.h"

#include <stdlib.h>  // mkdtemp

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/check.h"

namespace trident {

ScratchFolder::ScratchFolder(std::string_view name) {
  std::error_code none;
  const std::filesystem::path place = std::filesystem::temp_directory_path(none);
  if (none) throw StorageError(fmt::format("TMPDIR: {}; set it to a folder that can be written", none.message()), none.value());
  std::string path = (place / (std::string(name) + "_XXXXXX")).string();
  if (::mkdtemp(path.data()) == nullptr)
    throw StorageError(
        fmt::format("{}: cannot be made: {}; set TMPDIR to a folder that can be written", path, std::strerror(errno)), errno);
  path_ = path;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace trident

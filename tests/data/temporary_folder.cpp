#include "tests/data/temporary_folder.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace trident {

TemporaryFolder::TemporaryFolder() {
  std::string path = (std::filesystem::temp_directory_path() / "trident_test_XXXXXX").string();
  TRIDENT_CHECK(::mkdtemp(path.data()) != nullptr, "no temporary folder {}", path);
  path_ = path;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> TemporaryFolder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace trident

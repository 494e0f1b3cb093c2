#include "train/convert/output_folder.h"

#include <cstdint>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/file_io.h"

namespace trident {
namespace {

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

void refuse_taken(const std::string& path) {
  if (is_there(path)) throw ConfigError(fmt::format("{}: is there already; remove it, or name another folder to write", path));
}

}  // namespace

OutputFolder::OutputFolder(std::string path) : final_(without_slash(std::move(path))) {
  refuse_taken(final_);
  std::random_device random;
  const std::uint64_t high = random(), low = random();
  temporary_ = fmt::format("{}.tmp-{:016x}", final_, high << 32 | low);
  create_lasting_folder(temporary_);
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;  // what cannot be removed has a name that says what it is
  if (!committed_) std::filesystem::remove_all(temporary_, ignored);
}

void OutputFolder::commit() {
  std::string a_file;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(temporary_)) {
    a_file = entry.path().string();
    sync_folder_of(a_file);
  }
  refuse_taken(final_);
  rename_file(temporary_, final_);
  committed_ = true;
  sync_folder_of(final_);
}

}  // namespace trident

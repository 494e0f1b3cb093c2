#include "checkpoint/checkpoint_path.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/commit.h"
#include "core/file_io.h"
#include "core/json_reader.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

bool has_checkpoints(const std::string& folder) {
  return is_there(folder + "/" + std::string(kManifestName)) || !checkpoint_steps(folder).empty();
}

// checkpoint.dir of the latest start in a run's folder; "" if it names none.
std::string checkpoint_dir_of_run(const std::string& run_dir) {
  const std::string path = run_dir + "/config.resolved.json";
  if (!file_exists(path)) return "";
  try {
    const JsonValue config = read_json_file(path);
    const JsonValue* const block = config.find("checkpoint");
    const JsonValue* const dir = block == nullptr ? nullptr : block->find("dir");
    return dir != nullptr && dir->is_string() ? dir->as_string() : "";
  } catch (const Error&) {
    return "";
  }
}

std::string folder_meant(const std::string& path) {
  if (has_checkpoints(path)) return path;
  for (const std::string& folder : {checkpoint_dir_of_run(path), path + "/ckpt"})
    if (!folder.empty() && has_checkpoints(folder)) return folder;
  return path;
}

}  // namespace

std::string checkpoint_path(const std::string& path) {
  std::string given = path;
  while (given.size() > 1 && given.back() == '/') given.pop_back();
  const fs::path parts(given);
  const std::string last = parts.filename().string();
  const bool is_step = !last.empty() && last.size() <= 18 && std::ranges::all_of(last, [](char c) { return c >= '0' && c <= '9'; });
  if (!is_step || is_there(given)) return folder_meant(given);
  return (fs::path(folder_meant(parts.parent_path().string())) / checkpoint_name(std::atoll(last.c_str()))).string();
}

std::optional<std::string> newest_checkpoint(const std::string& folder) {
  if (is_there(folder + "/" + std::string(kManifestName))) return folder;
  for (const std::int64_t step : checkpoint_steps(folder)) {
    const std::string path = folder + "/" + checkpoint_name(step);
    try {
      open_manifest(path);
      return path;
    } catch (const NotPermitted&) {
      throw;
    } catch (const Error&) {
      continue;
    }
  }
  return std::nullopt;
}

}  // namespace trident

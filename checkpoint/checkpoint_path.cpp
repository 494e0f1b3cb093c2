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

// Where checkpoint.dir of the latest start in a run's folder may be: a relative one counts from where the run was started, which is
// as many folders above the run's as run.dir has parts; from here, if the run's folder was moved.
std::vector<std::string> checkpoint_dirs_of_run(const std::string& run_dir) {
  const std::string path = run_dir + "/config.resolved.json";
  if (!file_exists(path)) return {};
  try {
    const JsonValue config = read_json_file(path);
    const auto dir_in = [&](std::string_view block_name) {
      const JsonValue* const block = config.find(block_name);
      const JsonValue* const dir = block == nullptr ? nullptr : block->find("dir");
      return fs::path(dir != nullptr && dir->is_string() ? dir->as_string() : "").lexically_normal();
    };
    const fs::path checkpoints = dir_in("checkpoint"), run = dir_in("run");
    if (checkpoints.empty()) return {};
    fs::path start = fs::absolute(run_dir + "/.").lexically_normal().parent_path();
    for (const fs::path& part : run)
      if (run.is_relative() && !part.empty() && part != ".") start = start.parent_path();
    return {start / checkpoints, checkpoints};  // the same where they are absolute
  } catch (const Error&) {
    return {};
  }
}

std::string folder_meant(const std::string& path) {
  if (has_checkpoints(path)) return path;
  std::vector<std::string> folders = checkpoint_dirs_of_run(path);
  folders.push_back(path + "/ckpt");
  const auto found = std::ranges::find_if(folders, has_checkpoints);
  return found == folders.end() ? path : *found;
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

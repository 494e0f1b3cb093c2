#include "checkpoint/checkpoint_path.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>

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

// The folder in which the latest start in a run's folder worked; "" where nothing says it.
std::string working_dir_in(const std::string& run_dir) {
  try {
    if (!file_exists(run_dir + "/run.json")) return "";
    const JsonValue run = read_json_file(run_dir + "/run.json", {.max_bytes = 64 << 20, .blame = ExitCode::kData});
    const JsonValue::Array& starts = run.items_at("starts");
    return starts.empty() ? "" : starts.back().text_at("working_dir");
  } catch (const Error&) {
    return "";
  }
}

// Where checkpoint.dir of the latest start in a run's folder may be.
std::vector<std::string> checkpoint_dirs_of_run(const std::string& run_dir) {
  const std::string path = run_dir + "/config.resolved.json";
  if (!file_exists(path)) return {};
  try {
    const JsonValue config = read_json_file(path);
    const std::string checkpoints = config.get("checkpoint").text_at("dir");
    if (checkpoints.empty()) return {};
    return places_of(checkpoints, {config.get("run").text_at("dir"), run_dir, working_dir_in(run_dir)});
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

std::vector<std::string> places_of(const std::string& path, const RecordedStart& start) {
  const fs::path of = fs::path(path).lexically_normal(), recorded = fs::path(start.recorded).lexically_normal();
  if (of.is_absolute()) return {of};
  std::vector<std::string> places;
  if (!start.recorded.empty() && recorded.is_relative()) {
    fs::path folder = fs::absolute(start.now + "/.").lexically_normal().parent_path();
    for (const fs::path& part : recorded)
      if (!part.empty() && part != ".") folder = folder.parent_path();
    places.push_back(folder / of);
  }
  if (!start.working_dir.empty()) places.push_back(start.working_dir / of);
  places.push_back(of);
  return places;
}

std::string checkpoint_path(const std::string& path) {
  std::string given = path;
  while (given.size() > 1 && given.back() == '/') given.pop_back();
  const fs::path parts(given);
  std::string last = parts.filename().string();
  if (last.starts_with("step-")) last.erase(0, 5);
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

#include "app/path_arguments.h"

#include <filesystem>
#include <system_error>

#include "core/json_reader.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

// Lists the flags that were given, each with its value.
std::vector<NamedFile> given(const CLI::App& app, std::initializer_list<const char*> flags) {
  std::vector<NamedFile> files;
  for (const char* const flag : flags) {
    if (app.count(flag) == 0) continue;
    const std::string path = app.get_option(flag)->as<std::string>();
    if (path.empty()) throw ConfigError(fmt::format("{}: is empty; name something, or leave {} out", flag, flag));
    files.push_back({flag, path});
  }
  return files;
}

// A file that is not there yet has a place: its folder's, by whatever name, and its own name in it.
bool same_file(const std::string& one, const std::string& other) {
  std::error_code failed;
  if (fs::equivalent(one, other, failed)) return true;
  const fs::path place = fs::weakly_canonical(one, failed);
  if (failed) return one == other;
  const fs::path other_place = fs::weakly_canonical(other, failed);
  return !failed && place == other_place;
}

}  // namespace

std::string folder_of_program() {
  std::error_code failed;
  return fs::read_symlink("/proc/self/exe", failed).parent_path().string();
}

std::string beside_program(const std::string& name) {
  std::error_code failed;
  fs::path folder = folder_of_program();
  for (int up = 0; up < 4 && !failed && folder.has_relative_path(); ++up, folder = folder.parent_path()) {
    if (!fs::exists(folder / name, failed)) continue;
    const fs::path here = fs::current_path(failed);
    return failed || folder != here ? (folder / name).string() : name;
  }
  return "";
}

bool is_file_of_cluster(const std::string& name_or_path) {
  return name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json");
}

void check_named_files(const CLI::App& app, std::initializer_list<const char*> reads, std::initializer_list<const char*> writes,
                       const std::vector<NamedFile>& also_read) {
  std::vector<NamedFile> inputs = given(app, reads);
  std::erase_if(inputs, [](const NamedFile& file) { return file.flag == "--cluster" && !is_file_of_cluster(file.path); });
  inputs.insert(inputs.end(), also_read.begin(), also_read.end());
  const std::vector<NamedFile> outputs = given(app, writes);
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    for (const NamedFile& input : inputs) {
      if (same_file(output->path, input.path))
        throw ConfigError(fmt::format("{} {}: is what {} names, which would be lost; write to another file", output->flag,
                                      in_quotes(output->path), input.flag));
    }
    for (auto earlier = outputs.begin(); earlier != output; ++earlier) {
      if (same_file(output->path, earlier->path))
        throw ConfigError(fmt::format("{} {}: is the file of {}, too; one of them would be lost; write to two files", output->flag,
                                      in_quotes(output->path), earlier->flag));
    }
  }
}

}  // namespace trident

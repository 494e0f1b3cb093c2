#include "infer/convert/carried_files.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "core/check.h"
#include "core/file_io.h"

namespace trident {
namespace {

constexpr std::uintmax_t kLargest = std::uintmax_t{64} << 20;
constexpr std::string_view kWeights[] = {".safetensors", ".bin",     ".pth",  ".pt", ".gguf",
                                         ".h5",          ".msgpack", ".onnx", ".ot", ".index.json"};
constexpr std::string_view kIndex = "model.safetensors.index.json";  // says how weights were cut into files

bool holds_weights(std::string_view name) {
  return name != kIndex && std::ranges::any_of(kWeights, [&](std::string_view end) { return name.ends_with(end); });
}

}  // namespace

std::vector<std::string> carried_files(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code gone;
    if (name.starts_with('.') || holds_weights(name) || !entry->is_regular_file(gone)) continue;
    if (entry->file_size(gone) <= kLargest) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

void copy_carried(const std::string& from, const std::vector<std::string>& names, const std::string& to) {
  for (const std::string& name : names)
    if (const std::string path = to + "/" + name; !is_there(path)) write_file(path, read_file(from + "/" + name));
}

}  // namespace trident

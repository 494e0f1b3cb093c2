#include "infer/convert/side_files.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>

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

std::vector<std::string> side_files(const std::string& folder) {
  std::vector<std::string> names;
  for (std::string& name : names_in(folder)) {
    const std::string path = folder + "/" + name;
    std::error_code gone;
    if (name.starts_with('.') || holds_weights(name) || !file_exists(path)) continue;
    if (std::filesystem::file_size(path, gone) <= kLargest) names.push_back(std::move(name));
  }
  return names;
}

bool is_of_tokenizer(std::string_view name) {
  constexpr std::string_view kBeginnings[] = {"tokenizer",    "vocab.",        "merges.", "special_tokens_map",
                                              "added_tokens", "chat_template", "tekken."};
  return name.ends_with(".tiktoken") || std::ranges::any_of(kBeginnings, [&](std::string_view b) { return name.starts_with(b); });
}

std::vector<std::string> tokenizer_files(const std::string& folder) {
  std::vector<std::string> names = side_files(folder);
  std::erase_if(names, [](const std::string& name) { return !is_of_tokenizer(name); });
  return names;
}

void copy_carried(const std::string& from, const std::vector<std::string>& names, const std::string& to) {
  for (const std::string& name : names)
    if (const std::string path = to + "/" + name; !is_there(path)) write_file(path, read_file(from + "/" + name));
}

}  // namespace trident

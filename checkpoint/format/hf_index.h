// model.safetensors.index.json of a Hugging Face folder: which file has which tensor. Pure.
//
// One object: "metadata" (total_size, the sum of all tensors' bytes, and whatever else writers put there) and "weight_map", tensor
// name -> file name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trident {

inline constexpr std::string_view kHfIndexName = "model.safetensors.index.json";
inline constexpr std::string_view kHfWeightsName = "model.safetensors";

struct HfIndex {
  std::vector<std::pair<std::string, std::string>> files;  // tensor, file; in the order of the text
  std::optional<std::int64_t> total_bytes;                 // metadata.total_size
  std::optional<std::int64_t> total_parameters;            // metadata.total_parameters
  bool operator==(const HfIndex&) const = default;
};

// Longer texts are not read.
inline constexpr std::int64_t kMaxHfIndexBytes = std::int64_t{64} << 20;

// DataError naming `source` and, where it can, the tensor: what is no such JSON, a name twice, names above 4 KiB, sizes that are
// none, and files whose names lead out of the folder or to something that is no such file: empty, absolute, with a '/', a '\', a
// control character, "." or "..", not ending in ".safetensors".
HfIndex parse_hf_index(std::string_view text, std::string_view source);

// As the reference writer has it: keys in order, two spaces of indentation, a line feed at the end.
std::string to_text(const HfIndex& index);

}  // namespace trident

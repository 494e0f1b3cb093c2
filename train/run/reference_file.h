// reference.f32 of a run directory: what the reference of preference optimisation says of every pair of the training data.
// reference_valid.f32: the same of the validation data.
//
// Little-endian: 4 bytes "TREF", u32 version = 1, u64 identity of data and reference, u64 pairs, u64 hash of the values
// (FNV-1a), then 2 f32 a pair: the log-probability of the chosen and of the rejected answer's counted targets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trident {

inline constexpr const char *kReferenceFile = "reference.f32", *kValidReferenceFile = "reference_valid.f32";

void write_reference(const std::string& path, std::uint64_t identity, const std::vector<float>& values);
// Nothing where there is no such file. DataError naming file and remedy: the file is another's, or damaged.
std::optional<std::vector<float>> read_reference(const std::string& path, std::uint64_t identity, std::int64_t pairs);

}  // namespace trident

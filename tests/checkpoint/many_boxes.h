// A checkpoint of many tensors in many boxes: what a thousand writers make who cut every tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/shard_reader.h"

namespace trident::test {

// Tensors [files, 1], f32, weights alone; row f of each lies in file f.
struct ManyBoxes {
  std::int64_t tensors = 10'000;
  std::int64_t files = 1024;

  // Another one for each element; exact below 2^24.
  float value(std::int64_t tensor, std::int64_t row) const { return static_cast<float>(tensor * files + row); }
};

// Writes it below `folder`. Files for which `is_written` is false have the length they would have and nothing in it, so that who
// reads one finds damage. Returns the manifest.
Manifest write_many_boxes(const std::string& folder, const ManyBoxes& many, const std::function<bool(std::int64_t)>& is_written);

// Returns what a rank holds that has rows first .. first + rows - 1 of every tensor: tensor after tensor.
std::vector<float> read_rows(ShardReader& reader, const ManyBoxes& many, std::int64_t first, std::int64_t rows);

}  // namespace trident::test

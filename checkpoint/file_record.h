// The manifest's record of a file.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/save_plan.h"

namespace trident {

// begin .. end of the kTensorParts parts of a tensor.
struct TensorParts {
  int begin = kTensorParts, end = 0;
};
// The parts that a box of the tensor has elements in.
TensorParts parts_of(const TensorBox& box, const std::vector<std::int64_t>& shape);

// The manifest's entry of a file that was written. `tensors`: the manifest's.
ManifestFile manifest_file(const SaveFile& file, std::span<const ManifestTensor> tensors);

}  // namespace trident

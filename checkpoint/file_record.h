// The manifest's record of a file.
#pragma once

#include <span>

#include "checkpoint/format/manifest.h"
#include "checkpoint/save_plan.h"

namespace trident {

// The manifest's entry of a file that was written. `tensors`: the manifest's.
ManifestFile manifest_file(const SaveFile& file, std::span<const ManifestTensor> tensors);

}  // namespace trident

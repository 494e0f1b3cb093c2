// The manifest's record of a file.
#pragma once

#include <span>

#include "checkpoint/format/manifest.h"
#include "checkpoint/save_plan.h"

namespace trident {

// What the manifest, whose tensors these are, says of a file that was written.
ManifestFile manifest_file(const SaveFile& file, std::span<const ManifestTensor> tensors);

}  // namespace trident

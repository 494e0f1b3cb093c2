// The folders in which checkpoints lie: DIR/step-00001000 is one, DIR/step-00001000.tmp-<token> is being written or was left by a
// killed run, DIR/step-00001000.aside-<n> was set aside because a run went back behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "core/function_ref.h"

namespace trident {

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::string_view kTemporaryMark = ".tmp-", kAsideMark = ".aside-";

// "step-00001000": eight digits or more.
std::string checkpoint_name(std::int64_t step);

// A checkpoint folder's name, parsed. `mark` and `token` are empty for a checkpoint's own name.
struct CheckpointName {
  std::int64_t step = 0;
  std::string mark, token;
  bool operator==(const CheckpointName&) const = default;
};
// Nothing if `name` is none of the three forms; a step has one spelling only.
std::optional<CheckpointName> checkpoint_name_from(std::string_view name);

enum class CheckpointHealth : std::uint8_t {
  kValid,       // its manifest is valid; its other files were not looked at
  kDamaged,     // has a manifest that is none, or is no folder
  kIncomplete,  // has no manifest: being written, or left by a run that was killed
  kNotPermitted,  // its manifest may not be read by this user
};

struct CheckpointEntry {
  std::string name;  // below DIR
  CheckpointName parts;
  CheckpointHealth health = CheckpointHealth::kIncomplete;
  std::string why;                // one sentence; "" if valid
  std::int64_t written_unix = 0;  // of a valid one
  std::string generation;         // of a valid one: which launch wrote it
};

// All that lies in `folder` under such a name, by step, then name. Empty if there is no such folder. StorageError if it cannot be
// read.
// `on_valid` is called with the folder and the manifest of each valid one, in no order: manifests are read once.
std::vector<CheckpointEntry> list_checkpoints(
    const std::string& folder, FunctionRef<void(const CheckpointEntry&, const Manifest&)> on_valid = [](auto&&...) {});

// The manifest of a checkpoint's folder. DataError naming the file: missing, not a regular file (a folder, pipe or link), longer
// than kMaxManifestBytes, not valid (parse_manifest), of another step than the folder's name says; NotPermitted.
Manifest open_manifest(const std::string& checkpoint);

// The bytes below a folder, as far as they can be seen; links are not followed.
std::int64_t bytes_below(const std::string& folder);

}  // namespace trident

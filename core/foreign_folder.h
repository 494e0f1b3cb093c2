// Models as other programs keep them, told by the names of their files: which folder a path means, and what stands at a path that
// has no model that is read. Every command asks here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trident {

// Returns the snapshot of a folder of the hub's cache (models--owner--name): the one that its refs/main names, else its only one.
// Any other path is itself, and so is a cache with several.
std::string hub_snapshot(const std::string& path);

// "; did you mean "run"?" where a folder that is called nearly so stands beside the path; else "".
std::string hint_beside(const std::string& path);

enum class WantedFolder : std::uint8_t { kModel, kCheckpoint };

// Says what stands at a path, or in its hub_snapshot(), in place of a model's folder or a checkpoint, and what to do about it:
// "is an adapter ...; merge it ...". Nothing where it is none of the usual kinds. NotPermitted.
std::optional<std::string> what_stands_at(const std::string& given, WantedFolder wanted = WantedFolder::kModel);

}  // namespace trident

// Work that takes long tells whoever asked for it how far it is.
#pragma once

#include <cstdint>
#include <functional>

namespace trident {

// `done` of `all` windows, bytes, points: first 0, never fewer than before. Not from several threads at once.
using OnProgress = std::function<void(std::int64_t done, std::int64_t all)>;

}  // namespace trident

// The kinds of units that models are made of, and things of which there is one for each kind.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace trident {

enum class UnitKind : std::uint8_t { kEmbedding, kBlock, kHead };
inline constexpr std::size_t kNumUnitKinds = 3;
inline constexpr std::array kUnitKinds = {UnitKind::kEmbedding, UnitKind::kBlock, UnitKind::kHead};

template <class T>
struct ByUnitKind : std::array<T, kNumUnitKinds> {
  T& operator[](UnitKind kind) { return std::array<T, kNumUnitKinds>::operator[](static_cast<std::size_t>(kind)); }
  const T& operator[](UnitKind kind) const { return std::array<T, kNumUnitKinds>::operator[](static_cast<std::size_t>(kind)); }
};

}  // namespace trident

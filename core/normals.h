// Standard normal numbers that are pure functions of a key and an index.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/philox.h"

namespace trident {

// Standard normal numbers under `key`: number `index` is Box-Muller on the words of counter index/4, computed in double so that
// every machine gets the same float to the last bit but libm's own rounding. Cheap where indices follow one another, because many
// are made at once and kept.
class Normals {
 public:
  static constexpr std::size_t kAtOnce = 64;

  explicit Normals(PhiloxKey key) : key_(key) {}
  float at(std::uint64_t index) {
    if (index / kAtOnce != batch_) draw(index / kAtOnce);
    return values_[index % kAtOnce];
  }

 private:
  void draw(std::uint64_t batch);

  PhiloxKey key_;
  std::uint64_t batch_ = ~std::uint64_t{0};
  std::array<float, kAtOnce> values_{};
};

// Makes the Normals::kAtOnce numbers from counter `block` on; false if another float may be nearer to what libm says.
using DrawNormals = bool (*)(std::uint64_t block, PhiloxKey key, float* out);
// By the vectors that this processor has, the fastest first; perhaps none.
std::span<const DrawNormals> vector_normals();

}  // namespace trident

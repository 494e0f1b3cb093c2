#include "tests/cuda/simulated/nccl_sums.h"

#include <cstdint>
#include <cstring>

#include "core/bf16.h"
#include "core/check.h"
#include "core/f16.h"

namespace trident::simulated {

namespace {

template <class T> T combine(ncclRedOp_t op, T a, T b) {
  if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, f16>) return from_float<T>(combine(op, to_float(a), to_float(b)));
  else return op == ncclMax ? (b > a || b != b ? b : a) : static_cast<T>(a + b);
}

template <class T>
void reduce(ncclRedOp_t op, void* out, const std::vector<const std::byte*>& sources, std::size_t first, std::size_t count) {
  const std::size_t ranks = sources.size();
  for (std::size_t i = first; i < first + count; ++i) {
    const auto at = [&](std::size_t rank) {
      T x;
      std::memcpy(&x, sources[rank % ranks] + i * sizeof(T), sizeof(T));
      return x;
    };
    const std::size_t start = i / 16 % ranks;
    T sum = at(start);
    for (std::size_t r = 1; r < ranks; ++r) sum = combine(op, sum, at(start + r));
    std::memcpy(static_cast<std::byte*>(out) + (i - first) * sizeof(T), &sum, sizeof(T));
  }
}

}  // namespace

std::size_t nccl_type_bytes(ncclDataType_t type) {
  switch (type) {
    case ncclInt8: case ncclUint8: return 1;
    case ncclFloat16: case ncclBfloat16: return 2;
    case ncclInt32: case ncclUint32: case ncclFloat32: return 4;
    case ncclInt64: case ncclUint64: case ncclFloat64: return 8;
    default: return 0;
  }
}

void nccl_reduce(ncclDataType_t type, ncclRedOp_t op, void* out, const std::vector<const std::byte*>& sources, std::size_t first,
                 std::size_t count) {
  switch (type) {
    case ncclFloat32: return reduce<float>(op, out, sources, first, count);
    case ncclFloat64: return reduce<double>(op, out, sources, first, count);
    case ncclBfloat16: return reduce<bf16>(op, out, sources, first, count);
    case ncclFloat16: return reduce<f16>(op, out, sources, first, count);
    case ncclInt32: return reduce<std::int32_t>(op, out, sources, first, count);
    case ncclInt64: return reduce<std::int64_t>(op, out, sources, first, count);
    default: TRIDENT_CHECK(false, "the simulation does not add up elements of type {}", static_cast<int>(type));
  }
}

}  // namespace trident::simulated

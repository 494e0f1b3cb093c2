#include "parallel/communicator/rank_order_sum.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/bf16.h"
#include "core/f16.h"
#include "core/int_math.h"

namespace trident {

namespace {

template <class T> inline constexpr bool kIsHalf = std::is_same_v<T, bf16> || std::is_same_v<T, f16>;
template <class T> using Accumulator = std::conditional_t<kIsHalf<T>, float, T>;

inline float widen(bf16 x) { return to_float(x); }
inline float widen(f16 x) { return to_float(x); }
template <class T> inline T widen(T x) { return x; }
template <class T> inline T narrow(Accumulator<T> x) {
  if constexpr (kIsHalf<T>) return from_float<T>(x);
  else return x;
}

template <ReduceOp op, class A> inline A combine(A a, A x) {
  if constexpr (op == ReduceOp::kMax) return x > a || x != x ? x : a;
  else if constexpr (std::is_integral_v<A>)
    return static_cast<A>(static_cast<std::make_unsigned_t<A>>(a) + static_cast<std::make_unsigned_t<A>>(x));
  else return a + x;
}

// The accumulator is local, so an out may be a source.
template <class T, ReduceOp op>
void reduce_block(std::span<std::byte* const> outs, std::span<const std::byte* const> sources, std::int64_t first,
                  std::int64_t count) {
  Accumulator<T> sum[kReduceBlock];
  const T* x = reinterpret_cast<const T*>(sources[0]) + first;
  for (std::int64_t i = 0; i < count; ++i) sum[i] = widen(x[i]);
  for (const std::byte* source : sources.subspan(1)) {
    x = reinterpret_cast<const T*>(source) + first;
    for (std::int64_t i = 0; i < count; ++i) sum[i] = combine<op>(sum[i], static_cast<Accumulator<T>>(widen(x[i])));
  }
  T* result = reinterpret_cast<T*>(outs[0]) + first;
  for (std::int64_t i = 0; i < count; ++i) result[i] = narrow<T>(sum[i]);
  for (std::byte* out : outs.subspan(1))
    std::memcpy(reinterpret_cast<T*>(out) + first, result, static_cast<std::size_t>(count) * sizeof(T));
}

template <class T>
void reduce(ReduceOp op, std::span<std::byte* const> outs, std::span<const std::byte* const> sources, std::int64_t count) {
  for (std::int64_t first = 0; first < count; first += kReduceBlock) {
    const std::int64_t n = std::min(kReduceBlock, count - first);
    if (op == ReduceOp::kSum) reduce_block<T, ReduceOp::kSum>(outs, sources, first, n);
    else reduce_block<T, ReduceOp::kMax>(outs, sources, first, n);
  }
}

}  // namespace

void reduce_in_rank_order(DType dtype, ReduceOp op, std::span<std::byte* const> outs, std::span<const std::byte* const> sources,
                          std::int64_t count) {
  switch (dtype) {
    case DType::kF32: return reduce<float>(op, outs, sources, count);
    case DType::kBF16: return reduce<bf16>(op, outs, sources, count);
    case DType::kF16: return reduce<f16>(op, outs, sources, count);
    case DType::kF64: return reduce<double>(op, outs, sources, count);
    case DType::kI64: return reduce<std::int64_t>(op, outs, sources, count);
    case DType::kI32: return reduce<std::int32_t>(op, outs, sources, count);
    case DType::kU16: case DType::kU8: break;
  }
  TRIDENT_CHECK(false, "{} cannot be reduced", to_string(dtype));
}

IndexRange share_of(std::int64_t count, DType dtype, int ranks, int rank) {
  const std::int64_t granule = 64 / size_of(dtype);
  const std::int64_t share = round_up(ceil_div(count, ranks), granule);
  const std::int64_t begin = std::min(rank * share, count);
  return {begin, std::min(begin + share, count)};
}

}  // namespace trident

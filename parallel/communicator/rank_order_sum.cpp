#include "parallel/communicator/rank_order_sum.h"

#include <algorithm>
#include <array>
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

// `begins`: nothing is in `sum` yet.
template <class T, ReduceOp op, std::size_t kSources, bool begins>
void add_sources(Accumulator<T>* sum, std::span<const std::byte* const> sources, std::int64_t first, std::int64_t count) {
  std::array<const T*, kSources> x;
  for (std::size_t k = 0; k < kSources; ++k) x[k] = reinterpret_cast<const T*>(sources[k]) + first;
  for (std::int64_t i = 0; i < count; ++i) {
    Accumulator<T> s = begins ? widen(x[0][i]) : combine<op>(sum[i], static_cast<Accumulator<T>>(widen(x[0][i])));
    for (std::size_t k = 1; k < kSources; ++k) s = combine<op>(s, static_cast<Accumulator<T>>(widen(x[k][i])));
    sum[i] = s;
  }
}

// The accumulator is local, so an out may be a source. Sources are read and outs written several at a time, because a pass over the
// accumulator costs as much as one over a source.
template <class T, ReduceOp op>
void reduce_block(std::span<std::byte* const> outs, std::span<const std::byte* const> sources, std::int64_t first,
                  std::int64_t count) {
  Accumulator<T> sum[kReduceBlock];
  for (std::size_t done = 0; done < sources.size();) {
    const std::span<const std::byte* const> rest = sources.subspan(done);
    const auto add = [&]<std::size_t n>(std::integral_constant<std::size_t, n>) {
      done == 0 ? add_sources<T, op, n, true>(sum, rest, first, count) : add_sources<T, op, n, false>(sum, rest, first, count);
      done += n;
    };
    if (rest.size() >= 4) add(std::integral_constant<std::size_t, 4>());
    else if (rest.size() >= 2) add(std::integral_constant<std::size_t, 2>());
    else add(std::integral_constant<std::size_t, 1>());
  }
  while (outs.size() >= 4) {
    std::array<T*, 4> to;
    for (std::size_t k = 0; k < to.size(); ++k) to[k] = reinterpret_cast<T*>(outs[k]) + first;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) to[0][i] = to[1][i] = to[2][i] = to[3][i] = narrow<T>(sum[i]);
    outs = outs.subspan(to.size());
  }
  for (std::byte* out : outs) {
    T* const to = reinterpret_cast<T*>(out) + first;
    for (std::int64_t i = 0; i < count; ++i) to[i] = narrow<T>(sum[i]);
  }
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

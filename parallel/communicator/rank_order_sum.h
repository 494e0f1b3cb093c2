// The arithmetic of all_reduce and reduce_scatter: elements of several ranks' buffers, reduced in rank order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/index_range.h"
#include "parallel/communicator/collective_kind.h"

namespace trident {

// Every outs[k][i] = sources[0][i] op sources[1][i] op ..., from left to right; f32, bf16 and f16 in f32 with one rounding,
// f64 in f64, integers exactly (sums wrap). A NaN in any source gives a NaN, for kMax too. An out may be exactly one of the sources.
// dtypes f32, bf16, f16, f64, i64, i32.
void reduce_in_rank_order(DType dtype, ReduceOp op, std::span<std::byte* const> outs, std::span<const std::byte* const> sources,
                          std::int64_t count);

// The elements of `count` that rank `rank` of `ranks` reduces: consecutive ranges that begin on cache lines of an aligned buffer.
IndexRange share_of(std::int64_t count, DType dtype, int ranks, int rank);

// Elements per block: its accumulator and the block of every rank's buffer are still in cache when the result is written over it.
inline constexpr std::int64_t kReduceBlock = 512;

}  // namespace trident

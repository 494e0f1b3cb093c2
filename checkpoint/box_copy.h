// Copies what a stored box has of a wanted one into a shard's memory, whatever the two have in common: the one way in which values
// of files, checkpoints' and Hugging Face's, come into shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/format/tensor_box.h"
#include "checkpoint/shard_boxes.h"
#include "core/dtype.h"
#include "core/function_ref.h"
#include "core/tensor_view.h"

namespace trident {

// Copies host memory to where a shard lies; returns when `from` may be reused. Nothing: the shards lie in host memory.
using WriteValues = std::function<void(TensorView to, const void* from)>;

// Whether values may lose bits on their way into a shard; they are rounded to nearest even.
enum class Narrowing : std::uint8_t { kRefused, kRounded };

// Whether values of a file can fill a shard: of the same dtype, or any floats where the shard is f32, or with kRounded any floats.
bool converts(DType from, DType to, Narrowing narrowing);

// Fills `n` elements of `to` from `n` of `from`; between f32, bf16 and f16, rounded to nearest even, NaNs kept. Equal dtypes are
// copied.
void convert_values(const std::byte* from, DType from_dtype, std::byte* to, DType to_dtype, std::int64_t n);

// The first NaN and the first infinity among `n` f32, bf16 or f16 values; -1: there is none.
struct OddValues {
  std::int64_t nan = -1, infinity = -1;
};
OddValues odd_values(const std::byte* values, DType dtype, std::int64_t n);

// Scratch memory of a reader; allocated when it is used first.
using ReadScratch = std::vector<std::byte>;

// Calls `run` for every stretch of `part`, the intersection of two boxes, that is dense in both; elements are numbered in each box.
void for_each_run(const TensorBox& part, const TensorBox& a, const TensorBox& b,
                  FunctionRef<void(std::int64_t in_a, std::int64_t in_b, std::int64_t count)> run);

// Copies the elements that `stored` and `wanted.box` share into `out`, which has wanted.elements() of `out_dtype` in the order of
// the shard. `stored_dtype` converts to it. `read` fills a span with bytes of the stored box, counted from its first element; it is
// called with ascending places. Returns how many elements that were.
std::int64_t copy_shared(const TensorBox& stored, DType stored_dtype, const ShardBox& wanted, std::byte* out, DType out_dtype,
                         ReadScratch& scratch, FunctionRef<void(std::int64_t begin, std::span<std::byte> bytes)> read);

// Fills what `shard` has of `box` through `read_host`, which fills dense host memory: right away where the shard lies in host
// memory, otherwise some rows at a time by `write_values`.
void fill_shard(const ShardBox& box, const TensorView& shard, const WriteValues& write_values,
                FunctionRef<void(const ShardBox& part, std::byte* out, DType dtype)> read_host);

// Nothing if `boxes` hold every element of a tensor of `shape` exactly once; otherwise what is wrong, as a sentence: a box of
// another rank or outside, two that overlap, elements in none. A box without elements holds nothing. Time: pairs of boxes that
// share rows.
std::optional<std::string> tiling_problem(const std::vector<std::int64_t>& shape, std::span<const TensorBox> boxes);

}  // namespace trident

#include "checkpoint/box_copy.h"

#include <algorithm>
#include <cstring>

#include "core/bf16.h"
#include "core/check.h"
#include "core/f16.h"

namespace trident {
namespace {

constexpr std::int64_t kScratchBytes = std::int64_t{1} << 20;
constexpr std::int64_t kRowsBytes = std::int64_t{4} << 20;  // of a shard on a device, at a time

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class From, class To>
void convert(const std::byte* from, std::byte* to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const To value = from_float<To>(to_float(load<From>(from + i * static_cast<std::int64_t>(sizeof(From)))));
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof(To)), &value, sizeof value);
  }
}

template <class From>
void convert_from(const std::byte* from, std::byte* to, DType to_dtype, std::int64_t n) {
  switch (to_dtype) {
    case DType::kF32: return convert<From, float>(from, to, n);
    case DType::kBF16: return convert<From, bf16>(from, to, n);
    case DType::kF16: return convert<From, f16>(from, to, n);
    default: break;
  }
  TRIDENT_CHECK(false, "values are not converted to {}", to_string(to_dtype));
}

// The first whose bits without the sign are above `infinity` (a NaN), or `infinity` itself. Almost always there is neither, which
// blocks of a fixed length say at the speed of vector instructions.
template <class Bits>
OddValues odd_values_in(const std::byte* values, std::int64_t n, Bits infinity) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(Bits));
  const auto magnitude = static_cast<Bits>(static_cast<Bits>(~Bits{0}) >> 1);
  const auto bits = [&](std::int64_t i) { return static_cast<Bits>(load<Bits>(values + i * kSize) & magnitude); };
  constexpr std::int64_t kBlock = 64;
  Bits odd = 0;
  std::int64_t begin = 0;
  for (; n - begin >= kBlock; begin += kBlock)
    for (std::int64_t i = 0; i < kBlock; ++i) odd |= bits(begin + i) >= infinity ? 1 : 0;
  for (; begin < n; ++begin) odd |= bits(begin) >= infinity ? 1 : 0;
  OddValues found;
  if (odd == 0) return found;
  for (std::int64_t i = n; i-- > 0;) {
    if (bits(i) > infinity) found.nan = i;
    if (bits(i) == infinity) found.infinity = i;
  }
  return found;
}

// Where the elements of a box go: element (i, j) of it, of (n, m), to i * row + j * column. Boxes of other ranks are seen as [1,
// n].
struct Destination {
  std::byte* out = nullptr;
  DType dtype = DType::kF32;
  std::int64_t row = 0, column = 1;

  void put(std::int64_t at, const std::byte* values, std::int64_t count, DType from) const {
    const std::int64_t size = size_of(dtype);
    if (column == 1) return convert_values(values, from, out + at * size, dtype, count);
    for (std::int64_t i = 0; i < count; ++i)
      convert_values(values + i * size_of(from), from, out + (at + i * column) * size, dtype, 1);
  }
};

// A box as rows and columns: [n] is one row of n, and of more than two dimensions the last is the columns.
std::int64_t columns_of(const TensorBox& box) { return box.shape.empty() ? 1 : box.shape.back(); }

// Returns the shard's part of `rows` rows from row `first` on.
ShardBox rows_of(ShardBox box, std::int64_t first, std::int64_t rows) {
  const std::size_t dimension = box.transposed ? 1 : 0;
  box.begin += first * box.columns;
  box.rows = rows;
  box.box.offset[dimension] += first;
  box.box.shape[dimension] = rows;
  return box;
}

}  // namespace

bool converts(DType from, DType to, Narrowing narrowing) {
  const auto is_float = [](DType t) { return t == DType::kF32 || t == DType::kBF16 || t == DType::kF16; };
  return from == to || (is_float(from) && (to == DType::kF32 || (narrowing == Narrowing::kRounded && is_float(to))));
}

void convert_values(const std::byte* from, DType from_dtype, std::byte* to, DType to_dtype, std::int64_t n) {
  if (from_dtype == to_dtype) {
    std::memcpy(to, from, static_cast<std::size_t>(n * size_of(to_dtype)));
    return;
  }
  switch (from_dtype) {
    case DType::kF32: return convert_from<float>(from, to, to_dtype, n);
    case DType::kBF16: return convert_from<bf16>(from, to, to_dtype, n);
    case DType::kF16: return convert_from<f16>(from, to, to_dtype, n);
    default: break;
  }
  TRIDENT_CHECK(false, "values are not converted from {}", to_string(from_dtype));
}

OddValues odd_values(const std::byte* values, DType dtype, std::int64_t n) {
  switch (dtype) {
    case DType::kF32: return odd_values_in<std::uint32_t>(values, n, 0x7f800000u);
    case DType::kBF16: return odd_values_in<std::uint16_t>(values, n, 0x7f80u);
    case DType::kF16: return odd_values_in<std::uint16_t>(values, n, 0x7c00u);
    default: return {};
  }
}

void for_each_run(const TensorBox& part, const TensorBox& a, const TensorBox& b,
                  FunctionRef<void(std::int64_t in_a, std::int64_t in_b, std::int64_t count)> run) {
  const std::size_t rank = part.shape.size();
  if (rank == 0) return run(0, 0, 1);
  std::size_t inner = rank - 1;  // dimensions from here on are one stretch
  while (inner > 0 && part.shape[inner] == a.shape[inner] && part.shape[inner] == b.shape[inner]) --inner;
  std::int64_t count = 1;
  for (std::size_t d = inner; d < rank; ++d) count *= part.shape[d];
  std::vector<std::int64_t> at(rank, 0);  // within `part`
  const auto element = [&](const TensorBox& box) {
    std::int64_t index = 0;
    for (std::size_t d = 0; d < rank; ++d) index = index * box.shape[d] + part.offset[d] + at[d] - box.offset[d];
    return index;
  };
  for (;;) {
    run(element(a), element(b), count);
    std::size_t d = inner;
    while (d > 0 && ++at[d - 1] == part.shape[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

std::int64_t copy_shared(const TensorBox& stored, DType stored_dtype, const ShardBox& wanted, std::byte* out, DType out_dtype,
                         ReadScratch& scratch, FunctionRef<void(std::int64_t begin, std::span<std::byte> bytes)> read) {
  const std::optional<TensorBox> part = intersection(stored, wanted.box);
  if (!part) return 0;
  const std::int64_t columns = columns_of(wanted.box);
  Destination to{out, out_dtype, columns, 1};
  if (wanted.transposed) to.row = 1, to.column = wanted.columns;
  const std::int64_t size = size_of(stored_dtype), at_once = kScratchBytes / size;
  scratch.resize(static_cast<std::size_t>(kScratchBytes));
  std::int64_t found = 0;
  for_each_run(*part, stored, wanted.box, [&](std::int64_t from, std::int64_t into, std::int64_t count) {
    found += count;
    for (std::int64_t done = 0; done < count;) {
      // A row at a time where rows do not follow each other in the shard.
      const std::int64_t left_of_row = to.column == 1 ? count - done : columns - (into + done) % columns;
      const std::int64_t n = std::min({count - done, at_once, left_of_row});
      const std::span<std::byte> values(scratch.data(), static_cast<std::size_t>(n * size));
      read((from + done) * size, values);
      const std::int64_t element = into + done;
      to.put(element / columns * to.row + element % columns * to.column, values.data(), n, stored_dtype);
      done += n;
    }
  });
  return found;
}

void fill_shard(const ShardBox& box, const TensorView& shard, const WriteValues& write_values,
                FunctionRef<void(const ShardBox& part, std::byte* out, DType dtype)> read_host) {
  const TensorView to = shard.range(box.begin, box.elements());
  if (to.where() == MemoryKind::kHost) return read_host(box, to.data(), to.dtype());
  const std::int64_t row_bytes = box.columns * size_of(to.dtype());
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, kRowsBytes / row_bytes);
  std::vector<std::byte> values;
  for (std::int64_t row = 0; row < box.rows; row += rows_at_once) {
    const ShardBox part = rows_of(box, row, std::min(rows_at_once, box.rows - row));
    values.resize(static_cast<std::size_t>(part.elements() * size_of(to.dtype())));
    read_host(part, values.data(), to.dtype());
    write_values(shard.range(part.begin, part.elements()), values.data());
  }
}

namespace {

std::int64_t first_row(const TensorBox& box) { return box.offset.empty() ? 0 : box.offset[0]; }
std::int64_t behind_rows(const TensorBox& box) { return box.offset.empty() ? 1 : box.offset[0] + box.shape[0]; }

}  // namespace

std::optional<std::string> tiling_problem(const std::vector<std::int64_t>& shape, std::span<const TensorBox> boxes) {
  const TensorBox tensor = whole(shape);
  std::vector<const TensorBox*> order;
  for (const TensorBox& box : boxes) {
    if (!is_inside(box, shape))
      return fmt::format("box {} lies outside of {}", to_string(box), to_string(tensor));
    if (box.elements() > 0) order.push_back(&box);
  }
  std::sort(order.begin(), order.end(), [](const TensorBox* a, const TensorBox* b) { return first_row(*a) < first_row(*b); });
  for (std::size_t i = 0; i < order.size(); ++i)
    for (std::size_t j = i + 1; j < order.size() && first_row(*order[j]) < behind_rows(*order[i]); ++j)
      if (intersection(*order[i], *order[j]))
        return fmt::format("boxes {} and {} overlap", to_string(*order[i]), to_string(*order[j]));
  std::int64_t held = 0;  // by disjoint boxes inside: no more than there are
  for (const TensorBox* box : order) held += box->elements();
  if (held == tensor.elements()) return std::nullopt;
  return fmt::format("{} of {} elements are in no box", tensor.elements() - held, tensor.elements());
}

}  // namespace trident

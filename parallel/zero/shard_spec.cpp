#include "parallel/zero/shard_spec.h"

#include <algorithm>

#include "core/check.h"

namespace trident {
namespace {

// Rows a part occupies over all shards, padding included.
std::int64_t occupied_rows(const PartSpec& part) { return std::max(part.rows, part.padded_rows); }

std::int64_t columns_of(const PartSpec& part) { return part.tensor_shape.rank() == 1 ? 1 : part.tensor_shape[1]; }

// Rows a part occupies on one rank.
std::int64_t local_rows(const ParamSpec& spec, const PartSpec& part) {
  const std::int64_t occupied = occupied_rows(part);
  if (spec.sharding.dim != ShardDim::kRows) return occupied;
  TRIDENT_CHECK(occupied % spec.sharding.shards == 0, "{}: {} rows of {} do not divide into {} shards", spec.name, occupied,
                part.tensor, spec.sharding.shards);
  return occupied / spec.sharding.shards;
}

std::int64_t local_columns(const ParamSpec& spec) {
  const std::int64_t columns = columns_of(spec.parts.front());
  if (spec.sharding.dim != ShardDim::kColumns) return columns;
  TRIDENT_CHECK(columns % spec.sharding.shards == 0, "{}: {} columns do not divide into {} shards", spec.name, columns,
                spec.sharding.shards);
  return columns / spec.sharding.shards;
}

void check(const ParamSpec& spec, int tensor_degree) {
  TRIDENT_CHECK(!spec.parts.empty(), "{}: no parts", spec.name);
  const TensorSharding& sharding = spec.sharding;
  TRIDENT_CHECK(sharding.shards >= 1 && tensor_degree >= 1 && tensor_degree % sharding.shards == 0,
                "{}: {} shards over a tensor degree of {}", spec.name, sharding.shards, tensor_degree);
  TRIDENT_CHECK(sharding.dim != ShardDim::kNone || sharding.shards == 1, "{}: {} shards of nothing", spec.name, sharding.shards);
  const Shape& first = spec.parts.front().tensor_shape;
  for (const PartSpec& part : spec.parts) {
    const int rank = part.tensor_shape.rank();
    TRIDENT_CHECK((rank == 1 || rank == 2) && rank == first.rank() && columns_of(part) == columns_of(spec.parts.front()),
                  "{}: {} {} cannot be stacked on {}", spec.name, part.tensor, to_string(part.tensor_shape), to_string(first));
    TRIDENT_CHECK(part.row_begin >= 0 && part.rows >= 0 && part.row_begin + part.rows <= part.tensor_shape[0],
                  "{}: rows {}+{} of {} {}", spec.name, part.row_begin, part.rows, part.tensor, to_string(part.tensor_shape));
    TRIDENT_CHECK(part.padded_rows == 0 || part.padded_rows >= part.rows, "{}: {} rows padded to {}", spec.name, part.rows,
                  part.padded_rows);
  }
  TRIDENT_CHECK(sharding.dim != ShardDim::kColumns || first.rank() == 2, "{}: a vector has no columns to shard", spec.name);
}

}  // namespace

Shape local_shape(const ParamSpec& spec, int tensor_degree) {
  check(spec, tensor_degree);
  std::int64_t rows = 0;
  for (const PartSpec& part : spec.parts) rows += local_rows(spec, part);
  return spec.parts.front().tensor_shape.rank() == 1 ? Shape{rows} : Shape{rows, local_columns(spec)};
}

std::vector<LocalPart> local_parts(const ParamSpec& spec, int tensor_degree, int tensor_rank) {
  check(spec, tensor_degree);
  TRIDENT_CHECK(tensor_rank >= 0 && tensor_rank < tensor_degree, "tp rank {} of {}", tensor_rank, tensor_degree);
  const int shard = tensor_rank / (tensor_degree / spec.sharding.shards);
  const bool by_rows = spec.sharding.dim == ShardDim::kRows;
  const std::int64_t columns = local_columns(spec);
  const std::int64_t column_begin = spec.sharding.dim == ShardDim::kColumns ? shard * columns : 0;

  std::vector<LocalPart> parts;
  std::int64_t local_row = 0;
  for (const PartSpec& part : spec.parts) {
    const std::int64_t rows = local_rows(spec, part);
    const std::int64_t first = by_rows ? shard * rows : 0;  // within the part; beyond part.rows lies padding
    const std::int64_t begin = std::min(first, part.rows), end = std::min(first + rows, part.rows);
    parts.push_back({&part, {part.row_begin + begin, part.row_begin + end, column_begin, column_begin + columns}, local_row});
    local_row += rows;
  }
  return parts;
}

}  // namespace trident

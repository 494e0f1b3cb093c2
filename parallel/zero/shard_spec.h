// How a parameter is laid out over the tensor axis, which ranks' gradients must be summed, and which box of which named tensor a
// rank holds. Pure values; everything that moves parameters (initialisation, ZeRO, checkpoints, tests) reads them from here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/shape.h"
#include "parallel/grid/process_grid.h"

namespace trident {

// A half-open range of rows and columns of a logical tensor (1-D tensors: columns 0..1).
struct Box {
  std::int64_t row_begin = 0, row_end = 0, column_begin = 0, column_end = 1;
  std::int64_t rows() const { return row_end - row_begin; }
  std::int64_t columns() const { return column_end - column_begin; }
  bool operator==(const Box&) const = default;
};

enum class ShardDim : std::uint8_t { kNone, kRows, kColumns };

// Over tp: sharded along `dim` by `shards` equal parts (shards divides tp); tp/shards consecutive ranks hold the same part.
struct TensorSharding {
  ShardDim dim = ShardDim::kNone;
  int shards = 1;
};

// kRowLength: element i is the length of row i of the matrix `of`, whose own values are kNormal.
enum class InitKind : std::uint8_t { kZeros, kOnes, kNormal, kUniform, kRowLength };
struct Init {
  InitKind kind = InitKind::kNormal;
  float standard_deviation = 0.02f;  // kUniform: the bound, values lie between it and its negative
  std::string of = {};               // kRowLength: the matrix, of `columns` columns
  std::int64_t columns = 0;
};

// One logical tensor (or a row range of one) inside a fused parameter, under its Hugging Face name.
struct PartSpec {
  std::string tensor;                 // "model.layers.0.self_attn.q_proj.weight"
  Shape tensor_shape{};               // of the whole logical tensor, [out, in] or [n]
  std::int64_t row_begin = 0, rows = 0;  // the part = these rows of it (GPT-2's c_attn holds q, k and v)
  std::int64_t padded_rows = 0;       // >= rows: rows this part occupies over all shards (vocabulary padding); the rest is zero
  Init init{};
  // Stored transposed ([in, out]) in Hugging Face files; the logical orientation here is always [out, in].
  bool transposed_on_disk = false;
  // False: its elements are neither updated nor counted in the norm, though the parameter's gradient may have them.
  bool trainable = true;
};

// The two ends of a tied embedding: one weight, looked up in at one end, multiplied with at the other. The lookup end owns it where
// one rank holds both, and is the one that is counted.
enum class TiedEnd : std::uint8_t { kNone, kLookup, kHead };

// A parameter as the model declares it: one dense matrix (or vector) per rank, its parts stacked along dimension 0.
struct ParamSpec {
  std::string name;  // unique in the model: "model.layers.0.self_attn.qkv_proj.weight"
  std::vector<PartSpec> parts{};
  TensorSharding sharding{};
  // Sub-axes of tp over which each rank's gradient is a partial sum (norm weights under sequence parallelism: the whole tp axis;
  // replicated kv heads: the replicas). dp and cp are always summed and not listed.
  std::vector<SubAxis> grad_partial_over{};
  bool weight_decay = true;  // 1-D parameters and biases: false
  bool trainable = true;     // false: no part of it trains
  TiedEnd tie = TiedEnd::kNone;
};

// Where a part's data sits on a rank: rows [local_row, local_row + box.rows()) of the local parameter hold `box` of `tensor`.
// A part whose rows are all padding on this rank has an empty box.
struct LocalPart {
  const PartSpec* part = nullptr;
  Box box;                     // in the coordinates of the whole logical tensor
  std::int64_t local_row = 0;
};

// Rows and columns of the rank's dense local parameter ([rows] when the tensors are 1-D), the same on every tp rank.
Shape local_shape(const ParamSpec& spec, int tensor_degree);
// The parts held by tp rank `tensor_rank`.
std::vector<LocalPart> local_parts(const ParamSpec& spec, int tensor_degree, int tensor_rank);

}  // namespace trident

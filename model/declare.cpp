#include "model/declare.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/int_math.h"

namespace trident {
namespace {

constexpr std::int64_t kVocabularyMultiple = 128;  // rows per rank: Megatron's make-vocab-size-divisible-by

SubAxis whole_tensor_axis(const TensorLayout& layout) { return {Axis::kTensor, layout.degree, 1}; }

std::vector<SubAxis> partial_axes(const TensorLayout& layout, PartialGradient partial) {
  const bool summand = partial == PartialGradient::kAlways ? layout.degree > 1 : layout.shards_sequence();
  return summand ? std::vector{whole_tensor_axis(layout)} : std::vector<SubAxis>{};
}

// One of the two parameters of a row-sharded linear layer; `columns` 0: the bias.
ParamSpec row_sharded(const ParamList& list, const RowShardedLinear& linear, std::int64_t columns, InitKind init) {
  const bool vector = columns == 0;
  const std::string suffix = vector ? ".bias" : ".weight";
  const int replicas = list.layout().degree / linear.shards;
  ParamSpec spec;
  spec.name = linear.name + suffix;
  for (const TensorRows& part : linear.parts)
    spec.parts.push_back({.tensor = part.stem + suffix,
                          .tensor_shape = vector ? Shape{part.tensor_rows} : Shape{part.tensor_rows, columns},
                          .row_begin = part.row_begin,
                          .rows = part.rows,
                          .padded_rows = part.rows,
                          .init = {init, linear.init_std},
                          .transposed_on_disk = !vector && linear.transposed_on_disk});
  spec.sharding = linear.shards > 1 ? TensorSharding{ShardDim::kRows, linear.shards} : TensorSharding{};
  if (replicas > 1) spec.grad_partial_over = {{Axis::kTensor, replicas, 1}};
  spec.weight_decay = !vector;
  return spec;
}

}  // namespace

ParamId declare_vector(ParamList& list, const std::string& name, std::int64_t n, InitKind init, PartialGradient partial) {
  ParamSpec spec;
  spec.name = name;
  spec.parts = {{.tensor = name, .tensor_shape = {n}, .rows = n, .padded_rows = n, .init = {init, 0.0f}}};
  spec.grad_partial_over = partial_axes(list.layout(), partial);
  spec.weight_decay = false;
  return list.add(std::move(spec));
}

ParamId declare_sharded_vector(ParamList& list, const std::string& name, std::int64_t n, int shards, InitKind init) {
  const int replicas = list.layout().degree / shards;
  ParamSpec spec;
  spec.name = name;
  spec.parts = {{.tensor = name, .tensor_shape = {n}, .rows = n, .padded_rows = n, .init = {init, 0.0f}}};
  if (shards > 1) spec.sharding = {ShardDim::kRows, shards};
  if (replicas > 1) spec.grad_partial_over = {{Axis::kTensor, replicas, 1}};
  spec.weight_decay = false;
  return list.add(std::move(spec));
}

LinearIds declare_row_sharded(ParamList& list, const RowShardedLinear& linear) {
  LinearIds ids;
  ids.weight = list.add(row_sharded(list, linear, linear.input_columns, InitKind::kNormal));
  if (linear.bias) ids.bias = list.add(row_sharded(list, linear, 0, InitKind::kZeros));
  return ids;
}

LinearIds declare_column_sharded(ParamList& list, const ColumnShardedLinear& linear) {
  const int tensor_degree = list.layout().degree;
  ParamSpec spec;
  spec.name = linear.name + ".weight";
  spec.parts = {{.tensor = spec.name,
                 .tensor_shape = {linear.output_rows, linear.input_columns},
                 .rows = linear.output_rows,
                 .padded_rows = linear.output_rows,
                 .init = {InitKind::kNormal, linear.init_std},
                 .transposed_on_disk = linear.transposed_on_disk}};
  if (tensor_degree > 1) spec.sharding = {ShardDim::kColumns, tensor_degree};
  LinearIds ids;
  ids.weight = list.add(std::move(spec));
  if (linear.bias) {
    ids.bias = declare_vector(list, linear.name + ".bias", linear.output_rows, InitKind::kZeros,
                              PartialGradient::kUnderSequenceParallelism);
  }
  return ids;
}

std::int64_t padded_vocabulary(const ModelConfig& config, int tensor_degree) {
  return round_up(config.vocab_size, kVocabularyMultiple * tensor_degree);
}

ParamId declare_vocabulary(ParamList& list, const ModelConfig& config, TiedEnd end, const std::string& name, const std::string& tensor) {
  const int tensor_degree = list.layout().degree;
  ParamSpec spec;
  spec.name = name + ".weight";
  spec.parts = {{.tensor = tensor + ".weight",
                 .tensor_shape = {config.vocab_size, config.hidden},
                 .rows = config.vocab_size,
                 .padded_rows = padded_vocabulary(config, tensor_degree),
                 .init = {InitKind::kNormal, static_cast<float>(config.init_std)}}};
  if (tensor_degree > 1) spec.sharding = {ShardDim::kRows, tensor_degree};
  if (config.tie_embeddings) spec.tie = end;
  return list.add(std::move(spec));
}

ParamId declare_table(ParamList& list, const std::string& name, std::int64_t rows, std::int64_t columns, float init_std) {
  ParamSpec spec;
  spec.name = name + ".weight";
  spec.parts = {{.tensor = spec.name,
                 .tensor_shape = {rows, columns},
                 .rows = rows,
                 .padded_rows = rows,
                 .init = {InitKind::kNormal, init_std}}};
  spec.grad_partial_over = partial_axes(list.layout(), PartialGradient::kUnderSequenceParallelism);
  return list.add(std::move(spec));
}

std::int64_t local_kv_heads(const ModelConfig& config, int tensor_degree) {
  return config.kv_heads / std::min<std::int64_t>(tensor_degree, config.kv_heads);
}

}  // namespace trident

#include "model/declare.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/adapter_spec.h"
#include "core/int_math.h"

namespace trident {
namespace {

constexpr std::int64_t kVocabularyMultiple = 128;  // rows per rank: Megatron's make-vocab-size-divisible-by

SubAxis whole_tensor_axis(const TensorLayout& layout) { return {Axis::kTensor, layout.degree, 1}; }

std::vector<SubAxis> partial_axes(const TensorLayout& layout, PartialGradient partial) {
  const bool summand = partial == PartialGradient::kAlways ? layout.degree > 1 : layout.shards_sequence();
  return summand ? std::vector{whole_tensor_axis(layout)} : std::vector<SubAxis>{};
}

// A parameter that is one whole tensor. `padded_rows`: that it has in memory; 0: as many as the tensor.
ParamSpec of_one_tensor(std::string name, std::string tensor, const Shape& shape, Init init, std::int64_t padded_rows = 0) {
  ParamSpec spec;
  spec.name = std::move(name);
  spec.parts = {{.tensor = std::move(tensor), .tensor_shape = shape, .rows = shape[0],
                 .padded_rows = std::max(shape[0], padded_rows), .init = init}};
  return spec;
}

// Splits the rows into `shards` parts; where these are fewer than the ranks, several have the same and add up their gradients.
void shard_rows(ParamSpec& spec, const ParamList& list, int shards) {
  const int replicas = list.layout().degree / shards;
  if (shards > 1) spec.sharding = {ShardDim::kRows, shards};
  if (replicas > 1) spec.grad_partial_over = {{Axis::kTensor, replicas, 1}};
}

// The weight or the bias.
ParamSpec row_sharded(const ParamList& list, const ModelConfig& config, const LinearKind& kind, const RowShardedLinear& linear,
                      bool vector) {
  const std::string suffix = vector ? ".bias" : ".weight";
  ParamSpec spec;
  spec.name = linear.name + suffix;
  for (const TensorRows& part : linear.parts)
    spec.parts.push_back({.tensor = part.stem + suffix,
                          .tensor_shape = vector ? Shape{part.tensor_rows} : Shape{part.tensor_rows, config.hidden},
                          .row_begin = part.row_begin,
                          .rows = part.rows,
                          .padded_rows = part.rows,
                          .init = {vector ? InitKind::kZeros : InitKind::kNormal, static_cast<float>(config.init_std)},
                          .transposed_on_disk = !vector && kind.transposed_on_disk});
  shard_rows(spec, list, linear.shards);
  spec.weight_decay = !vector;
  return spec;
}

const AdaptedModule* adapted(const ModelConfig& config, const std::string& module) {
  return config.tuning == nullptr ? nullptr : config.tuning->adapters.find(module);
}

// Modules whose A are one matrix, and the place of their dropout.
struct AdapterGroup {
  std::vector<AdaptedModule> modules;
  int place = 0;
};

// Groups the adapted modules of these linear layers, in their order: with dropout each is by itself, else one scale makes a group.
std::vector<AdapterGroup> adapter_groups(const ModelConfig& config, std::span<const RowShardedLinear> linears, int place) {
  std::vector<AdapterGroup> groups;
  std::vector<std::string> seen;
  for (const RowShardedLinear& linear : linears) {
    for (const TensorRows& part : linear.parts) {
      if (std::ranges::find(seen, part.stem) != seen.end()) continue;
      seen.push_back(part.stem);
      const AdaptedModule* const module = adapted(config, part.stem);
      if (module == nullptr) continue;
      const bool alone = config.tuning->adapters.dropout > 0;
      const auto group = std::ranges::find_if(
          groups, [&](const AdapterGroup& g) { return !alone && g.modules.front().scale == module->scale; });
      if (group == groups.end())
        groups.push_back({{*module}, place + static_cast<int>(seen.size()) - 1});
      else
        group->modules.push_back(*module);
    }
  }
  return groups;
}

LinearAdapter::Dropout adapter_dropout(const ModelConfig& config, int place, bool has_columns) {
  return {static_cast<float>(config.tuning->adapters.dropout), place, has_columns};
}

// A [rank, in] begins as Hugging Face's PEFT draws it, B [out, rank] as zeros: at first an adapter adds nothing.
PartSpec inner_part(const AdaptedModule& module, std::int64_t columns) {
  const auto bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(columns)));
  return {.tensor = module.a(), .tensor_shape = {module.rank, columns}, .rows = module.rank, .padded_rows = module.rank,
          .init = {InitKind::kUniform, bound}};
}

PartSpec outer_part(const AdaptedModule& module, std::int64_t tensor_rows, std::int64_t row_begin, std::int64_t rows) {
  return {.tensor = module.b(), .tensor_shape = {tensor_rows, module.rank}, .row_begin = row_begin, .rows = rows,
          .padded_rows = rows, .init = {InitKind::kZeros, 0.0f}};
}

// m [out] begins as the lengths of W's rows: at first DoRA changes nothing, too.
PartSpec magnitude_part(const AdaptedModule& module, const PartSpec& outer, double init_std, std::int64_t columns,
                        const LinearKind& kind) {
  PartSpec part = outer;
  part.tensor = module.magnitude(), part.tensor_shape = {outer.tensor_shape[0]};
  part.init = {InitKind::kRowLength, static_cast<float>(init_std), module.module + ".weight", columns};
  part.transposed_on_disk = kind.transposed_on_disk;  // as W is, which is read for it
  return part;
}

// The rows of a module's B, and of its m, that are beside a linear layer; nothing: the layer has none of the module's.
std::optional<LinearAdapter::Block> declare_block(ParamList& list, const ModelConfig& config, const LinearKind& kind,
                                                  const RowShardedLinear& linear, const AdaptedModule& module) {
  ParamSpec b;
  LinearAdapter::Block block{.rank = module.rank, .weight = linear.weight};
  std::int64_t column = 0;
  for (const TensorRows& part : linear.parts) {
    const std::int64_t columns = part.rows / linear.shards;
    if (part.stem == module.module) {
      if (b.parts.empty()) block.first_column = column;
      block.columns += columns;
      b.parts.push_back(outer_part(module, part.tensor_rows, part.row_begin, part.rows));
    }
    column += columns;
  }
  if (b.parts.empty()) return std::nullopt;
  const std::string name = b.parts.size() == linear.parts.size() ? linear.name : module.module;
  shard_rows(b, list, linear.shards);
  ParamSpec m = b;
  b.name = std::string(name).append(kLoraB);
  block.b = list.add(std::move(b));
  if (!config.tuning->adapters.dora) return block;
  m.name = std::string(name).append(kLoraMagnitude);
  m.weight_decay = false;
  for (PartSpec& part : m.parts) part = magnitude_part(module, part, config.init_std, config.hidden, kind);
  block.dora.emplace(kind.part, list.add(std::move(m)));
  return block;
}

}  // namespace

ParamId declare_vector(ParamList& list, const std::string& name, std::int64_t n, InitKind init, PartialGradient partial) {
  ParamSpec spec = of_one_tensor(name, name, {n}, {init, 0.0f});
  spec.grad_partial_over = partial_axes(list.layout(), partial);
  spec.weight_decay = false;
  return list.add(std::move(spec));
}

ParamId declare_sharded_vector(ParamList& list, const std::string& name, std::int64_t n, int shards, InitKind init) {
  ParamSpec spec = of_one_tensor(name, name, {n}, {init, 0.0f});
  shard_rows(spec, list, shards);
  spec.weight_decay = false;
  return list.add(std::move(spec));
}

ColumnParallelLinear declare_column_parallel(ParamList& list, const ModelConfig& config, const LinearKind& kind,
                                             const std::string& name, std::vector<RowShardedLinear> linears) {
  std::vector<Projection> projections;
  for (RowShardedLinear& linear : linears) {
    Projection& projection = projections.emplace_back();
    linear.weight = projection.weight = list.add(row_sharded(list, config, kind, linear, false));
    if (kind.bias) projection.bias = list.add(row_sharded(list, config, kind, linear, true));
    for (const TensorRows& part : linear.parts) projection.output_columns += part.rows / linear.shards;
  }
  std::vector<LinearAdapter> adapters;
  for (const AdapterGroup& group : adapter_groups(config, linears, static_cast<int>(kind.dropout))) {
    const std::vector<AdaptedModule>& modules = group.modules;
    ParamSpec a;
    a.name = modules.size() == 1 ? modules.front().module : name;
    a.name += kLoraA;
    a.grad_partial_over = partial_axes(list.layout(), PartialGradient::kAlways);  // each rank knows its columns of y
    for (const AdaptedModule& module : modules) a.parts.push_back(inner_part(module, config.hidden));
    const ParamId a_id = list.add(std::move(a));
    std::vector<LinearAdapter::Block> blocks;
    std::int64_t first_rank = 0;
    for (const AdaptedModule& module : modules) {
      for (std::size_t i = 0; i < linears.size(); ++i)
        if (std::optional<LinearAdapter::Block> block = declare_block(list, config, kind, linears[i], module)) {
          block->product = i;
          block->first_rank = first_rank;
          blocks.push_back(*block);
        }
      first_rank += module.rank;
    }
    adapters.emplace_back(kind.part, a_id, first_rank, modules.front().scale, adapter_dropout(config, group.place, false),
                          std::move(blocks));
  }
  return ColumnParallelLinear(std::move(projections), std::move(adapters));
}

RowParallelLinear declare_row_parallel(ParamList& list, const ModelConfig& config, const LinearKind& kind, const std::string& name,
                                       std::int64_t columns) {
  const int tensor_degree = list.layout().degree;
  const double init_std = config.init_std / std::sqrt(2 * static_cast<double>(config.layers));
  const std::string tensor = name + ".weight";
  ParamSpec spec = of_one_tensor(tensor, tensor, {config.hidden, columns}, {InitKind::kNormal, static_cast<float>(init_std)});
  spec.parts.front().transposed_on_disk = kind.transposed_on_disk;
  if (tensor_degree > 1) spec.sharding = {ShardDim::kColumns, tensor_degree};
  const ParamId weight = list.add(std::move(spec));
  ParamId bias;
  if (kind.bias)
    bias = declare_vector(list, name + ".bias", config.hidden, InitKind::kZeros, PartialGradient::kUnderSequenceParallelism);
  const AdaptedModule* const module = adapted(config, name);
  if (module == nullptr) return {config.hidden, weight, bias};
  ParamSpec a, b;
  a.name = module->a();
  a.parts = {inner_part(*module, columns)};
  if (tensor_degree > 1) a.sharding = {ShardDim::kColumns, tensor_degree};
  b.name = module->b();
  b.parts = {outer_part(*module, config.hidden, 0, config.hidden)};
  b.grad_partial_over = partial_axes(list.layout(), PartialGradient::kAlways);  // each rank's z is a summand
  ParamSpec m = b;
  const ParamId a_id = list.add(std::move(a)), b_id = list.add(std::move(b));
  LinearAdapter::Block block{.b = b_id, .columns = config.hidden, .rank = module->rank, .weight = weight};
  if (config.tuning->adapters.dora) {
    m.name = module->magnitude();
    m.weight_decay = false;
    m.parts = {magnitude_part(*module, m.parts.front(), init_std, columns, kind)};
    block.dora.emplace(kind.part, list.add(std::move(m)));
  }
  const LinearAdapter::Dropout dropout = adapter_dropout(config, static_cast<int>(kind.dropout), tensor_degree > 1);
  return {config.hidden, weight, bias, {{kind.part, a_id, module->rank, module->scale, dropout, {std::move(block)}}}};
}

std::int64_t padded_vocabulary(const ModelConfig& config, int tensor_degree) {
  return round_up(config.vocab_size, kVocabularyMultiple * tensor_degree);
}

ParamId declare_vocabulary(ParamList& list, const ModelConfig& config, TiedEnd end, const std::string& name, const std::string& tensor) {
  const int tensor_degree = list.layout().degree;
  ParamSpec spec =
      of_one_tensor(name + ".weight", tensor + ".weight", {config.vocab_size, config.hidden},
                    {InitKind::kNormal, static_cast<float>(config.init_std)}, padded_vocabulary(config, tensor_degree));
  if (tensor_degree > 1) spec.sharding = {ShardDim::kRows, tensor_degree};
  if (config.tie_embeddings) spec.tie = end;
  return list.add(std::move(spec));
}

ParamId declare_table(ParamList& list, const std::string& name, std::int64_t rows, std::int64_t columns, float init_std) {
  ParamSpec spec = of_one_tensor(name + ".weight", name + ".weight", {rows, columns}, {InitKind::kNormal, init_std});
  spec.grad_partial_over = partial_axes(list.layout(), PartialGradient::kUnderSequenceParallelism);
  return list.add(std::move(spec));
}

std::int64_t local_kv_heads(const ModelConfig& config, int tensor_degree) {
  return config.kv_heads / std::min<std::int64_t>(tensor_degree, config.kv_heads);
}

}  // namespace trident

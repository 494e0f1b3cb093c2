#include "tests/checkpoint/layout_ranks.h"

#include <fmt/core.h>

#include <cstdint>
#include <cstring>
#include <set>

#include "core/bf16.h"
#include "core/philox.h"
#include "model/gpt.h"
#include "tests/support/param_elements.h"

namespace trident::test {

std::string RankLayout::name() const {
  return fmt::format("tp{} pp{} dp{} {} buckets of {}{}", tensor, pipeline, data, sharded ? "sharded" : "ddp", bucket_bytes,
                     sequence_parallel ? " sp" : "");
}

ModelConfig llama_config(std::int64_t vocab, std::int64_t kv_heads, bool tied) {
  ModelConfig model;
  model.vocab_size = vocab;
  model.hidden = 48;
  model.layers = 3;
  model.heads = 8;
  model.kv_heads = kv_heads;
  model.head_dim = 6;
  model.ffn = 40;
  model.max_positions = 32;
  model.tie_embeddings = tied;
  return model;
}

ModelConfig gpt2_config(std::int64_t vocab) {
  ModelConfig model = llama_config(vocab, 8, true);
  model.family = ModelFamily::kGpt2;
  model.norm = NormKind::kLayerNorm;
  model.activation = Activation::kGeluTanh;
  model.position = PositionKind::kLearned;
  model.qkv_bias = model.output_bias = model.mlp_bias = true;
  return model;
}

RankLayout random_layout(std::mt19937& random) {
  const auto one_of = [&](const std::vector<int>& values) { return values[random() % values.size()]; };
  RankLayout layout;
  layout.tensor = one_of({1, 2, 4, 8});
  layout.pipeline = one_of({1, 2, 3, 4});
  layout.data = one_of({1, 2, 3, 4});
  layout.sharded = random() % 3 != 0;
  layout.bucket_bytes = one_of({256, 4096, 25 << 20});
  layout.sequence_parallel = random() % 2 == 0;
  return layout;
}

ElementValue random_values(std::uint64_t seed) {
  return [seed](std::string_view prefix, std::string_view tensor, std::int64_t index) {
    static thread_local std::string last_prefix, last_tensor;
    static thread_local std::uint64_t last_seed = 0;
    static thread_local PhiloxKey key{};
    if (tensor != last_tensor || prefix != last_prefix || seed != last_seed) {  // the name costs more than the number
      last_prefix = prefix, last_tensor = tensor, last_seed = seed;
      key = random_key(seed, RandomPurpose::kTest, last_prefix + last_tensor);
    }
    return uniform_at(key, static_cast<std::uint64_t>(index));
  };
}

LayoutRank::LayoutRank(const ModelConfig& model, const RankLayout& layout, int rank) {
  holder_ = {.tensor_degree = layout.tensor,
             .tensor_rank = rank % layout.tensor,
             .data_shards = layout.data,
             .data_rank = rank / layout.tensor % layout.data,
             .sharded = layout.sharded};
  const int stage = rank / layout.tensor / layout.data, all = num_units(model);
  const int begin = stage * all / layout.pipeline, end = (stage + 1) * all / layout.pipeline;
  for (int unit = begin; unit < end; ++unit) {
    units_.push_back(
        std::make_unique<UnitParams>(UnitParams{unit, unit_params(model, {layout.tensor, layout.sequence_parallel}, unit)}));
    const std::vector<ParamSpec>& specs = units_.back()->specs;
    for (const BucketLayout& bucket : make_buckets(specs, layout.tensor, layout.data, layout.bucket_bytes)) {
      ParamShard shard;
      shard.unit = unit;
      shard.elements = layout.sharded ? bucket.shard_elements : bucket.elements;
      const std::int64_t first = layout.sharded ? holder_.data_rank * shard.elements : 0;
      shard.pieces = shard_pieces(bucket, specs, first, shard.elements, layout.tensor, holder_.tensor_rank);
      shards_.push_back(std::move(shard));
    }
  }
}

std::vector<int> LayoutRank::units() const {
  std::vector<int> units;
  for (auto unit = units_.rbegin(); unit != units_.rend(); ++unit) units.push_back((*unit)->unit);
  return units;
}

std::vector<NamedElement> LayoutRank::elements(std::size_t shard) const {
  std::vector<NamedElement> all(static_cast<std::size_t>(shards_[shard].elements));
  for (const ShardPiece& piece : shards_[shard].pieces) {
    const testing::ElementMap map(*piece.spec, holder_.tensor_degree, holder_.tensor_rank);
    for (std::int64_t i = 0; i < piece.count; ++i) {
      const auto element = map(piece.param_begin + i);
      if (element) all[static_cast<std::size_t>(piece.shard_begin + i)] = {element->part, element->index};
    }
  }
  return all;
}

namespace {

void put(std::byte* to, DType dtype, float value) {
  const bf16 narrow = to_bf16(value);
  std::memcpy(to, dtype == DType::kF32 ? static_cast<const void*>(&value) : &narrow, static_cast<std::size_t>(size_of(dtype)));
}

}  // namespace

void LayoutRank::allocate(DType weights, float padding) {
  weights_ = weights;
  values_.clear();
  for (std::size_t s = 0; s < shards_.size(); ++s) {
    for (const char* prefix : {"", "master/", "exp_avg/", "exp_avg_sq/"}) {
      if (weights == DType::kF32 && std::string_view(prefix) == "master/") continue;
      const DType dtype = *prefix == '\0' ? weights : DType::kF32;
      std::vector<std::byte>& memory = values_[{s, prefix}];
      memory.resize(static_cast<std::size_t>(shards_[s].elements * size_of(dtype)));
      for (std::int64_t i = 0; i < shards_[s].elements; ++i) put(memory.data() + i * size_of(dtype), dtype, padding);
    }
  }
}

void LayoutRank::fill(const ElementValue& value) {
  for (std::size_t s = 0; s < shards_.size(); ++s) {
    const std::vector<NamedElement> named = elements(s);
    for (auto& [key, memory] : values_) {
      if (key.first != s) continue;
      const DType dtype = key.second.empty() ? weights_ : DType::kF32;
      for (std::size_t i = 0; i < named.size(); ++i)
        if (named[i].part != nullptr)
          put(memory.data() + static_cast<std::int64_t>(i) * size_of(dtype), dtype,
              value(key.second, named[i].part->tensor, named[i].index));
    }
  }
}

TensorView LayoutRank::values(std::size_t shard, std::string_view prefix) const {
  const bool shares = weights_ == DType::kF32 && prefix == "master/";
  std::vector<std::byte>& memory = values_.at({shard, shares ? "" : std::string(prefix)});
  return {memory.data(), prefix.empty() ? weights_ : DType::kF32, {shards_[shard].elements}};
}

std::vector<ShardTensors> LayoutRank::tensors() const {
  std::vector<ShardTensors> tensors;
  for (std::size_t s = 0; s < shards_.size(); ++s)
    tensors.push_back({values(s, ""), values(s, "master/"), {values(s, "exp_avg/"), values(s, "exp_avg_sq/")}});
  return tensors;
}

std::vector<LayoutRank> all_ranks(const ModelConfig& model, const RankLayout& layout) {
  std::vector<LayoutRank> ranks;
  ranks.reserve(static_cast<std::size_t>(layout.ranks()));
  for (int rank = 0; rank < layout.ranks(); ++rank) ranks.emplace_back(model, layout, rank);
  return ranks;
}

std::vector<ManifestTensor> tensors_of(const ModelConfig& model) {
  std::vector<ManifestTensor> tensors;
  std::set<std::string> seen;
  for (int unit = 0; unit < num_units(model); ++unit) {
    for (const ParamSpec& spec : unit_params(model, {}, unit))
      for (const PartSpec& part : spec.parts)
        if (seen.insert(part.tensor).second) tensors.push_back({part.tensor, stored_shape(part)});
  }
  return tensors;
}

}  // namespace trident::test

// The shards of every rank of a layout, without devices or communicators: what checkpoints are written from and read into.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/save_plan.h"
#include "checkpoint/shard_boxes.h"
#include "model/config/model_config.h"

namespace trident::test {

struct RankLayout {
  int tensor = 1, pipeline = 1, data = 1;
  bool sharded = true;  // the optimizer's state over the data ranks
  std::int64_t bucket_bytes = 25 << 20;
  bool sequence_parallel = false;

  int ranks() const { return tensor * pipeline * data; }
  std::string name() const;
};

ModelConfig llama_config(std::int64_t vocab, std::int64_t kv_heads, bool tied);
ModelConfig gpt2_config(std::int64_t vocab);  // tied; c_attn and others are transposed on disk
// Any of up to 8 tensor, 4 pipeline and 4 data ranks.
RankLayout random_layout(std::mt19937& random);

// The value of element `index` (row-major, [out, in]) of a tensor under a prefix ("" for weights, "master/", ...).
using ElementValue = std::function<float(std::string_view prefix, std::string_view tensor, std::int64_t index)>;
ElementValue random_values(std::uint64_t seed);

// Says which element of which tensor one of a shard is; tensor -1 is padding. From ElementMap, an element at a time: what boxes
// are compared with.
struct NamedElement {
  const PartSpec* part = nullptr;
  std::int64_t index = 0;
};

class LayoutRank {
 public:
  // `rank` in the order tp, dp, pp.
  LayoutRank(const ModelConfig& model, const RankLayout& layout, int rank);

  std::span<const ParamShard> shards() const { return shards_; }
  const ShardHolder& holder() const { return holder_; }
  std::vector<int> units() const;  // in the order of the updates: the last first
  std::vector<NamedElement> elements(std::size_t shard) const;

  // Memory for weights of `weights`, masters and two states, every element `padding`.
  void allocate(DType weights, float padding);
  void fill(const ElementValue& value);
  std::vector<ShardTensors> tensors() const;
  TensorView values(std::size_t shard, std::string_view prefix) const;  // "", "master/", "exp_avg/", "exp_avg_sq/"

 private:
  ShardHolder holder_;
  std::vector<std::unique_ptr<UnitParams>> units_;
  std::vector<ParamShard> shards_;
  DType weights_ = DType::kF32;
  mutable std::map<std::pair<std::size_t, std::string>, std::vector<std::byte>> values_;
};

std::vector<LayoutRank> all_ranks(const ModelConfig& model, const RankLayout& layout);
std::vector<ManifestTensor> tensors_of(const ModelConfig& model);

inline const std::vector<std::string>& state_names() {
  static const std::vector<std::string> names{"exp_avg", "exp_avg_sq"};
  return names;
}

}  // namespace trident::test

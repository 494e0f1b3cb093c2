#include "checkpoint/save_plan.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "core/check.h"

namespace trident {

SavePlan make_save_plan(std::span<const ShardBox> boxes, std::span<const ShardTensors> tensors,
                        std::span<const std::string> state_names, std::vector<int> units, CheckpointContent content, int rank) {
  constexpr std::string_view kWeights = "weights/w", kOptimizer = "optim/o";
  SavePlan plan;
  plan.units = std::move(units);
  std::map<std::pair<std::string_view, std::size_t>, std::size_t> files;
  // Box number `k` of its tensor on this rank.
  const auto add = [&](std::string_view folder, std::size_t k, const std::string& key, const ShardBox& box,
                       const ConstTensorView& shard) {
    const auto [at, is_new] = files.try_emplace({folder, k}, plan.files.size());
    if (is_new) plan.files.push_back({fmt::format("{}-{:05}-{}.safetensors", folder, rank, k), {}});
    FileTable& table = plan.files[at->second].table;
    const std::int64_t begin = table.data_bytes();
    table.boxes.push_back({key, shard.dtype(), box.box, begin});
    plan.copies.push_back({.from = shard.range(box.begin, box.elements()),
                           .rows = box.rows,
                           .columns = box.columns,
                           .transposed = box.transposed,
                           .file = at->second,
                           .begin = begin,
                           .unit = box.unit});
  };
  std::map<std::string_view, std::size_t> seen;  // boxes of each tensor
  for (const int unit : plan.units) {
    for (const ShardBox& box : boxes) {
      if (box.unit != unit) continue;
      const ShardTensors& shard = tensors[box.shard];
      const std::size_t k = seen[box.tensor]++;
      add(kWeights, k, box.tensor, box, shard.weight);
      if (content == CheckpointContent::kWeights || !box.trainable) continue;
      if (shard.weight.dtype() != DType::kF32)
        add(kOptimizer, k, std::string(kMasterPrefix) + box.tensor, box, shard.master);
      for (std::size_t s = 0; s < shard.states.size(); ++s)
        add(kOptimizer, k, state_names[s] + "/" + box.tensor, box, shard.states[s]);
    }
  }
  TRIDENT_CHECK(std::ranges::all_of(boxes, [&](const ShardBox& box) { return std::ranges::count(plan.units, box.unit) == 1; }), "a unit is not updated once");
  for (SaveFile& file : plan.files) file.table.blocks.resize(static_cast<std::size_t>(file.table.num_blocks()));
  return plan;
}

namespace {

// Element e of the box is (e / rows, e % rows) of the columns x rows that it has.
template <class T> void copy_transposed(const SaveCopy& copy, const std::byte* values, std::int64_t first, std::span<std::byte> out) {
  const std::int64_t count = std::ssize(out) / static_cast<std::int64_t>(sizeof(T));
  std::int64_t column = first / copy.rows, row = first % copy.rows;
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(out.data() + i * static_cast<std::int64_t>(sizeof(T)), values + (row * copy.columns + column) * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    if (++row == copy.rows) row = 0, ++column;
  }
}

}  // namespace

void copy_bytes(const SaveCopy& copy, const std::byte* values, std::int64_t begin, std::span<std::byte> out) {
  if (!copy.transposed) {
    std::memcpy(out.data(), values + begin, out.size());
    return;
  }
  const std::int64_t size = size_of(copy.from.dtype());
  if (size == 4) return copy_transposed<std::uint32_t>(copy, values, begin / size, out);
  TRIDENT_CHECK(size == 2, "a weight of {}", to_string(copy.from.dtype()));
  copy_transposed<std::uint16_t>(copy, values, begin / size, out);
}

}  // namespace trident

#include "checkpoint/format/tensor_box.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "checkpoint/content_hash.h"
#include "checkpoint/shard_boxes.h"
#include "core/bf16.h"
#include "core/check.h"
#include "tests/checkpoint/layout_ranks.h"

namespace trident {
namespace {

TEST(TensorBox, ElementsAreCounted) {
  EXPECT_EQ((TensorBox{{0, 2}, {3, 4}}.elements()), 12);
  EXPECT_EQ((TensorBox{{}, {}}.elements()), 1);
  EXPECT_EQ((TensorBox{{1, 1, 1}, {2, 0, 4}}.elements()), 0);
  EXPECT_EQ((TensorBox{{0, 0}, {1 << 20, 1 << 20}}.elements()), std::int64_t{1} << 40);
}

TEST(TensorBox, IntersectionIsWhatBothHold) {
  const TensorBox a{{2, 0}, {4, 10}}, b{{5, 3}, {9, 4}};
  EXPECT_EQ(intersection(a, b), (TensorBox{{5, 3}, {1, 4}}));
  EXPECT_EQ(intersection(b, a), intersection(a, b));
  EXPECT_EQ(intersection(a, a), a);
  EXPECT_EQ(intersection(a, TensorBox{{6, 0}, {1, 10}}), std::nullopt);  // they touch
  EXPECT_EQ(intersection(a, TensorBox{{2, 3}, {4, 0}}), std::nullopt);   // nothing inside
  EXPECT_EQ(intersection(TensorBox{}, TensorBox{}), TensorBox{});        // scalars
  EXPECT_THROW(intersection(a, TensorBox{{0}, {1}}), InternalError);
}

// Against the definition, element by element, in three dimensions.
TEST(TensorBox, IntersectionAgreesWithElements) {
  const auto holds = [](const TensorBox& box, std::int64_t x, std::int64_t y, std::int64_t z) {
    const std::int64_t at[] = {x, y, z};
    for (std::size_t d = 0; d < 3; ++d)
      if (at[d] < box.offset[d] || at[d] >= box.offset[d] + box.shape[d]) return false;
    return true;
  };
  std::uint32_t random = 1;
  const auto draw = [&](std::uint32_t below) {
    return static_cast<std::int64_t>((random = random * 1664525 + 1013904223) >> 16) % below;
  };
  int met = 0;
  for (int i = 0; i < 200; ++i) {
    const TensorBox a{{draw(4), draw(4), draw(4)}, {draw(6), draw(6), draw(6)}};
    const TensorBox b{{draw(4), draw(4), draw(4)}, {draw(6), draw(6), draw(6)}};
    const std::optional<TensorBox> both = intersection(a, b);
    met += both.has_value();
    for (std::int64_t x = 0; x < 10; ++x)
      for (std::int64_t y = 0; y < 10; ++y)
        for (std::int64_t z = 0; z < 10; ++z)
          EXPECT_EQ(both && holds(*both, x, y, z), holds(a, x, y, z) && holds(b, x, y, z)) << to_string(a) << to_string(b);
  }
  EXPECT_GT(met, 20);
  EXPECT_LT(met, 180);
}

TEST(TensorBox, TextsNameTheBox) {
  EXPECT_EQ(to_string(TensorBox{{0, 64}, {512, 64}}), "[0:512, 64:128]");
  EXPECT_EQ(to_string(TensorBox{}), "[]");
  EXPECT_EQ(whole({3, 4}), (TensorBox{{0, 0}, {3, 4}}));
  EXPECT_EQ(whole({}), TensorBox{});
}

struct Case {
  const char* name;
  ModelConfig model;
};

// Vocabularies that no tp divides, fewer kv heads than tp ranks, tied and not, transposed on disk.
std::vector<Case> models() {
  return {{"llama", test::llama_config(101, 8, false)},
          {"two kv heads", test::llama_config(64, 2, false)},
          {"one kv head, tied", test::llama_config(57, 1, true)},
          {"gpt2", test::gpt2_config(131)}};
}

// Row-major number, [out, in], of element (row, column) of a shard's box.
std::int64_t logical_index(const ShardBox& box, std::int64_t row, std::int64_t column) {
  if (box.box.shape.size() == 1) return box.box.offset[0] + row * box.columns + column;
  const std::int64_t r = box.transposed ? column : row, c = box.transposed ? row : column;
  const std::int64_t stored_row = box.box.offset[0] + r, stored_column = box.box.offset[1] + c;
  return box.transposed ? stored_column * box.tensor_shape[0] + stored_row : stored_row * box.tensor_shape[1] + stored_column;
}

// Each element that the box speaks of is that of the shard, and all lie within the tensor.
void expect_names_elements(const ShardBox& box, const std::vector<test::NamedElement>& named) {
  ASSERT_EQ(box.box.elements(), box.elements());
  for (std::size_t d = 0; d < box.box.shape.size(); ++d)
    ASSERT_LE(box.box.offset[d] + box.box.shape[d], box.tensor_shape[d]) << box.tensor << to_string(box.box);
  for (std::int64_t i = 0; i < box.elements(); ++i) {
    const test::NamedElement& element = named[static_cast<std::size_t>(box.begin + i)];
    ASSERT_NE(element.part, nullptr) << box.tensor << " " << to_string(box.box) << " has padding";
    ASSERT_EQ(element.part->tensor, box.tensor);
    ASSERT_EQ(element.index, logical_index(box, i / box.columns, i % box.columns)) << box.tensor << " " << to_string(box.box);
  }
}

// Checkpoints have it, so that it is the same for ever. The number is that of the formula in docs/design/checkpoint-format.md,
// reckoned in Python.
TEST(ContentHash, IsThatOfTheFormat) {
  const std::vector<float> values{0.5f, -3.0f, 0.0f, 7.25f};
  EXPECT_EQ(content_hash(whole({2, 2}), {2, 2}, 0, std::as_bytes(std::span(values)), DType::kF32), 0x30b7329c57e7f8dbu);
}

TEST(ContentHash, PartsAddUpToTheWholeWhateverTheirCut) {
  const std::vector<std::int64_t> shape{5, 3, 1030};
  std::vector<float> values(static_cast<std::size_t>(whole(shape).elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(static_cast<int>(i * 37 % 97) - 48);
  const auto hash = [&](const TensorBox& box, const std::vector<float>& of) {
    return content_hash(box, shape, 0, std::as_bytes(std::span(of)), DType::kF32);
  };
  const std::uint64_t all = hash(whole(shape), values);
  std::uint64_t halves = 0, boxes = 0;
  const std::span<const float> span(values);
  halves += content_hash(whole(shape), shape, 0, std::as_bytes(span.first(4001)), DType::kF32);
  halves += content_hash(whole(shape), shape, 4001, std::as_bytes(span.subspan(4001)), DType::kF32);
  EXPECT_EQ(halves, all);
  for (const auto& [offset, columns] : {std::pair<std::int64_t, std::int64_t>{0, 1000}, {1000, 30}}) {
    const TensorBox box{{0, 0, offset}, {5, 3, columns}};
    std::vector<float> part;
    for (std::int64_t row = 0; row < 15; ++row)
      part.insert(part.end(), values.begin() + row * 1030 + offset, values.begin() + row * 1030 + offset + columns);
    boxes += hash(box, part);
  }
  EXPECT_EQ(boxes, all);
  std::vector<bf16> halved;
  for (const float value : values) halved.push_back(to_bf16(value));
  EXPECT_EQ(content_hash(whole(shape), shape, 0, std::as_bytes(std::span(halved)), DType::kBF16), all);
  std::vector<float> swapped = values;
  std::swap(swapped[0], swapped[1]);
  EXPECT_NE(hash(whole(shape), swapped), all);
  swapped = values;
  swapped[7000] += 1;
  EXPECT_NE(hash(whole(shape), swapped), all);
}

TEST(ShardBoxes, AllRanksTogetherWriteEveryElementOnce) {
  std::mt19937 random(20261122);
  for (const Case& c : models()) {
    for (int round = 0; round < 25; ++round) {
      const test::RankLayout layout = test::random_layout(random);
      SCOPED_TRACE(std::string(c.name) + " " + layout.name());
      std::map<std::string, std::vector<int>> times;
      for (const ManifestTensor& tensor : test::tensors_of(c.model))
        times[tensor.name].resize(static_cast<std::size_t>(whole(tensor.shape).elements()));
      for (const test::LayoutRank& rank : test::all_ranks(c.model, layout)) {
        std::map<std::size_t, std::vector<test::NamedElement>> named;
        for (const ShardBox& box : boxes_written(rank.shards(), rank.holder())) {
          if (!named.contains(box.shard)) named[box.shard] = rank.elements(box.shard);
          ASSERT_EQ(box.unit, rank.shards()[box.shard].unit);
          ASSERT_NO_FATAL_FAILURE(expect_names_elements(box, named[box.shard]));
          ASSERT_TRUE(times.contains(box.tensor)) << box.tensor;
          for (std::int64_t i = 0; i < box.elements(); ++i)
            ++times[box.tensor][static_cast<std::size_t>(logical_index(box, i / box.columns, i % box.columns))];
        }
      }
      for (const auto& [tensor, counts] : times)
        EXPECT_EQ(std::ranges::count(counts, 1), std::ssize(counts)) << tensor << ": elements written never, or more than once";
    }
  }
}

// A load reads all of a shard but padding, and nothing for a head that shares its lookup's memory.
TEST(ShardBoxes, ARankHoldsEveryElementOfItsShards) {
  std::mt19937 random(7);
  for (const Case& c : models()) {
    for (int round = 0; round < 10; ++round) {
      const test::RankLayout layout = test::random_layout(random);
      SCOPED_TRACE(std::string(c.name) + " " + layout.name());
      for (const test::LayoutRank& rank : test::all_ranks(c.model, layout)) {
        const bool shares = c.model.tie_embeddings && layout.pipeline == 1;
        std::map<std::size_t, std::vector<int>> held;
        for (const ShardBox& box : boxes_held(rank.shards(), rank.holder())) {
          ASSERT_NO_FATAL_FAILURE(expect_names_elements(box, rank.elements(box.shard)));
          std::vector<int>& count = held[box.shard];
          count.resize(static_cast<std::size_t>(rank.shards()[box.shard].elements));
          for (std::int64_t i = 0; i < box.elements(); ++i) ++count[static_cast<std::size_t>(box.begin + i)];
        }
        for (std::size_t s = 0; s < rank.shards().size(); ++s) {
          const auto& pieces = rank.shards()[s].pieces;
          const bool is_head = !pieces.empty() && pieces[0].spec->tie == TiedEnd::kHead;
          if (is_head && shares) {
            EXPECT_FALSE(held.contains(s));
            continue;
          }
          const std::vector<test::NamedElement> named = rank.elements(s);
          std::vector<int> expected(named.size());
          std::ranges::transform(named, expected.begin(), [](const test::NamedElement& e) { return e.part != nullptr ? 1 : 0; });
          held[s].resize(named.size());
          EXPECT_EQ(held[s], expected) << "shard " << s;
        }
      }
    }
  }
}

std::int64_t elements_written(const test::LayoutRank& rank) {
  std::int64_t elements = 0;
  for (const ShardBox& box : boxes_written(rank.shards(), rank.holder())) elements += box.elements();
  return elements;
}

// Tensor ranks differ by one replicated piece at most, data ranks by the padding of buckets. No vocabulary padding here.
TEST(ShardBoxes, ReplicasShareTheWork) {
  for (const bool sharded : {false, true}) {
    for (const std::int64_t bucket_bytes : {4096, 25 << 20}) {
      const ModelConfig model = test::llama_config(1024, 2, false);
      const test::RankLayout layout{.tensor = 8, .data = 3, .sharded = sharded, .bucket_bytes = bucket_bytes};
      SCOPED_TRACE(layout.name());
      std::vector<test::LayoutRank> ranks = test::all_ranks(model, layout);
      std::int64_t largest_replica = 0;
      for (const test::LayoutRank& rank : ranks) {
        for (const ParamShard& shard : rank.shards())
          for (const ShardPiece& piece : shard.pieces)
            if (piece.spec->sharding.dim == ShardDim::kNone || piece.spec->sharding.shards < layout.tensor)
              largest_replica = std::max(largest_replica, piece.count);
      }
      for (int d = 0; d < layout.data; ++d) {
        std::vector<std::int64_t> written;
        for (const test::LayoutRank& rank : ranks)
          if (rank.holder().data_rank == d) written.push_back(elements_written(rank));
        const auto [least, most] = std::ranges::minmax_element(written);
        EXPECT_LE(*most - *least, largest_replica) << "data rank " << d;
        EXPECT_GT(*least, 0);
      }
    }
  }
}

// With ddp every data rank has everything: an N-th of it each, whatever the padding at the end of a bucket.
TEST(ShardBoxes, DataReplicasWriteASliceEach) {
  const ModelConfig model = test::gpt2_config(131);
  const test::RankLayout layout{.data = 4, .sharded = false};
  std::vector<std::int64_t> written;
  std::int64_t all = 0, padding = 0;
  for (const test::LayoutRank& rank : test::all_ranks(model, layout)) {
    written.push_back(elements_written(rank));
    all += written.back();
    if (written.size() > 1) continue;
    for (std::size_t s = 0; s < rank.shards().size(); ++s)
      if (rank.shards()[s].pieces[0].spec->tie != TiedEnd::kHead)
        padding += std::ranges::count_if(rank.elements(s), [](const test::NamedElement& e) { return e.part == nullptr; });
  }
  for (const std::int64_t elements : written) EXPECT_LE(elements, (all + padding) / layout.data);
}

}  // namespace
}  // namespace trident

#include "parallel/zero/shard_spec.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <tuple>

#include "core/check.h"
#include "tests/support/param_elements.h"

namespace trident {
namespace {

PartSpec part(std::string tensor, Shape shape) {
  PartSpec p;
  p.tensor = std::move(tensor);
  p.tensor_shape = shape;
  p.rows = shape[0];
  return p;
}

TEST(ShardSpec, ReplicatedVectorIsWholeEverywhere) {
  const ParamSpec norm{.name = "norm", .parts = {part("norm.weight", {6})}};
  EXPECT_EQ(local_shape(norm, 4), (Shape{6}));
  const auto parts = local_parts(norm, 4, 3);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].box, (Box{0, 6, 0, 1}));
}

TEST(ShardSpec, ColumnsAreCutAcross) {
  ParamSpec down{.name = "down", .parts = {part("down_proj.weight", {4, 12})}};
  down.sharding = {ShardDim::kColumns, 3};
  EXPECT_EQ(local_shape(down, 3), (Shape{4, 4}));
  EXPECT_EQ(local_parts(down, 3, 2)[0].box, (Box{0, 4, 8, 12}));
}

// 10 tokens padded to 16 rows over 4 ranks: 4, 4, 2 and none; the local parameter has 4 rows everywhere.
TEST(ShardSpec, VocabularyPaddingLeavesEmptyBoxes) {
  ParamSpec embedding{.name = "embedding", .parts = {part("embed_tokens.weight", {10, 3})}};
  embedding.parts[0].padded_rows = 16;
  embedding.sharding = {ShardDim::kRows, 4};
  EXPECT_EQ(local_shape(embedding, 4), (Shape{4, 3}));
  EXPECT_EQ(local_parts(embedding, 4, 0)[0].box, (Box{0, 4, 0, 3}));
  EXPECT_EQ(local_parts(embedding, 4, 2)[0].box, (Box{8, 10, 0, 3}));
  EXPECT_EQ(local_parts(embedding, 4, 3)[0].box.rows(), 0);
  EXPECT_EQ(testing::logical_elements(embedding), 30);
}

// Llama's q, k, v with 4 query heads and 2 key/value heads of 2 rows, tp = 2.
TEST(ShardSpec, FusedPartsStackOnEachRank) {
  ParamSpec qkv{.name = "qkv", .parts = {part("q", {8, 5}), part("k", {4, 5}), part("v", {4, 5})}};
  qkv.sharding = {ShardDim::kRows, 2};
  EXPECT_EQ(local_shape(qkv, 2), (Shape{8, 5}));
  const auto parts = local_parts(qkv, 2, 1);
  EXPECT_EQ(parts[0].box, (Box{4, 8, 0, 5}));
  EXPECT_EQ(parts[1].box, (Box{2, 4, 0, 5}));
  EXPECT_EQ(parts[2].box, (Box{2, 4, 0, 5}));
  EXPECT_EQ(parts[0].local_row, 0);
  EXPECT_EQ(parts[1].local_row, 4);
  EXPECT_EQ(parts[2].local_row, 6);
  EXPECT_EQ(parts[2].part->tensor, "v");
}

// GPT-2's c_attn: q, k and v are row ranges of one logical tensor.
TEST(ShardSpec, PartsMayShareATensor) {
  PartSpec q = part("c_attn.weight", {12, 4}), k = q, v = q;
  q.rows = k.rows = v.rows = 4;
  k.row_begin = 4;
  v.row_begin = 8;
  ParamSpec qkv{.name = "qkv", .parts = {q, k, v}};
  qkv.sharding = {ShardDim::kRows, 2};
  const auto parts = local_parts(qkv, 2, 1);
  EXPECT_EQ(parts[0].box, (Box{2, 4, 0, 4}));
  EXPECT_EQ(parts[1].box, (Box{6, 8, 0, 4}));
  EXPECT_EQ(parts[2].box, (Box{10, 12, 0, 4}));
  EXPECT_EQ(testing::logical_elements(qkv), 48);
}

// 2 key/value heads of 3 rows over tp = 4: ranks 0, 1 hold head 0 and ranks 2, 3 hold head 1.
TEST(ShardSpec, FewerShardsThanRanksReplicate) {
  ParamSpec kv{.name = "kv", .parts = {part("k", {6, 2})}};
  kv.sharding = {ShardDim::kRows, 2};
  EXPECT_EQ(local_shape(kv, 4), (Shape{3, 2}));
  for (const int rank : {0, 1}) EXPECT_EQ(local_parts(kv, 4, rank)[0].box, (Box{0, 3, 0, 2}));
  for (const int rank : {2, 3}) EXPECT_EQ(local_parts(kv, 4, rank)[0].box, (Box{3, 6, 0, 2}));
}

// Every element of every logical tensor is held by exactly tp / shards ranks, and local rows never overlap.
TEST(ShardSpec, BoxesCoverEachElementEquallyOften) {
  for (const ShardDim dim : {ShardDim::kNone, ShardDim::kRows, ShardDim::kColumns})
    for (const int degree : {1, 2, 4})
      for (int shards = 1; shards <= degree; shards *= 2) {
        if (dim == ShardDim::kNone && shards > 1) continue;
        ParamSpec spec{.name = "p", .parts = {part("a", {8, 8}), part("b", {7, 8})}};
        spec.parts[1].padded_rows = 12;
        spec.sharding = {dim, shards};
        std::multiset<std::tuple<std::string, std::int64_t, std::int64_t>> held;
        for (int rank = 0; rank < degree; ++rank) {
          std::int64_t next_row = 0;
          for (const LocalPart& p : local_parts(spec, degree, rank)) {
            EXPECT_GE(p.local_row, next_row);
            next_row = p.local_row + p.box.rows();
            for (std::int64_t r = p.box.row_begin; r < p.box.row_end; ++r)
              for (std::int64_t c = p.box.column_begin; c < p.box.column_end; ++c) held.emplace(p.part->tensor, r, c);
          }
          EXPECT_LE(next_row, local_shape(spec, degree)[0]);
        }
        const auto copies = static_cast<std::size_t>(dim == ShardDim::kNone ? degree : degree / shards);
        EXPECT_EQ(held.size(), copies * static_cast<std::size_t>(testing::logical_elements(spec)));
        for (const auto& element : held) EXPECT_EQ(held.count(element), copies);
      }
}

TEST(ShardSpec, RefusesWhatDoesNotDivide) {
  ParamSpec spec{.name = "p", .parts = {part("a", {6, 6})}};
  spec.sharding = {ShardDim::kRows, 4};
  EXPECT_THROW(local_shape(spec, 4), InternalError);
  spec.sharding = {ShardDim::kColumns, 4};
  EXPECT_THROW(local_shape(spec, 4), InternalError);
  spec.sharding = {ShardDim::kRows, 2};
  EXPECT_THROW(local_shape(spec, 3), InternalError);
  EXPECT_THROW(local_parts(spec, 2, 2), InternalError);
  spec.sharding = {ShardDim::kNone, 2};
  EXPECT_THROW(local_shape(spec, 2), InternalError);
  spec.sharding = {};
  spec.parts.push_back(part("b", {6, 5}));
  EXPECT_THROW(local_shape(spec, 1), InternalError);
  EXPECT_THROW(local_shape({.name = "none", .parts = {}}, 1), InternalError);
  ParamSpec vector{.name = "v", .parts = {part("v", {6})}};
  vector.sharding = {ShardDim::kColumns, 2};
  EXPECT_THROW(local_shape(vector, 2), InternalError);
}

}  // namespace
}  // namespace trident

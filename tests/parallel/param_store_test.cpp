// Tests what a store asks of the communicators: seen on a device that only counts.
#include "parallel/zero/param_store.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/bf16.h"
#include "core/check.h"
#include "core/f16.h"
#include "device/dry/dry_device.h"
#include "parallel/communicator/dry_communicator.h"
#include "parallel/communicator/rank_order_sum.h"
#include "parallel/zero/shard_spec.h"
#include "tests/support/param_elements.h"

namespace trident {
namespace {

UnitParams unit_of(int matrices) {
  UnitParams unit{0, {}};
  for (int i = 0; i < matrices; ++i) {
    PartSpec part;
    part.tensor = "w" + std::to_string(i), part.tensor_shape = {64, 64}, part.rows = 64;
    ParamSpec spec{.name = part.tensor, .weight_decay = true};
    spec.parts.push_back(part);
    unit.specs.push_back(spec);
  }
  return unit;
}

struct Calls {
  std::int64_t calls = 0, groups = 0;
  bool operator==(const Calls&) const = default;
};
void PrintTo(const Calls& c, std::ostream* out) { *out << c.calls << " calls in " << c.groups << " groups"; }

struct Issued {
  Calls gather, reduce;
};

// Makes a unit of so many matrices with a bucket for each, among two data ranks.
Issued issued(ZeroPreset preset, int matrices) {
  DryDevice device(nullptr);
  ParallelContext context(ProcessGrid({.data = 2}), device, make_dry_world(0, 2), {}, CollectiveChecks::kOn);
  ArenaPlan plan;
  ParamStore store({.policy = policy_of(preset), .compute = DType::kBF16, .bucket_bytes = 1}, {unit_of(matrices)}, context, plan);
  Arena arena(plan, device.allocate(plan.total_bytes(), "arena"));
  store.bind(arena);
  store.begin_backward(0, 0, Accumulate::kNo);
  context.reset_bytes_sent();
  store.gather(0, 0);
  store.reduce(0, true);
  const auto of = [](const CommCounters& counters, CommOperation operation) {
    return Calls{counters.calls[static_cast<std::size_t>(operation)], counters.groups};
  };
  const bool sums_all = preset == ZeroPreset::kDdp;
  return {of(context.data_gather().counters(), CommOperation::kAllGather),
          of(context.data_reduce().counters(), sums_all ? CommOperation::kAllReduce : CommOperation::kReduceScatter)};
}

TEST(ParamStore, IssuesTheBucketsOfAUnitAsOneGroup) {
  for (const ZeroPreset preset : {ZeroPreset::kDdp, ZeroPreset::kZero1}) {
    const Issued three = issued(preset, 3);
    EXPECT_EQ(three.gather, (Calls{3, 1}));
    EXPECT_EQ(three.reduce, (Calls{3, 1}));
  }
  // One needs no group; more than transports hold are several.
  EXPECT_EQ(issued(ZeroPreset::kZero1, 1).gather, (Calls{1, 0}));
  EXPECT_EQ(issued(ZeroPreset::kZero1, 300).gather, (Calls{300, 3}));
  EXPECT_EQ(issued(ZeroPreset::kZero1, 257).reduce, (Calls{257, 2}));
}

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

template <class T> std::vector<T> reduce(ReduceOp op, const std::vector<std::vector<T>>& inputs) {
  std::vector<const std::byte*> sources;
  for (const auto& input : inputs) sources.push_back(reinterpret_cast<const std::byte*>(input.data()));
  std::vector<T> out(inputs[0].size()), second(out.size());
  const std::vector<std::byte*> outs = {reinterpret_cast<std::byte*>(out.data()), reinterpret_cast<std::byte*>(second.data())};
  reduce_in_rank_order(dtype_of<T>, op, outs, sources, static_cast<std::int64_t>(out.size()));
  EXPECT_EQ(std::memcmp(out.data(), second.data(), out.size() * sizeof(T)), 0);
  return out;
}

// (1 + 2^-24) + 2^-24 differs from 1 + (2^-24 + 2^-24): the left association is the specified one.
TEST(RankOrderSum, AddsFromLeftToRight) {
  const float half_ulp = std::ldexp(1.0f, -24);
  EXPECT_EQ(reduce<float>(ReduceOp::kSum, {{1.0f, half_ulp}, {half_ulp, half_ulp}, {half_ulp, 1.0f}}),
            (std::vector<float>{1.0f, 1.0f + std::ldexp(1.0f, -23)}));
}

// 256 + 1 + 1 in bf16 steps would stay 256; accumulated in f32 and rounded once it is 258.
TEST(RankOrderSum, RoundsBf16Once) {
  const auto out = reduce<bf16>(ReduceOp::kSum, {{to_bf16(256)}, {to_bf16(1)}, {to_bf16(1)}});
  EXPECT_EQ(to_float(out[0]), 258.0f);
}

// The same with f16: 2048 + 1 + 1; and what exceeds its range is infinite, unless it comes back before the rounding.
TEST(RankOrderSum, RoundsF16Once) {
  const auto out = reduce<f16>(ReduceOp::kSum, {{to_f16(2048), to_f16(65504), to_f16(65504)},
                                                {to_f16(1), to_f16(65504), to_f16(65504)},
                                                {to_f16(1), to_f16(-65504), to_f16(1)}});
  EXPECT_EQ(to_float(out[0]), 2050.0f);
  EXPECT_EQ(to_float(out[1]), 65504.0f);
  EXPECT_EQ(to_float(out[2]), std::numeric_limits<float>::infinity());
}

TEST(RankOrderSum, KeepsTheSignOfZeroAndIntegersExact) {
  EXPECT_TRUE(std::signbit(reduce<float>(ReduceOp::kSum, {{-0.0f}, {-0.0f}})[0]));
  const std::int64_t big = (std::int64_t{1} << 53) + 1;
  EXPECT_EQ(reduce<std::int64_t>(ReduceOp::kSum, {{big}, {2}})[0], big + 2);
  EXPECT_EQ(reduce<std::int32_t>(ReduceOp::kSum, {{std::numeric_limits<std::int32_t>::max()}, {1}})[0],
            std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(reduce<double>(ReduceOp::kSum, {{1.0}, {std::ldexp(1.0, -52)}})[0], 1.0 + std::ldexp(1.0, -52));
}

TEST(RankOrderSum, NotANumberSurvivesFromEveryRank) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax})
    for (std::size_t r = 0; r < 3; ++r) {
      std::vector<std::vector<float>> inputs(3, {1.0f});
      inputs[r][0] = nan;
      EXPECT_TRUE(std::isnan(reduce<float>(op, inputs)[0]));
    }
  EXPECT_EQ(reduce<float>(ReduceOp::kMax, {{-2.0f}, {-1.0f}, {-3.0f}})[0], -1.0f);
}

TEST(RankOrderSum, RefusesTypesWithoutArithmetic) {
  EXPECT_THROW(reduce<std::uint8_t>(ReduceOp::kSum, {{1}, {2}}), InternalError);
  EXPECT_THROW(reduce<std::uint16_t>(ReduceOp::kMax, {{1}, {2}}), InternalError);
}

// Shares cover every element once, in order, also far beyond 2^31 elements.
TEST(ShareOf, CutsAnyCount) {
  const std::int64_t huge = (std::int64_t{1} << 33) + 12345;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64})
    for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, std::int64_t{17}, std::int64_t{4096}, huge})
      for (const int ranks : {1, 2, 3, 8, 32}) {
        std::int64_t next = 0;
        for (int r = 0; r < ranks; ++r) {
          const IndexRange share = share_of(count, dtype, ranks, r);
          EXPECT_EQ(share.begin, next);
          EXPECT_GE(share.size(), 0);
          EXPECT_TRUE(share.size() == 0 || share.begin * size_of(dtype) % 64 == 0);
          next = share.end;
        }
        EXPECT_EQ(next, count);
      }
}

}  // namespace
}  // namespace trident

#include "parallel/communicator/rank_order_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "core/bf16.h"
#include "core/f16.h"

namespace trident {
namespace {

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
          const ElementRange share = share_of(count, dtype, ranks, r);
          EXPECT_EQ(share.begin, next);
          EXPECT_GE(share.count(), 0);
          EXPECT_TRUE(share.count() == 0 || share.begin * size_of(dtype) % 64 == 0);
          next = share.end;
        }
        EXPECT_EQ(next, count);
      }
}

}  // namespace
}  // namespace trident

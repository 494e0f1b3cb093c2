// An element's update does not depend on which call of the update takes it.
#include "device/operations.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "core/philox.h"
#include "device/cpu/cpu_device.h"
#include "device/ops.h"
#include "optim/sharded_optimizer.h"
#include "optim/step_statistics.h"
#include "parallel/grid/parallel_context.h"
#include "parallel/shared_memory/thread_world.h"
#include "tests/support/error_text.h"
#include "tests/support/param_elements.h"
#include "tests/support/stochastic_rounding.h"

namespace trident {
namespace {

struct Pieces {
  ParamSpec matrix, vector;
  std::vector<ShardPiece> list;

  Pieces() {
    matrix.weight_decay = true;
    vector.weight_decay = false;
  }
  Pieces& add(bool decays, std::int64_t begin, std::int64_t count) {
    ShardPiece piece;
    piece.spec = decays ? &matrix : &vector;
    piece.shard_begin = begin;
    piece.count = count;
    list.push_back(piece);
    return *this;
  }
};

TEST(UpdateStretches, AreNeighboursWithEqualDecay) {
  Pieces pieces;
  EXPECT_TRUE(update_stretches(pieces.list).empty());
  pieces.add(false, 0, 64).add(false, 64, 64).add(true, 128, 640).add(true, 768, 64).add(false, 832, 64);
  EXPECT_EQ(update_stretches(pieces.list), (std::vector<UpdateStretch>{{0, 128, false}, {128, 704, true}, {832, 64, false}}));
}

TEST(UpdateStretches, LeaveGapsOut) {
  Pieces pieces;
  pieces.add(true, 0, 50).add(true, 64, 64).add(true, 128, 10);
  EXPECT_EQ(update_stretches(pieces.list), (std::vector<UpdateStretch>{{0, 50, true}, {64, 74, true}}));
}

TEST(UpdateStretches, HaveTheBitsOfTheirPieces) {
  Pieces pieces;
  pieces.add(true, 0, 64).add(true, 64, 128).add(true, 192, 77).add(false, 269, 13).add(false, 282, 100);
  constexpr std::int64_t kElements = 382;
  Doorbell doorbell;
  CpuDevice device(doorbell, CpuDeviceOptions{});
  const auto update = [&](std::span<const UpdateStretch> stretches, DType dtype) {
    Buffer memory = device.allocate(kElements * 20, "state");
    std::array<TensorView, 4> f32;  // master, moments, gradient
    for (std::size_t i = 0; i < f32.size(); ++i) {
      f32[i] = TensorView(memory.data() + static_cast<std::int64_t>(i) * kElements * 4, DType::kF32, Shape{kElements});
      const PhiloxKey key = random_key(3, RandomPurpose::kTest, i);
      for (std::int64_t e = 0; e < kElements; ++e) f32[i].as<float>()[e] = uniform_at(key, static_cast<std::uint64_t>(e));
    }
    const TensorView param = dtype == DType::kF32 ? f32[0] : TensorView(memory.data() + kElements * 16, dtype, Shape{kElements});
    for (const UpdateStretch& s : stretches) {
      const UpdateNumbers numbers{.lr = 3e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = s.decays ? 0.1f : 0.0f};
      const auto range = [&](TensorView view) { return view.range(s.begin, s.count); };
      const TensorView moments[] = {range(f32[1]), range(f32[2])};
      device.ops().run(device.compute_stream(), op::Update{UpdateRule::kAdamW, range(param), range(f32[0]), moments, range(f32[3]),
                                                           numbers, nullptr});
    }
    return std::vector<std::byte>(memory.data(), memory.data() + kElements * 20);
  };
  std::vector<UpdateStretch> one_by_one;
  for (const ShardPiece& piece : pieces.list) one_by_one.push_back({piece.shard_begin, piece.count, piece.spec->weight_decay});
  const std::vector<UpdateStretch> stretches = update_stretches(pieces.list);
  ASSERT_EQ(stretches.size(), 2u);
  for (const DType dtype : {DType::kF32, DType::kBF16})
    EXPECT_EQ(update(stretches, dtype), update(one_by_one, dtype)) << to_string(dtype);
}

PartSpec part(std::string tensor, Shape shape, std::int64_t row_begin, std::int64_t rows) {
  PartSpec p;
  p.tensor = std::move(tensor);
  p.tensor_shape = shape;
  p.row_begin = row_begin;
  p.rows = rows;
  return p;
}
ParamSpec parameter(std::vector<PartSpec> parts, TensorSharding sharding) {
  ParamSpec spec;
  spec.name = "parameter";
  spec.parts = std::move(parts);
  spec.sharding = sharding;
  return spec;
}

// Every element of every piece: once, in order, under its tensor's key, as the element that initial weights are drawn for.
TEST(RoundedStretches, NameTheElementsOfTheTensor) {
  PartSpec padded = part("embedding", {21, 5}, 0, 21);
  padded.padded_rows = 32;
  const std::vector<ParamSpec> specs = {
      parameter({part("norm", {130}, 0, 130)}, {}),
      parameter({part("matrix", {12, 10}, 0, 12)}, {ShardDim::kRows, 4}),
      parameter({part("matrix", {9, 12}, 0, 9)}, {ShardDim::kColumns, 4}),
      parameter({padded}, {ShardDim::kRows, 4}),
      parameter({part("q", {16, 6}, 0, 16), part("k", {8, 6}, 0, 8), part("v", {8, 6}, 0, 8)}, {ShardDim::kRows, 2}),
      parameter({part("c_attn", {24, 6}, 0, 8), part("c_attn", {24, 6}, 8, 8), part("c_attn", {24, 6}, 16, 8)},
                {ShardDim::kRows, 4}),
      parameter({part("bias", {24}, 0, 8), part("bias", {24}, 8, 8), part("bias", {24}, 16, 8)}, {ShardDim::kRows, 4}),
  };
  constexpr int kDegree = 4;
  constexpr std::uint64_t kSeed = 5;
  for (const ParamSpec& spec : specs)
    for (int rank = 0; rank < kDegree; ++rank) {
      SCOPED_TRACE(spec.parts[0].tensor + " on rank " + std::to_string(rank));
      const testing::ElementMap map(spec, kDegree, rank);
      const std::int64_t elements = local_shape(spec, kDegree).num_elements();
      for (const std::int64_t length : {elements, std::int64_t{7}, std::int64_t{1}}) {
        std::vector<ShardPiece> pieces;
        for (std::int64_t begin = 0; begin < elements; begin += length)
          pieces.push_back({&spec, begin, 1000 + begin, std::min(length, elements - begin), true});
        std::int64_t next = 0;
        for (const auto& [stretch, rounding] : rounded_stretches(pieces, kDegree, rank, kSeed)) {
          ASSERT_EQ(stretch.begin, 1000 + next);
          EXPECT_EQ(stretch.decays, spec.weight_decay);
          for (std::int64_t i = 0; i < stretch.count; ++i, ++next) {
            const auto element = map(next);
            ASSERT_EQ(element.has_value(), rounding.has_value()) << next;
            if (!element) continue;
            EXPECT_EQ(std::to_array(rounding->key), random_key(kSeed, RandomPurpose::kRounding, element->part->tensor));
            ASSERT_EQ(testing::tensor_element(*rounding, i), static_cast<std::uint64_t>(element->index)) << next;
            EXPECT_LT(rounding->first_column, rounding->columns);
            EXPECT_LE(rounding->columns, rounding->stride);
          }
        }
        EXPECT_EQ(next, elements);
      }
    }
}

TEST(RoundedStretches, AreAsFewAsCanBe) {
  const auto count = [](const ParamSpec& spec, int degree, int rank) {
    const ShardPiece piece{&spec, 0, 0, local_shape(spec, degree).num_elements(), true};
    return rounded_stretches(std::span(&piece, 1), degree, rank, 1).size();
  };
  const ParamSpec fused = parameter({part("c_attn", {24, 6}, 0, 8), part("c_attn", {24, 6}, 8, 8), part("c_attn", {24, 6}, 16, 8)},
                                    {ShardDim::kRows, 1});
  EXPECT_EQ(count(fused, 1, 0), 1u);
  ParamSpec halves = fused;
  halves.sharding.shards = 2;
  EXPECT_EQ(count(halves, 2, 1), 3u);
  EXPECT_EQ(count(parameter({part("q", {4, 6}, 0, 4), part("k", {4, 6}, 0, 4)}, {}), 1, 0), 2u) << "a key each";
  EXPECT_EQ(count(parameter({part("down", {9, 12}, 0, 9)}, {ShardDim::kColumns, 4}), 4, 2), 1u) << "all rows in one call";
}

// Tests what the step's statistics carry beside sums.

struct Statistics {
  Statistics(ParallelContext& context, Device& device)
      : reducer(context, plan), arena(plan, device.allocate(plan.total_bytes(), "statistics")) {
    reducer.bind(arena);
  }
  ArenaPlan plan;
  StatisticsReducer reducer;
  Arena arena;
};

// A group of a grid whose ranks must have called the same.
struct Group {
  const char* name;
  ParallelDegrees degrees;
  Communicator& (*of)(ParallelContext&);
  const char* said;  // the axis that the message names
};
void PrintTo(const Group& group, std::ostream* out) { *out << group.name; }

const SubAxis kHalves{Axis::kTensor, 2, 1};
Communicator& of_tensor(ParallelContext& c) { return c.tensor(); }
Communicator& of_halves(ParallelContext& c) { return c.partial(kHalves); }
Communicator& of_reductions(ParallelContext& c) { return c.data_reduce(); }
Communicator& of_gathers(ParallelContext& c) { return c.data_gather(); }

class StepStatisticsOf : public ::testing::TestWithParam<Group> {};

// Ranks that do not compare each call: one takes a maximum where the others add, of as many elements, and nothing fails. Ranks of
// other groups along the axis called what they should.
TEST_P(StepStatisticsOf, FindRanksThatCalledSomethingElse) {
  const Group& group = GetParam();
  const ProcessGrid grid(group.degrees);
  for (const int different : {-1, 0, grid.world_size() - 1}) {
    const std::string error = error_of<CommunicationError>([&] {
      ThreadWorld world(grid.world_size(), 60.0);
      run_thread_ranks(world, [&](int rank) {
        CpuDevice device(world.doorbell(rank), CpuDeviceOptions{});
        ParallelContext context(grid, device, world.communicator(rank, device.progress()), std::vector{kHalves},
                                CollectiveChecks::kOn);
        Statistics statistics(context, device);
        Communicator& called = group.of(context);
        called.set_checks(CollectiveChecks::kOff);
        float x = 1;
        called.all_reduce(context.compute_stream(), {&x, DType::kF32, {1}}, rank == different ? ReduceOp::kMax : ReduceOp::kSum);
        statistics.reducer.reduce({}, {});
      });
    });
    if (different < 0) EXPECT_EQ(error, "no error");
    else EXPECT_TRUE(contains(error, "called different collective operations") && error.starts_with(group.said)) << error;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Groups, StepStatisticsOf,
    ::testing::Values(Group{"Tensor", {.tensor = 4}, of_tensor, "tp: rank "},
                    Group{"TensorOfMany", {.tensor = 2, .data = 3, .pipeline = 2}, of_tensor, "tp: rank "},
                    Group{"HalvesOfTensor", {.tensor = 4}, of_halves, "tp: rank "},
                    Group{"Reductions", {.tensor = 2, .data = 5}, of_reductions, "dp: rank "},
                    Group{"Gathers", {.tensor = 2, .data = 3, .pipeline = 2}, of_gathers, "dp: rank "}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace trident

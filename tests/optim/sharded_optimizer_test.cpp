// Which elements one call of the update takes, and that it does not matter to them.
#include "optim/sharded_optimizer.h"

#include <gtest/gtest.h>

#include "core/philox.h"
#include "device/cpu/cpu_device.h"

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
      AdamWParams params{.lr = 3e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = s.decays ? 0.1f : 0.0f};
      const auto range = [&](TensorView view) { return view.range(s.begin, s.count); };
      device.ops().adamw(device.compute_stream(), range(param), range(f32[0]), range(f32[1]), range(f32[2]), range(f32[3]), params);
    }
    return std::vector<std::byte>(memory.data(), memory.data() + kElements * 20);
  };
  std::vector<UpdateStretch> one_by_one;
  for (const ShardPiece& piece : pieces.list) one_by_one.push_back({piece.shard_begin, piece.count, piece.spec->weight_decay});
  const std::vector<UpdateStretch> stretches = update_stretches(pieces.list);
  ASSERT_EQ(stretches.size(), 2u);
  for (const DType dtype : {DType::kF32, DType::kBF16}) EXPECT_EQ(update(stretches, dtype), update(one_by_one, dtype)) << to_string(dtype);
}

}  // namespace
}  // namespace trident

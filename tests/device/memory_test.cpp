// Buffers, arena plans, scratch, and the memory report.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include "core/check.h"
#include "device/arena.h"
#include "device/buffer.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

TEST(Buffer, IsZeroFilledAndAligned) {
  for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{5000}, std::int64_t{9} << 20}) {
    const Buffer buffer = allocate_host(bytes, "test");
    EXPECT_EQ(buffer.num_bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096, 0u);
    EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + bytes, [](std::byte b) { return b == std::byte{0}; }));
    buffer.data()[0] = buffer.data()[bytes - 1] = std::byte{7};
  }
}

TEST(Buffer, LargeOnesStartOnAHugePage) {
  const Buffer buffer = allocate_host((std::int64_t{4} << 20) + 12345, "large");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % (2u << 20), 0u);
}

TEST(Buffer, OfZeroBytesIsEmpty) {
  const Buffer buffer = allocate_host(0, "nothing");
  EXPECT_EQ(buffer.num_bytes(), 0);
  EXPECT_EQ(buffer.data(), nullptr);
}

TEST(Buffer, IsReleasedExactlyOnce) {
  int released = 0;
  char memory[8];
  {
    Buffer a(memory, 8, MemoryKind::kPinned, [&](void* data, std::int64_t bytes) {
      EXPECT_EQ(data, memory);
      EXPECT_EQ(bytes, 8);
      ++released;
    });
    Buffer b = std::move(a);
    EXPECT_EQ(a.data(), nullptr);  // NOLINT(bugprone-use-after-move): that is the question
    EXPECT_EQ(b.where(), MemoryKind::kPinned);
    Buffer c;
    c = std::move(b);
    EXPECT_EQ(c.num_bytes(), 8);
    EXPECT_EQ(released, 0);
    c = Buffer();
    EXPECT_EQ(released, 1);
  }
  EXPECT_EQ(released, 1);
}

TEST(Buffer, RefusedMemoryNamesWhatNeedsIt) {
  const std::string message = error_of<std::exception>([] { allocate_host(std::int64_t{1} << 55, "activations"); });
  expect_parts(message, {"activations needs", "more ranks"});
}

TEST(ArenaPlan, BooksAlignedRangesThatDoNotOverlap) {
  ArenaPlan plan;
  const ArenaSlot a = plan.book("a", MemoryUse::kParameters, 100);
  const ArenaSlot empty = plan.book("empty", MemoryUse::kData, 0);
  const ArenaSlot b = plan.book("b", MemoryUse::kGradients, 257);
  EXPECT_EQ(a.offset, 0);
  EXPECT_EQ(empty.bytes, 0);
  EXPECT_EQ(b.offset, 256);
  EXPECT_EQ(plan.total_bytes(), 256 + 512);
  EXPECT_EQ(plan.total_bytes(MemoryUse::kParameters), 256);
  EXPECT_EQ(plan.total_bytes(MemoryUse::kGradients), 512);
  EXPECT_EQ(plan.total_bytes(MemoryUse::kOptimizer), 0);
}

TEST(Arena, GrantsWhatWasBookedAndReachesThePlanExactly) {
  ArenaPlan plan;
  const ArenaSlot a = plan.book("a", MemoryUse::kParameters, 24);
  const ArenaSlot b = plan.book("b", MemoryUse::kActivations, 1000);
  Arena arena(plan, allocate_host(plan.total_bytes(), "arena"));
  EXPECT_EQ(arena.high_water(), 0);
  const TensorView va = arena.grant(a, DType::kF32, {2, 3});
  EXPECT_EQ(arena.high_water(), 256);
  const TensorView vb = arena.grant(b, DType::kBF16, {500});
  EXPECT_EQ(vb.data() - va.data(), b.offset);
  EXPECT_EQ(arena.high_water(), arena.planned_bytes());
  EXPECT_EQ(arena.planned_bytes(), plan.total_bytes());
}

TEST(Arena, RefusesWhatWasNotBooked) {
  ArenaPlan plan;
  const ArenaSlot a = plan.book("a", MemoryUse::kParameters, 16);
  EXPECT_THROW(Arena(plan, allocate_host(8, "small")), InternalError);
  Arena arena(plan, allocate_host(plan.total_bytes(), "arena"));
  EXPECT_THROW(arena.grant(a, DType::kF32, {5}), InternalError);
  EXPECT_THROW(arena.grant({256, 16}, DType::kF32, {4}), InternalError);
  EXPECT_THROW(arena.grant({-256, 16}, DType::kF32, {4}), InternalError);
  EXPECT_NO_THROW(arena.grant(a, DType::kF32, {4}));
}

TEST(Arena, NamesItsLargestEntries) {
  ArenaPlan plan;
  EXPECT_EQ(largest_entries(plan), "nothing in it");
  plan.book("small", MemoryUse::kData, 1'000'000);
  plan.book("logits", MemoryUse::kActivations, 7'500'000);
  for (const char* name : {"a", "b", "c"}) plan.book(name, MemoryUse::kParameters, 3'000'000);
  EXPECT_EQ(largest_entries(plan), "most of it for logits 7.5 MB, a 3.0 MB, b 3.0 MB, c 3.0 MB");
  for (int unit = 1; unit <= 12; ++unit) plan.book(fmt::format("unit {} gradients", unit), MemoryUse::kGradients, 7'500'000);
  plan.book("unit 13 gradients", MemoryUse::kGradients, 5'000'000);
  EXPECT_EQ(largest_entries(plan),
            "most of it for logits 7.5 MB, unit 1 gradients 7.5 MB and 11 like it, unit 13 gradients 5.0 MB, a 3.0 MB");
}

TEST(ScratchPlan, ReleasesLastInFirstOutAndKeepsTheHighWaterMark) {
  ScratchPlan plan;
  const ArenaSlot outer = plan.take(10);
  ArenaSlot first, second;
  {
    const ScratchScope scope(plan);
    first = plan.take(1000);
    {
      const ScratchScope inner(plan);
      plan.take(300);
    }
    plan.take(1);
  }
  {
    const ScratchScope scope(plan);
    second = plan.take(20);
  }
  EXPECT_EQ(outer.offset, 0);
  EXPECT_EQ(first.offset, 256);
  EXPECT_EQ(second.offset, first.offset);
  EXPECT_EQ(plan.high_water(), 256 + 1024 + 512);
  EXPECT_EQ(plan.mark(), 256);
}

TEST(MemoryReport, SumsByUseAndListsTheLargest) {
  ArenaPlan plan;
  plan.book("embedding", MemoryUse::kParameters, 3'000'000);
  plan.book("block 0", MemoryUse::kActivations, 1'000'000);
  for (int i = 0; i < 20; ++i) plan.book("tiny", MemoryUse::kData, 1);
  const std::string report = memory_report(plan);
  EXPECT_EQ(report.find("4.0 MB: parameters 3.0 MB, activations 1.0 MB, data 0.0 MB\n"), 0u) << report;
  EXPECT_LT(report.find("embedding"), report.find("block 0")) << report;
  EXPECT_EQ(std::count(report.begin(), report.end(), '\n'), 9) << report;
}

}  // namespace
}  // namespace trident

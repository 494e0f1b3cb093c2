// What a store asks of the communicators: seen on a device that only counts.
#include "parallel/zero/param_store.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "device/dry/dry_device.h"
#include "parallel/communicator/dry_communicator.h"

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

// Of a unit of so many matrices with a bucket for each, among two data ranks.
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

}  // namespace
}  // namespace trident

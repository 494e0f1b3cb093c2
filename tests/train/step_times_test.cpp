// Where the time of a step goes: sums by kind, over ranks, and the words about them.
#include "train/log/step_times.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>

#include "core/clock.h"
#include "core/json_reader.h"
#include "device/cpu/cpu_device.h"
#include "parallel/communicator/communicator.h"
#include "parallel/shared_memory/thread_world.h"
#include "train/log/run_log.h"
#include "train/run/between_steps.h"
#include "train/run/run_report.h"
#include "train/run/step_tracer.h"

namespace trident {
namespace {

using Kind = InstructionKind;

StepProgram program_of(const std::vector<Kind>& kinds) {
  StepProgram program;
  for (const Kind kind : kinds) program.instructions.push_back({.kind = kind});
  return program;
}

double of(const std::array<double, kNumStepParts>& values, StepPart part) { return values[static_cast<std::size_t>(part)]; }

TEST(StepTimes, SumsByKind) {
  const StepProgram program = program_of({Kind::kRecvActivation, Kind::kForward, Kind::kForward, Kind::kBackward,
                                          Kind::kReduceGradients, Kind::kGradNorm, Kind::kOptimizerStep, Kind::kGather});
  std::vector<InstructionTimes> times;
  for (int i = 0; i < 8; ++i) times.push_back({10.0 + i, 11.0 + i, 0.5, 0.25});
  StepTimes step = step_times(program, times, {8, 10, 1.5, 0.5}, 12.0);
  EXPECT_EQ(of(step.wall, StepPart::kForward), 2);
  EXPECT_EQ(of(step.cpu, StepPart::kForward), 1);
  EXPECT_EQ(of(step.waited, StepPart::kForward), 0.5);
  for (const StepPart part :
       {StepPart::kMessages, StepPart::kBackward, StepPart::kReduce, StepPart::kNorm, StepPart::kOptimizer, StepPart::kGather})
    EXPECT_EQ(of(step.wall, part), 1) << to_string(part);
  EXPECT_EQ(of(step.wall, StepPart::kData), 2);
  EXPECT_EQ(of(step.waited, StepPart::kData), 0.5);
  EXPECT_EQ(step.waiting(), 2 + 0.5);
  EXPECT_EQ(step.computing(), 4 + 1.5);
  EXPECT_EQ(step.rest(), 2);
  step += step_times(program, times, {}, 8.0);
  EXPECT_EQ(step.mean().step, 10);
  EXPECT_EQ(of(step.mean().wall, StepPart::kData), 1);
  EXPECT_EQ(step.mean().steps, 1);
  EXPECT_EQ(StepTimes().mean().step, 0);  // nothing measured
}

TEST(StepTimes, EveryKindOfInstructionHasItsPart) {
  EXPECT_EQ(part_of(Kind::kBackwardInput), StepPart::kBackward);
  EXPECT_EQ(part_of(Kind::kBackwardWeight), StepPart::kBackward);
  for (const Kind kind : {Kind::kSendActivation, Kind::kRecvActivation, Kind::kSendGradient, Kind::kRecvGradient})
    EXPECT_EQ(part_of(kind), StepPart::kMessages);
  EXPECT_EQ(part_of(Kind::kFree), StepPart::kGather);
  EXPECT_EQ(part_of(Kind::kTieExchange), StepPart::kReduce);
}

// Ranks as threads, each with a device; `body` gets its world.
void on_devices(int ranks, const std::function<void(Communicator& world, Device& device)>& body) {
  ThreadWorld world(ranks, /*timeout_seconds=*/60.0);
  run_thread_ranks(world, [&](int rank) {
    CpuDevice device(world.doorbell(rank), CpuDeviceOptions{});
    const std::unique_ptr<Communicator> communicator = world.communicator(rank, device.progress());
    body(*communicator, device);
    communicator->barrier();
  });
}

TEST(StepTimes, RanksAreSummedUp) {
  on_devices(3, [](Communicator& world, Device& device) {
    StepTimes mine;
    mine.steps = 2;
    mine.step = 10.0 + world.rank();
    mine.waited[0] = 2.0 * world.rank();
    mine.waited_for[2] = 6;
    const StepTimes mean = sum_over_ranks(mine, world, device.compute_stream()).mean();
    EXPECT_EQ(mean.step, 5.5);
    EXPECT_EQ(mean.waited[0], 1);
    EXPECT_EQ(mean.waited_for[2], 3);
    const Extremes busy = busy_seconds(mine, world, device.compute_stream());  // 5, 4.5, 4
    EXPECT_EQ(busy.largest, 0);
    EXPECT_EQ(busy.max, 5);
    EXPECT_EQ(busy.min, 4);
    EXPECT_EQ(busy.mean, 4.5);
  });
}

TEST(TimingLine, HasItsKeys) {
  StepTimes mean;
  mean.steps = 1;
  mean.step = 0.5;
  mean.wall[0] = 0.25;
  mean.waited_for[1] = 0.125;
  const JsonValue line = parse_json(timing_line(20, 10, mean, {0.1, 0.2, 0.3, 7}), "line");
  std::vector<std::string> keys;
  for (const JsonMember& member : line.members()) keys.push_back(member.key);
  EXPECT_EQ(keys, (std::vector<std::string>{"step", "steps", "step_ms", "ms", "rest_ms", "cpu_ms", "waited_ms", "waited_for_ms",
                                            "busy_ms"}));
  EXPECT_EQ(line.find("step")->as_integer(), 20);
  EXPECT_EQ(line.find("step_ms")->as_number(), 500);
  EXPECT_EQ(line.find("rest_ms")->as_number(), 250);
  EXPECT_EQ(line.find("ms")->find("forward")->as_number(), 250);
  EXPECT_EQ(line.find("ms")->members().size(), kNumStepParts);
  EXPECT_EQ(line.find("waited_for_ms")->find("pp")->as_number(), 125);
  EXPECT_EQ(line.find("busy_ms")->find("slowest_rank")->as_integer(), 7);
  EXPECT_EQ(parse_json(timing_line(20, 10, mean, {}, 0.5), "line").find("save_ms")->as_number(), 500);
}

TEST(GatherTexts, EveryRanksTextInOrderUpATree) {
  for (const int ranks : {1, 2, 5, 8, 13}) {
    on_devices(ranks, [&](Communicator& world, Device& device) {
      const auto counted = world.split(all_ranks(world), "counted");
      const auto text_of = [](int rank) {
        return rank == 3 ? std::string() : std::string(static_cast<std::size_t>(900 * rank + 1), static_cast<char>('a' + rank));
      };
      const std::vector<std::string> texts = gather_texts(*counted, device.host_stream(), text_of(world.rank()));
      const auto& calls = counted->counters().calls;
      EXPECT_LE(calls[static_cast<std::size_t>(CommOperation::kSend)], 2);
      EXPECT_LE(calls[static_cast<std::size_t>(CommOperation::kRecv)], 2 * 4);
      std::vector<std::string> expected;
      for (int rank = 0; rank < ranks && world.rank() == 0; ++rank) expected.push_back(text_of(rank));
      EXPECT_EQ(texts, expected);
    });
  }
}

TEST(Extremes, EveryRanksValueCounts) {
  on_devices(5, [](Communicator& world, Device& device) {
    constexpr std::array kValues{2.0, -3.0, 7.5, 7.5, 0.0};
    const Extremes extremes = extremes_of(world, device.host_stream(), kValues[static_cast<std::size_t>(world.rank())]);
    EXPECT_EQ(extremes.min, -3);
    EXPECT_EQ(extremes.max, 7.5);
    EXPECT_EQ(extremes.mean, 2.8);
    EXPECT_EQ(extremes.largest, 2);
    EXPECT_EQ(first_rank(world, device.host_stream(), world.rank() % 2 == 1), 1);
    EXPECT_EQ(first_rank(world, device.host_stream(), world.rank() == 4), 4);
    EXPECT_EQ(first_rank(world, device.host_stream(), false), -1);
  });
}

TEST(GatherBytes, EveryRanksBytesOnceInOrder) {
  on_devices(4, [](Communicator& world, Device& device) {
    std::string mine(static_cast<std::size_t>(world.rank() == 2 ? 0 : 500'000 * world.rank() + 1),
                     static_cast<char>('a' + world.rank()));
    if (!mine.empty()) mine.front() = '<';  // rank 2 has nothing; pieces out of order show
    std::vector<std::string> all;
    const auto counted = world.split(all_ranks(world), "counted");
    gather_bytes(*counted, device, std::as_bytes(std::span(mine)), [&](int rank, std::span<const std::byte> bytes) {
      EXPECT_EQ(rank, static_cast<int>(all.size()));
      all.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    });
    if (world.rank() == 0) {
      std::string second(500'001, 'b'), last(1'500'001, 'd');
      second.front() = last.front() = '<';
      EXPECT_EQ(all, (std::vector<std::string>{"<", second, "", last}));
    } else {
      EXPECT_TRUE(all.empty());
    }
    const double sent = world.rank() == 0 ? 0 : static_cast<double>(sizeof(std::int64_t) + mine.size());
    EXPECT_EQ(counted->counters().total_bytes(), sent) << "each rank's own bytes, to nobody but rank 0";
  });
}

// Rank 2 reads rank 0's clock: what it does to that is not corrected. Ranks 1 and 3 read clocks of
// their own, rank 4 reads rank 1's and is not asked.
TEST(ClockOffset, OfRanksThatReadAnotherClock) {
  on_devices(5, [](Communicator& world, Device& device) {
    constexpr std::array<std::uint64_t, 5> kIdentities{7, 8, 7, 9, 8};
    const double ahead = 1000.0 * world.rank();
    const std::vector<ClockOffset> clocks =
        estimate_clock_offsets(world, device, kIdentities[static_cast<std::size_t>(world.rank())], [&] {
          EXPECT_NE(world.rank(), 4);
          return monotonic_seconds() + ahead;
        });
    if (world.rank() != 0) {
      EXPECT_TRUE(clocks.empty());
      return;
    }
    ASSERT_EQ(clocks.size(), 5u);
    for (const int rank : {0, 2})
      EXPECT_TRUE(clocks[static_cast<std::size_t>(rank)].offset == 0 && clocks[static_cast<std::size_t>(rank)].bound == 0);
    for (const int rank : {1, 3}) {
      const ClockOffset& clock = clocks[static_cast<std::size_t>(rank)];
      EXPECT_GT(clock.bound, 0);
      EXPECT_LE(std::abs(clock.offset + 1000.0 * rank), clock.bound + 1e-9) << "the bound must hold";
    }
    EXPECT_EQ(clocks[4].offset, clocks[1].offset);
    EXPECT_EQ(clocks[4].bound, clocks[1].bound);
  });
}

TEST(ClockOffset, ProcessesOfAMachineShareAClock) { EXPECT_EQ(clock_identity(), clock_identity()); }

}  // namespace
}  // namespace trident

// Tests what a profiler is told of a run on simulated GPUs: the names of the run's own trace, and every range ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <sstream>

#include "core/clock.h"
#include "core/file_io.h"
#include "cuda/simulated/runtime.h"
#include "parallel/shared_memory/thread_world.h"
#include "pipeline/executor.h"
#include "support/layout_run.h"
#include "tests/cuda/training/on_gpus.h"
#include "tests/cuda/training/profiler.h"
#include "tests/data/temporary_folder.h"
#include "tests/train/trace_file.h"
#include "train/plan/machine.h"
#include "train/run/rank_trainer.h"
#include "train/run/step_tracer.h"

namespace trident::testing {
namespace {

constexpr const char* kConfig = R"({
  "model": {"model_type": "gpt2", "vocab_size": 61, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16},
  "batch": {"global": 4, "micro": 1, "sequence": 8}, "precision": {"compute": "fp32"}, "optimizer": {"lr": 3e-4}})";
constexpr int kSteps = 3;

struct Profiled {
  RunPlan plan;
  std::vector<std::thread::id> threads;  // by rank
  std::vector<std::vector<ProfiledRange>> ranges;
  std::optional<std::string> trace;
};

Profiled run(const TemporaryFolder& folder, std::vector<std::string> settings, const LoadSamples& load = {}) {
  settings.insert(settings.end(), {"run.steps=100", "data.train=unused", "run.dir=" + folder.path(), "debug.no_alloc=true"});
  const TrainConfig config = parse_train_config(kConfig, "test", settings);
  const std::unique_ptr<CudaBackend> cuda = make_cuda_backend();
  Profiled profiled{make_run_plan(config, resolve_model(config), 0, cpu_machine_facts(1)), {}, {}, {}};
  profiled.threads.resize(static_cast<std::size_t>(profiled.plan.world_size()));
  std::ostringstream said;
  LogSink log(said);
  const TrainOutput output{said, ConsoleMode::kPlain, log};
  ThreadWorld world(profiled.plan.world_size(), /*timeout_seconds=*/60.0);
  run_thread_ranks(world, [&](int rank) {
    profiled.threads[static_cast<std::size_t>(rank)] = std::this_thread::get_id();
    const std::unique_ptr<Device> device = cuda->make_device(0, world.doorbell(rank), {}, {});
    RankTrainer trainer(profiled.plan, *device, world.communicator(rank, device->progress()), nullptr,
                        [&](Axis axis, std::unique_ptr<Communicator> host) {
                          return cuda->on_device(DeviceTransport::kThread, *device, axis, std::move(host));
                        });
    RunSink sink(output);
    StepTracer tracer(trainer, sink, 1, kSteps);
    for (int step = 1; step <= kSteps; ++step) {
      tracer.before_step(step);
      const double start = monotonic_seconds();
      trainer.step(load ? load : random_tokens(61, 8));
      tracer.after_step(step, start, monotonic_seconds());
    }
    const std::string line = tracer.finish(kSteps);
    if (rank == 0 && line.starts_with("trace: ")) profiled.trace = tracer.path();
    trainer.drain();
  });
  for (const std::thread::id thread : profiled.threads) profiled.ranges.push_back(profiled_ranges(thread));
  return profiled;
}

class Nvtx : public OnGpus {
 protected:
  void SetUp() override {
    forget_ranges();
    OnGpus::SetUp();
  }
  void TearDown() override { EXPECT_EQ("", unfinished_ranges()); }  // a GPU that failed frees nothing
};

TEST_F(Nvtx, NamesAreThoseOfTheTrace) {
  const TemporaryFolder folder;
  const Profiled profiled = run(folder, {"parallel=\"2DP x 2PP\"", "parallel.zero=zero3"});
  const auto lanes = slices_by_lane(nlohmann::json::parse(read_file(profiled.trace.value())));
  const auto in_trace = [&](int rank, std::initializer_list<TraceLane> wanted) {
    std::vector<std::string> names;
    for (const TraceLane lane : wanted) {
      const auto found = lanes.find({rank, std::string(to_string(lane))});
      if (found == lanes.end()) continue;
      for (const auto& slice : found->second) names.push_back(slice["name"]);
    }
    return names;
  };
  for (int rank = 0; rank < profiled.plan.world_size(); ++rank) {
    SCOPED_TRACE(rank);
    std::vector<std::string> steps, instructions, operations, waits;
    for (const ProfiledRange& range : profiled.ranges[static_cast<std::size_t>(rank)]) {
      if (range.kind == ProfiledRange::Kind::kStarted) {
        operations.push_back(range.name);
      } else if (range.inside.empty() && range.name != "wait") {
        steps.push_back(range.name);
      } else if (range.name != "wait") {
        EXPECT_EQ(range.inside, std::vector{steps.back()}) << range.name;
        instructions.push_back(range.name);
      } else if (range.inside.size() == 2 && range.inside.back() != "batch") {
        waits.push_back(range.name);
      }
    }
    using enum TraceLane;
    EXPECT_EQ(steps, (std::vector<std::string>{"step 1", "step 2", "step 3"}));
    EXPECT_EQ(steps, in_trace(rank, {kStep}));
    EXPECT_EQ(instructions, in_trace(rank, {kCompute}));
    EXPECT_EQ(waits, in_trace(rank, {kWaiting}));
    EXPECT_FALSE(waits.empty());
    std::vector<std::string> expected =
        in_trace(rank, {kCollectives, kReduce, kGather, kSendForward, kSendBackward, kRecvForward, kRecvBackward});
    std::ranges::sort(expected);
    std::ranges::sort(operations);
    EXPECT_EQ(operations, expected);
    EXPECT_GT(operations.size(), 20u);
    EXPECT_NE(std::ranges::find(instructions, rank < 2 ? "forward u0 m1" : "forward u3 m1"), instructions.end());
  }
}

// Tensor-parallel collectives are operations of the compute stream, inside the instruction that they belong to.
TEST_F(Nvtx, CollectivesOfAnInstructionBearItsName) {
  const TemporaryFolder folder;
  const Profiled profiled = run(folder, {"parallel=\"2TP\""});
  for (const std::vector<ProfiledRange>& ranges : profiled.ranges) {
    std::size_t collectives = 0;
    for (const ProfiledRange& range : ranges) {
      if (range.kind != ProfiledRange::Kind::kStarted || !range.name.starts_with("forward u1")) continue;
      ++collectives;
      EXPECT_EQ(range.name, range.inside.back());
    }
    EXPECT_EQ(collectives, 2u * 4 * kSteps);  // after attention and the feed-forward part, of every micro-batch
  }
}

TEST_F(Nvtx, RangesEndWhereAnInstructionThrows) {
  const std::unique_ptr<CudaBackend> cuda = make_cuda_backend();
  ThreadWorld world(1);
  run_thread_ranks(world, [&](int rank) {
    const std::unique_ptr<Device> device = cuda->make_device(0, world.doorbell(rank), {}, {});
    ASSERT_NE(device->ranges(), nullptr);
    StepProgram program;
    program.instructions.resize(2);
    program.instructions[0].kind = program.instructions[1].kind = InstructionKind::kGradNorm;
    Executor executor(*device);
    int calls = 0;
    executor.bind(InstructionKind::kGradNorm, [&](const Instruction&) {
      EXPECT_STREQ(device->ranges()->innermost(), "grad_norm");
      if (++calls == 2) throw InternalError("planted");
    });
    std::vector<InstructionTimes> times;
    EXPECT_THROW(executor.run(program, times), InternalError);
    EXPECT_EQ(device->ranges()->innermost(), nullptr);
    const std::vector<ProfiledRange> ranges = profiled_ranges(std::this_thread::get_id());
    ASSERT_EQ(ranges.size(), 2u);
    EXPECT_EQ(ranges[1].name, "grad_norm");
  });
}

// Operations are under way on several streams, or waited for within an instruction, when one fails.
TEST_F(Nvtx, RangesEndWhereTheGpuFails) {
  for (const char* layout : {"2DP x 2PP", "2TP"}) {
    SCOPED_TRACE(layout);
    const TemporaryFolder folder;
    int loads = 0;
    std::mutex mutex;
    const auto load = [&](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
      random_tokens(61, 8)(first, count, spans);
      const std::lock_guard lock(mutex);
      if (++loads == 10) simulated::fail_next("rank_order_sum", 700, 3);
    };
    EXPECT_THROW(run(folder, {fmt::format("parallel=\"{}\"", layout), "parallel.zero=zero2"}, load), Error);
    simulated::recover();
    EXPECT_EQ("", unfinished_ranges());
  }
}

}  // namespace
}  // namespace trident::testing

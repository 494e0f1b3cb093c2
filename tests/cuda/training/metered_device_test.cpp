// A step measured operation by operation on a simulated GPU: the same numbers, and the
// GPU's own streams and communicators underneath.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstdint>
#include <map>
#include <utility>

#include "cuda/simulated/nccl.h"
#include "cuda/simulated/runtime.h"
#include "parallel/shared_memory/thread_world.h"
#include "planner/bench/bench_collectives.h"
#include "planner/bench/metered_device.h"
#include "train/launch/rank_devices.h"
#include "train/run/rank_trainer.h"

namespace trident {
namespace {

constexpr const char* kConfig = R"({
  "run": {"dir": "unused", "steps": 3}, "data": {"train": "unused"},
  "model": {"model_type": "llama", "vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "tie_word_embeddings": false},
  "parallel": {"data": 1}, "batch": {"global": 4, "micro": 2, "sequence": 8}, "precision": {"compute": "fp32"}, "optimizer": {"lr": 3e-4}})";

constexpr const char* kGpt2 = R"({
  "run": {"dir": "unused", "steps": 3}, "data": {"train": "unused"},
  "model": {"model_type": "gpt2", "vocab_size": 61, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 16, "dropout": 0},
  "parallel": {"data": 1}, "batch": {"global": 4, "micro": 2, "sequence": 8}, "precision": {"compute": "fp32"}, "optimizer": {"lr": 3e-4}})";

void load(std::int64_t first, std::int64_t, const SampleSpans& spans) {
  for (std::size_t i = 0; i < spans.tokens.size(); ++i)
    spans.tokens[i] = static_cast<std::int32_t>((static_cast<std::size_t>(first) + 7 * i) % 61);
  for (std::size_t i = 0; i < spans.targets.size(); ++i)
    spans.targets[i] = static_cast<std::int32_t>((static_cast<std::size_t>(first) + 5 * i) % 61);
}

struct Trained {
  std::vector<double> numbers;  // loss and gradient norm of each step
  std::vector<Work> work;
};

Trained train(bool measured, const std::vector<std::string>& settings = {}, const char* model = kConfig) {
  const std::unique_ptr<CudaBackend> cuda = make_cuda_backend();
  const DeviceChoice choice = choose_device(AskedDevice::kCuda, *cuda, look_for_gpus(AskedDevice::kCuda, *cuda, thread_ranks(1)));
  const TrainConfig config = parse_train_config(model, "test", settings);
  const RunPlan plan = make_run_plan(config, resolve_model(config), 0, machine_facts(choice, 1));
  Trained run;
  ThreadWorld world(1);
  run_thread_ranks(world, [&](int rank) {
    const std::unique_ptr<Device> device = make_rank_device(choice, *cuda, world.doorbell(rank), {.cuda = config.cuda});
    WorkMeter meter;
    const std::unique_ptr<Device> metered = make_metered_device(*device, meter);
    RankTrainer trainer(plan, *metered, world.communicator(rank, device->progress()), nullptr,
                        on_device(choice, *cuda, *device, DeviceTransport::kThread));
    EXPECT_EQ(metered->ranges(), nullptr) << "no profiler is attached";
    if (measured) meter.start();
    for (int step = 0; step < 3; ++step) {
      const StepResult result = trainer.step(load);
      run.numbers.insert(run.numbers.end(), {result.loss, result.grad_norm});
    }
    run.work.assign(meter.work().begin(), meter.work().end());
    trainer.drain();
  });
  return run;
}

// Graphs would hide the operations, and none can be waited for while it is captured.
TEST(MeteredDevice, MeasuresOperationsWhereGraphsAreAskedFor) {
  simulated::configure({.host_guard = simulated::HostGuard::kOff});
  const Trained plain = train(true), graphs = train(true, {"cuda.graphs=true"});
  simulated::reset();
  EXPECT_EQ(plain.numbers, graphs.numbers);
  ASSERT_EQ(plain.work.size(), graphs.work.size());
  for (std::size_t i = 0; i < plain.work.size(); ++i)
    EXPECT_EQ(plain.work[i].calls, graphs.work[i].calls) << plain.work[i].operation;
}

// One entry for what is one kernel, and as many products as without.
TEST(MeteredDevice, FusedOperationsHaveNamesOfTheirOwn) {
  const auto by_name = [](const Trained& run) {
    std::map<std::string, Work> work;
    for (const Work& one : run.work) work.emplace(std::string(one.operation), one);
    return work;
  };
  simulated::configure({.host_guard = simulated::HostGuard::kOff});
  const Trained not_measured = train(false, {"cuda.epilogues=true"}, kGpt2), measured = train(true, {"cuda.epilogues=true"}, kGpt2);
  const auto plain = by_name(train(true, {}, kGpt2)), fused = by_name(measured);
  simulated::reset();
  EXPECT_EQ(measured.numbers, not_measured.numbers);
  constexpr std::int64_t kBlocks = 2, kPasses = 3 * 2;  // steps, micro-batches
  double flops = fused.at("matmul").flops;
  for (const auto& [name, calls] :
       {std::pair("matmul_bias", 3), {"matmul_bias_gelu", 1}, {"matmul_gelu_backward", 1}, {"matmul_bias_gradient", 4}}) {
    ASSERT_EQ(fused.count(name), 1u) << name;
    EXPECT_EQ(fused.at(name).kind, WorkKind::kMatmuls) << name;
    EXPECT_EQ(fused.at(name).calls, calls * kBlocks * kPasses) << name;
    EXPECT_GT(fused.at(name).bytes, 0) << name;
    EXPECT_EQ(plain.count(name), 0u) << "one by one, it is measured so: " << name;
    flops += fused.at(name).flops;
  }
  EXPECT_DOUBLE_EQ(flops, plain.at("matmul").flops);
  for (const char* name : {"add_bias", "sum_rows", "gelu_backward"}) {
    EXPECT_EQ(plain.count(name), 1u) << name;
    EXPECT_EQ(fused.count(name), 0u) << name;
  }
}

TEST(MeteredDevice, MeasuresAGpuAndChangesNothing) {
  const Trained plain = train(false), measured = train(true);
  EXPECT_EQ(plain.numbers, measured.numbers);
  EXPECT_TRUE(plain.work.empty());
  EXPECT_GT(measured.work.size(), 15u);
  double products = 0;
  for (const Work& work : measured.work) {
    EXPECT_GT(work.seconds, 0) << work.operation;
    if (work.operation == "matmul") products = work.flops;
  }
  EXPECT_GT(products, 0);
}

// trident bench measures collectives between simulated GPUs, and says so where there is nothing to measure.

constexpr double kMegabytes = 0.05;

class BenchCollectives : public ::testing::Test {
 protected:
  ~BenchCollectives() override {
    simulated::reset();
    EXPECT_EQ(simulated::census().allocations, 0u);
    EXPECT_EQ(simulated::nccl_communicators(), 0);
    simulated::reset_nccl();
  }
  void gpus(int devices) {
    simulated::Settings settings;
    settings.host_guard = simulated::HostGuard::kOff;
    settings.devices = devices;
    simulated::configure(settings);
  }
  static void expect_rates(const CollectiveRates& way, int ranks) {
    EXPECT_EQ(way.skipped, "");
    EXPECT_EQ(way.ranks, ranks);
    EXPECT_GT(way.floor_rate, 0);
    ASSERT_EQ(way.rates.size(), 3u);
    for (const CollectiveRate& rate : way.rates) {
      EXPECT_GT(rate.seconds, 0) << rate.operation;
      EXPECT_GT(way.floor_seconds(rate), 0) << rate.operation;
    }
  }
  std::unique_ptr<CudaBackend> cuda_ = make_cuda_backend();
  CollectiveOptions small_ = {.cuda = {}, .threads_per_rank = 1, .megabytes = kMegabytes};
};

TEST_F(BenchCollectives, NcclTakesEveryGpu) {
  gpus(3);
  small_.cuda.nccl_max_ctas = {.tensor = 3, .data = 5, .pipeline = 4};
  const CollectiveRates nccl = nccl_rates_between_gpus(*cuda_, small_);
  EXPECT_EQ(nccl.way, "threads by NCCL");
  expect_rates(nccl, 3);
  EXPECT_EQ(nccl.floor_of, "messages of all ranks to the next at once");
  EXPECT_NEAR(nccl.rates[0].moved / nccl.rates[0].bytes, 4.0 / 3, 1e-9)
      << "what reaches a rank, of sums and of what they are made of";
  EXPECT_NEAR(nccl.rates[2].moved / nccl.rates[2].bytes, 2.0 / 3, 1e-9);
  std::set<int> used;
  for (const simulated::NcclJoined& one : simulated::nccl_joined()) {
    used.insert(one.device);
    EXPECT_EQ(one.max_ctas, 5) << "the limit of the axis that the ranks lie along";
  }
  EXPECT_EQ(used, (std::set{0, 1, 2}));
}

TEST_F(BenchCollectives, OneGpuExchangesWithItself) {
  gpus(1);
  const CollectiveRates nccl = nccl_rates_between_gpus(*cuda_, small_);
  expect_rates(nccl, 1);
  EXPECT_EQ(nccl.floor_of, "copies of all ranks at once, read and written");
  EXPECT_EQ(simulated::nccl_joined().size(), 1u) << "the library was called";
}

TEST_F(BenchCollectives, ThreadsOnOneGpuExchange) {
  gpus(1);
  const DeviceChoice choice =
      choose_device(AskedDevice::kCuda, *cuda_, look_for_gpus(AskedDevice::kCuda, *cuda_, thread_ranks(2)));
  const CollectiveRates threads = rates_between_threads(choice, *cuda_, DeviceTransport::kThread, 2, small_);
  EXPECT_EQ(threads.way, "threads in each other's device memory");
  expect_rates(threads, 2);
  EXPECT_EQ(threads.rates[0].moved, 5 * threads.rates[0].bytes);
}

TEST_F(BenchCollectives, WhereNcclCannotItSaysWhy) {
  gpus(2);
  simulated::fail_next("ncclCommInitRankConfig", ncclSystemError);
  EXPECT_THAT(nccl_rates_between_gpus(*cuda_, small_).skipped,
              ::testing::HasSubstr("joining among ranks 0, 1 failed in NCCL: unhandled system error"));
  gpus(0);
  EXPECT_THAT(nccl_rates_between_gpus(*make_cuda_backend(), small_).skipped,
              ::testing::HasSubstr("no GPU is visible to this process"));
}

}  // namespace
}  // namespace trident

// A step measured operation by operation on a simulated GPU: the same numbers, and the
// GPU's own streams and communicators underneath.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <utility>

#include "cuda/simulated/runtime.h"
#include "parallel/shared_memory/thread_world.h"
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

void load(std::int64_t first, std::int64_t, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>((static_cast<std::size_t>(first) + 7 * i) % 61);
  for (std::size_t i = 0; i < targets.size(); ++i)
    targets[i] = static_cast<std::int32_t>((static_cast<std::size_t>(first) + 5 * i) % 61);
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

}  // namespace
}  // namespace trident

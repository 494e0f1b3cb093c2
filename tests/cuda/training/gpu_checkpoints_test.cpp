// Checkpoints of runs on simulated GPUs, saved while training goes on: what a GPU holds between two updates, whatever its streams
// do first, read again by GPUs and by CPUs in other layouts.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>
#include <thread>

#include "checkpoint/checkpoint_diff.h"
#include "checkpoint/checkpoint_folder.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "support/train_hooks.h"
#include "support/trainer_checkpoints.h"
#include "tests/cuda/training/on_gpus.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"
#include "tests/support/error_text.h"
#include "tests/support/log_text.h"
#include "train/launch/run_training.h"

namespace trident::testing {
namespace {

constexpr int kBefore = 2, kAfter = 3;  // steps

std::string difference(const std::string& a, const std::string& b) {
  StoredTensors first(a), second(b);
  const CheckpointDifference found = compare_checkpoints(first, second);
  if (found.compared < 20) return "hardly anything was compared";
  if (found.is_equal()) return "";
  return found.tensors.empty() ? found.state.front() : found.tensors.front().key + ": " + found.tensors.front().what;
}

class GpuCheckpoints : public OnGpus {
 protected:
  std::string step(const std::string& name) const { return folder_ / (name + "/" + checkpoint_name(kBefore)); }
  // kBefore steps, and on goes training while they are saved. Losses of the steps that follow.
  std::vector<double> save_while_training(const std::string& config, const std::vector<std::string>& settings,
                                          const std::string& name, std::optional<double> staging = {}) {
    std::vector<double> losses;
    on_gpu(config, settings, {.steps = kBefore, .after_steps = [&](RankTrainer& trainer) {
                                 TrainerCheckpoints checkpoints(trainer, {.to = folder_ / name, .staging_megabytes = staging});
                                 checkpoints.start_saving();
                                 const LoadSamples load =
                                     random_tokens(trainer.plan().model.vocab_size, trainer.plan().config.batch.sequence);
                                 for (int i = 0; i < kAfter; ++i) {
                                   const double loss = trainer.step(load).loss;
                                   if (trainer.context().rank() == 0) losses.push_back(loss);
                                 }
                                 checkpoints.finish();
                                 EXPECT_EQ(checkpoints.checkpoints().committed_step(), kBefore);
                               }});
    return losses;
  }
  void save_at_the_end(const std::string& config, const std::vector<std::string>& settings, const std::string& name) {
    on_gpu(config, settings, {.steps = kBefore, .after_steps = [&](RankTrainer& trainer) { save(trainer, "", name); }});
  }
  void save(RankTrainer& trainer, const std::string& from, const std::string& name) {
    TrainerCheckpoints checkpoints(trainer, {.from = from, .to = folder_ / name});
    checkpoints.start_saving();
    EXPECT_TRUE(checkpoints.finish());
  }
  // The checkpoint has what a GPU holds after kBefore steps; a GPU and CPUs go on from it.
  void expect_outlives_the_gpu(const std::string& config, const std::vector<std::string>& settings,
                                const std::vector<std::string>& elsewhere, double tolerance) {
    const std::vector<double> losses = save_while_training(config, settings, "during");
    save_at_the_end(config, settings, "end");
    EXPECT_EQ(difference(step("during"), step("end")), "");
    const LayoutRun gpu = on_gpu(
        config, settings, {.steps = kAfter, .before_steps = [&](RankTrainer& trainer) { save(trainer, step("during"), "card"); }});
    EXPECT_EQ(difference(step("during"), step("card")), "");
    EXPECT_EQ(gpu.losses, losses);
    const LayoutRun cpu = run_layout(
        config, elsewhere, {.steps = kAfter, .before_steps = [&](RankTrainer& trainer) { save(trainer, step("during"), "cpu"); }});
    EXPECT_EQ(difference(step("during"), step("cpu")), "");
    ASSERT_EQ(cpu.losses.size(), losses.size());
    for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(cpu.losses[i], losses[i], tolerance * losses[i]);
  }

  const std::string gpt2_ = small_gpt2(32, 2, 0.1, replaced(kSmallRun, "fp32", "bf16"));
  TemporaryFolder folder_;
};

TEST_F(GpuCheckpoints, OneRanksSaveOutlivesItsGpu) { expect_outlives_the_gpu(small_llama(), {}, {"parallel=2DP x 2PP"}, 1e-6); }

TEST_F(GpuCheckpoints, EightRanksSaveOutlivesTheirGpus) {
  expect_outlives_the_gpu(small_llama(), {"parallel=2DP x 2PP x 2TP", "parallel.zero=zero3", "parallel.sequence_parallel=true"}, {},
                           1e-6);
}

// Transposed values, a tied weight at two stages, masters beside weights in bf16, and updates within graphs.
TEST_F(GpuCheckpoints, GraphsAndHalfPrecisionAreSaved) {
  expect_outlives_the_gpu(gpt2_, {"parallel=2DP x 2PP", "cuda.graphs=true"}, {"parallel=2TP"}, 2e-3);
}

TEST_F(GpuCheckpoints, WeightsRoundedAtRandomAreSaved) {
  const std::vector<std::string> rounded = {"precision.compute=bf16", "precision.stochastic_rounding=true", "parallel=2DP",
                                            "parallel.zero=shard_grad_op"};
  expect_outlives_the_gpu(small_llama(), rounded, rounded, 2e-3);
}

// Each order that makes others late, with room for all values and with as little as works.
TEST_F(GpuCheckpoints, EveryOrderOfStreamsSavesTheSame) {
  save_at_the_end(gpt2_, {}, "end");
  int run = 0;
  for (const simulated::StreamOrder order :
       {simulated::StreamOrder::kTargetFirst, simulated::StreamOrder::kOthersFirst, simulated::StreamOrder::kRandom}) {
    for (const std::optional<double> staging : {std::optional<double>(), std::optional<double>(0.01)}) {
      SCOPED_TRACE(fmt::format("order {}, {} staging", static_cast<int>(order), staging ? "least" : "whole"));
      configure({.seed = 5 + static_cast<std::uint64_t>(run), .stream_order = order});
      const std::string name = fmt::format("run-{}", run++);
      save_while_training(gpt2_, {"cuda.graphs=true"}, name, staging);
      EXPECT_EQ(difference(step(name), step("end")), "");
    }
  }
}

// The GPU is so late with the reads that the next step's updates are all enqueued before one of them began: it is the updates that
// wait.
TEST_F(GpuCheckpoints, AnUpdateWaitsOnTheGpuForReadsThatAreLate) {
  save_at_the_end(small_llama(), {}, "end");
  for (const std::string graphs : {"cuda.graphs=false", "cuda.graphs=true"}) {
    SCOPED_TRACE(graphs);
    const auto save_late = [&](RankTrainer& trainer) {
      simulated::hold_new_streams();
      TrainerCheckpoints checkpoints(trainer, {.to = folder_ / graphs, .staging_megabytes = {}});
      checkpoints.start_saving();
      trainer.step(random_tokens(trainer.plan().model.vocab_size, trainer.plan().config.batch.sequence));
      simulated::run_what_can_run();
      EXPECT_TRUE(checkpoints.checkpoints().busy());
      EXPECT_GT(simulated::census().queued, trainer.update_order().size()) << "the reads, and all updates";
      simulated::release_held_streams();
      checkpoints.finish();
      EXPECT_EQ(checkpoints.checkpoints().committed_step(), kBefore);
    };
    on_gpu(small_llama(), {graphs}, {.steps = kBefore, .after_steps = save_late});
    EXPECT_EQ(difference(step(graphs), step("end")), "");
  }
}

// The GPU refuses a copy, or fails to say that it is done: a line, no checkpoint, the steps of the run that saves nothing; then
// the next save is whole.
TEST_F(GpuCheckpoints, AFailedCopyCostsTheCheckpoint) {
  const LayoutRun undisturbed = on_gpu(small_llama(), {}, {.steps = kBefore + 2});
  for (const auto& [call, error] :
       {std::pair("cudaMemcpyAsync", cudaErrorInvalidValue), {"cudaEventSynchronize", cudaErrorUnknown}}) {
    SCOPED_TRACE(call);
    std::ostringstream warnings;
    const std::string to = folder_ / call;
    const LayoutRun run = on_gpu(
        small_llama(), {},
        {.steps = kBefore, .after_steps = [&, call = call, error = error](RankTrainer& trainer) {
           TrainerCheckpoints checkpoints(trainer, {.to = to, .staging_megabytes = {}, .warnings = &warnings});
           simulated::fail_next(call, error);
           checkpoints.start_saving();
           while (checkpoints.checkpoints().busy()) std::this_thread::yield();  // the failure is the save's, not the next step's
           const LoadSamples load = random_tokens(trainer.plan().model.vocab_size, trainer.plan().config.batch.sequence);
           EXPECT_EQ(trainer.step(load).loss, undisturbed.losses.at(kBefore));
           EXPECT_FALSE(checkpoints.finish());
           EXPECT_EQ(checkpoints.checkpoints().committed_step(), -1);
           ASSERT_GE(checkpoints.said().size(), 2u);
           EXPECT_EQ(checkpoints.said().back(), fmt::format("no checkpoint of step {}: a rank could not write its part", kBefore));
           checkpoints.start_saving();
           EXPECT_EQ(trainer.step(load).loss, undisturbed.losses.at(kBefore + 1));
           checkpoints.finish();
           EXPECT_EQ(checkpoints.checkpoints().committed_step(), kBefore + 1);
         }});
    EXPECT_TRUE(contains(warnings.str(), "copying values for a checkpoint from the device: cuda")) << warnings.str();
    EXPECT_TRUE(contains(warnings.str(), "earlier ones are as they were")) << warnings.str();
  }
}

// As much as checkpoint.staging says is taken before the first step, and said. Weights are one block of 4 MiB, what the optimizer
// has are four; each file needs one. The largest matrix that is transposed takes 16 KB more.
TEST_F(GpuCheckpoints, PageLockedMemoryIsSaid) {
  const auto said = [&](const std::string& name, std::optional<double> staging) {
    std::string line;
    on_gpu(gpt2_, {"model.vocab_size=40000"}, {.steps = 0, .before_steps = [&](RankTrainer& trainer) {
                                                   const std::size_t before = simulated::census().allocations;
                                                   const TrainerCheckpoints checkpoints(
                                                       trainer, {.to = folder_ / name, .staging_megabytes = staging});
                                                   EXPECT_EQ(simulated::census().allocations, before + 2);
                                                   line = checkpoints.said().at(0);
                                                 }});
    return line;
  };
  const auto expected = [](const char* megabytes) {
    return fmt::format("checkpoints go through page-locked host memory, at most {} MB of it on a rank (checkpoint.staging)",
                       megabytes);
  };
  EXPECT_EQ(said("whole", {}), expected("21.0"));
  EXPECT_EQ(said("some", 12.25), expected("12.3"));
  EXPECT_EQ(said("least", 0.001), expected("8.4"));
}

// ---- whole runs

class GpuRuns : public GpuCheckpoints {
 protected:
  GpuRuns() {
    Documents documents(1);
    for (int i = 0; i < 400; ++i) documents[0].push_back(i * i % 61);
    write_dataset(folder_ / "tokens", documents, 61);
  }
  // Returns what a person gets to see of it.
  std::string train(const std::string& run, std::vector<std::string> settings) {
    settings.insert(settings.end(), {"run.dir=" + (folder_ / run), "data.train=" + (folder_ / "tokens"), "run.threads_per_rank=1",
                                     "run.pin=false", "log.every=1"});
    std::ostringstream out;
    LogSink sink(out);
    run_training([&] { return parse_train_config(gpt2_, "test", settings); },
                 {.console = out, .log = sink}, *backend_, train_hooks());
    return out.str();
  }
  // "step, loss and gradient norm" of every line.
  std::vector<std::string> metrics(const std::string& run) const {
    std::vector<std::string> lines;
    for (const JsonValue& value : json_lines(read_file(folder_ / (run + "/metrics.jsonl"))))
      lines.push_back(fmt::format("{} {:.17g} {:.17g}", value.find("step")->as_integer(), value.find("loss")->as_number(),
                                  value.find("grad_norm")->as_number()));
    return lines;
  }
};

TEST_F(GpuRuns, SaveAndGoOn) {
  const std::vector<std::string> gpu = {"device=cuda", "parallel=2DP x 2PP", "parallel.zero=zero3", "cuda.graphs=true"};
  const auto with = [&](const std::vector<std::string>& more) { return plus(more, gpu); };
  train("undisturbed", with({"run.steps=8"}));
  const std::string first = train("run", with({"run.steps=5", "checkpoint.every=2"}));
  EXPECT_TRUE(contains(first, "checkpoints go through page-locked host memory")) << first;
  EXPECT_TRUE(contains(first, "checkpoint of step 5: ")) << "the last step is saved: " << first;
  const std::string second = train("run", with({"run.steps=8", "checkpoint.every=2"}));
  EXPECT_TRUE(contains(second, "goes on from step 5")) << second;
  EXPECT_EQ(metrics("run"), metrics("undisturbed"));
  EXPECT_EQ(metrics("run").size(), 8u);
  const std::string third = train("run", {"device=cpu", "parallel=2TP", "run.steps=10", "checkpoint.every=2"});
  EXPECT_TRUE(contains(third, "goes on from step 8")) << third;
  EXPECT_EQ(metrics("run").size(), 10u);
}

}  // namespace
}  // namespace trident::testing

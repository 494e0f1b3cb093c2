// Training goes on while it is saved: several ranks with their writers, what is given up, what is stopped in the middle; and no
// step allocates.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <optional>
#include <ostream>
#include <streambuf>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint_diff.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/shard_writer.h"
#include "optim/sharded_optimizer.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"
#include "tests/support/file_faults.h"
#include "tests/support/layout_run.h"
#include "tests/support/trainer_checkpoints.h"

namespace trident::testing {
namespace {

constexpr int kBefore = 2;                              // steps
constexpr std::optional<double> kWhole, kLeast = 0.01;  // staging memory, in MB

// Two data ranks' optimizer states are more than one block for each, so that the least staging memory is less than all.
std::string config() {
  return R"({
    "model": {"model_type": "llama", "vocab_size": 24000, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 16, "tie_word_embeddings": false},
    "batch": {"global": 4, "micro": 1, "sequence": 4}, "precision": {"compute": "fp32"},
    "optimizer": {"lr": 1e-2, "grad_clip": 1.0}, "lr_schedule": {"type": "constant"},
    "debug": {"no_alloc": true}
  })";
}

LoadSamples samples_of(const RankTrainer& trainer) {
  return random_tokens(trainer.plan().model.vocab_size, trainer.plan().config.batch.sequence);
}

// Keeps lines, and does something when one comes.
class Lines : public std::ostream, private std::streambuf {
 public:
  explicit Lines(std::function<void()> when_written) : std::ostream(this), when_written_(std::move(when_written)) {}
  const std::string& text() const { return text_; }

 private:
  int overflow(int c) override { return text_ += static_cast<char>(c), c; }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    text_.append(text, static_cast<std::size_t>(size));
    when_written_();
    return size;
  }
  std::function<void()> when_written_;
  std::string text_;
};

class SaveWhileTraining : public ::testing::Test {
 protected:
  std::string step(const std::string& name, int updates) const { return folder_ / (name + "/" + checkpoint_name(updates)); }
  static std::string difference(const std::string& a, const std::string& b) {
    StoredTensors first(a), second(b);
    const CheckpointDifference found = compare_checkpoints(first, second);
    if (found.is_equal()) return found.compared > 40 ? "" : "hardly anything was compared";
    return found.tensors.empty() ? found.state.front() : found.tensors.front().key + ": " + found.tensors.front().what;
  }
  static void run_after_steps(const std::vector<std::string>& layout, const std::function<void(RankTrainer&)>& body) {
    run_layout(config(), layout, {.steps = kBefore, .after_steps = body});
  }
  void save_at_the_end(const std::vector<std::string>& layout, const std::string& name) const {
    run_after_steps(layout, [&](RankTrainer& trainer) { go_on_and_save(trainer, "", folder_ / name); });
  }
  TemporaryFolder folder_;
};

// The disk hangs until the step is over, where there is room for all values; else until the step waits for room, and says so.
TEST_F(SaveWhileTraining, NoStepAllocates) {
  const std::vector<std::string> one_rank;
  save_at_the_end(one_rank, "end");
  for (const std::optional<double> staging : {kWhole, kLeast}) {
    const bool waits = staging.has_value();
    const std::string name = waits ? "least" : "whole";
    SCOPED_TRACE(name);
    run_after_steps(one_rank, [&](RankTrainer& trainer) {
      std::optional<FileFault> hang;
      Lines warnings([&] { hang.reset(); });
      TrainerCheckpoints saver(trainer, {.to = folder_ / name, .staging_megabytes = staging, .warnings = &warnings});
      for (int save = 0; save < 2; ++save) {
        hang.emplace(Fault::kHangBlocks, 0);
        saver.start_saving();
        EXPECT_NO_THROW(trainer.step(samples_of(trainer)));
        EXPECT_EQ(hang.has_value(), !waits) << warnings.text();
        EXPECT_TRUE(waits || saver.checkpoints().busy());
        hang.reset();
        saver.finish();
        EXPECT_EQ(saver.checkpoints().committed_step(), kBefore + save);
      }
      EXPECT_EQ(contains(warnings.text(), "waits until its values are copied for the checkpoint"), waits) << warnings.text();
    });
    EXPECT_EQ(difference(step(name, kBefore), step("end", kBefore)), "");
  }
}

TEST_F(SaveWhileTraining, EverySaveHasTheValuesOfItsStep) {
  const std::vector<std::vector<std::string>> layouts{{"parallel=2DP"}, {"parallel=2DP x 2PP", "parallel.zero=zero3"}};
  for (const std::vector<std::string>& layout : layouts) {
    const std::string ranks = layout.front();
    save_at_the_end(layout, ranks + "/end");
    for (const std::optional<double> staging : {kWhole, kLeast}) {
      const std::string name = ranks + (staging ? "/least" : "/whole");
      SCOPED_TRACE(name);
      run_after_steps(layout, [&](RankTrainer& trainer) {
        TrainerCheckpoints saver(trainer, {.to = folder_ / name, .staging_megabytes = staging});
        for (int save = 0; save < 2; ++save) {
          saver.start_saving();
          for (int i = 0; i < 2; ++i) trainer.step(samples_of(trainer));
          saver.finish();
          EXPECT_EQ(saver.checkpoints().committed_step(), kBefore + 2 * save);
        }
      });
      EXPECT_EQ(difference(step(name, kBefore), step(ranks + "/end", kBefore)), "");
    }
  }
}

// Every rank's disk hangs for longer than its updates wait: no checkpoint, and the losses of a run that saves nothing.
TEST_F(SaveWhileTraining, WhatIsGivenUpDoesNotDisturbTheSteps) {
  const std::vector<std::string> layout{"parallel=2DP"};
  const LayoutRun undisturbed = run_layout(config(), layout, {.steps = kBefore + 2});
  std::atomic<int> given_up = 0;
  std::optional<FileFault> hang;
  run_after_steps(layout, [&](RankTrainer& trainer) {
    const int rank = trainer.context().rank();
    const std::vector<ShardBox> boxes = boxes_written(trainer.store().shards(), trainer.shard_holder());
    const std::vector<std::string> states = state_keys(trainer.plan().config.optimizer.type);
    SavePlan plan = make_save_plan(boxes, trainer.shard_tensors(), states, trainer.update_order(), CheckpointContent::kAll, rank);
    ASSERT_LT(ShardWriter::least_staging(plan), ShardWriter::whole_staging(plan));
    Buffer staging = allocate_host(ShardWriter::least_staging(plan), "staging");
    ShardWriter writer(std::move(plan), std::move(staging), {.patience_seconds = 0.05});
    trainer.set_update_hook([&](int unit) { writer.before_update(unit); });
    if (rank == 0) hang.emplace(Fault::kHangBlocks, 0);
    trainer.context().world().barrier();
    writer.start(folder_ / fmt::format("rank-{}", rank));
    const double during = trainer.step(samples_of(trainer)).loss;
    trainer.context().world().barrier();
    if (rank == 0) hang.reset();
    while (writer.busy()) std::this_thread::yield();
    given_up += contains(writer.error().value_or(""), "was given up because its values could not be copied in time");
    const double after = trainer.step(samples_of(trainer)).loss;
    trainer.set_update_hook({});
    if (rank != 0) return;
    EXPECT_EQ(during, undisturbed.losses.at(kBefore));
    EXPECT_EQ(after, undisturbed.losses.at(kBefore + 1));
  });
  EXPECT_EQ(given_up, 2);
}

// Whoever ends the run does not wait for a save; the next start removes what is there of it, and saves.
TEST_F(SaveWhileTraining, AStopInTheMiddleOfASaveLeavesNoCheckpoint) {
  const std::vector<std::string> layout{"parallel=2DP"};
  save_at_the_end(layout, "end");
  const std::string to = folder_ / "stopped";
  run_after_steps(layout, [&](RankTrainer& trainer) {
    {
      TrainerCheckpoints stopped(trainer, {.to = to, .staging_megabytes = kWhole});
      stopped.start_saving();
      while (list_checkpoints(to).empty()) std::this_thread::yield();
    }
    EXPECT_FALSE(folder_exists(step("stopped", kBefore)));
    trainer.context().world().barrier();
    TrainerCheckpoints again(trainer, {.to = to, .staging_megabytes = kWhole});
    EXPECT_TRUE(list_checkpoints(to).empty());
    trainer.context().world().barrier();
    again.start_saving();
    trainer.step(samples_of(trainer));
    again.finish();
    EXPECT_EQ(again.checkpoints().committed_step(), kBefore);
  });
  EXPECT_EQ(difference(step("stopped", kBefore), step("end", kBefore)), "");
  EXPECT_EQ(list_checkpoints(to).size(), 1u);
}

}  // namespace
}  // namespace trident::testing

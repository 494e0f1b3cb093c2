// Runs of the real program that begin with another's weights, and checkpoints that hold weights alone.
#include <csignal>
#include <sstream>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "tests/app/background_program.h"
#include "tests/app/checkpoint_runs.h"

namespace trident {
namespace {

// Weights saved by data ranks in bf16 come as their fp32 masters into a pipeline. A learning
// rate of next to 0 shows them as they came.
TEST_F(Checkpoints, ARunBeginsWithTheWeightsOfAnother) {
  ASSERT_EQ(train({"precision.compute=bf16"}).exit_code, 0);
  const std::string from = place_ / "run/ckpt";
  const auto begin = [&](const std::string& run, const std::vector<std::string>& more) {
    return place_.train(plus(
        {"model.init_from=" + from, "parallel=1DP x 2PP x 1TP", "run.steps=1", "checkpoint.every=1", "run.dir=" + (place_ / run)},
        more));
  };
  const ProgramOutcome still = begin("still", {"optimizer.lr=1e-30", "lr_schedule.type=constant"});
  ASSERT_EQ(still.exit_code, 0) << still.err;
  expect_parts(still.out, {"begins with the weights of " + from +
                           "/step-00000004 (model.init_from), step 4; optimizer, data and steps begin anew"});
  const ProgramOutcome diff = run_program({"ckpt", "diff", from + "/step-00000004", place_ / "still/ckpt/step-00000001"});
  EXPECT_EQ(diff.exit_code, 1) << diff.err;  // states of the optimizer, steps; no weights
  for (std::istringstream lines(diff.out); !lines.eof();) {
    std::string line;
    std::getline(lines, line);
    EXPECT_TRUE(line.empty() || line.starts_with("exp_avg") || line.starts_with("state: ")) << line;
  }
  expect_parts(diff.out, {"exp_avg_sq/"});
  // From position 0 of the data: the first loss is that of the first batch.
  EXPECT_EQ(place_.metrics("still").front().find("tokens")->as_integer(), 8 * 32);
  EXPECT_LT(place_.metrics("still").front().find("loss")->as_number(), place_.metrics().front().find("loss")->as_number());
  // A second start goes on from its own, and is not begun again.
  ASSERT_EQ(begin("moved", {}).exit_code, 0);
  const ProgramOutcome on = begin("moved", {"run.steps=3"});
  ASSERT_EQ(on.exit_code, 0) << on.err;
  expect_parts(on.out, {"goes on from step 1\n"});
  EXPECT_EQ(on.out.find("begins with the weights"), std::string::npos) << on.out;
  EXPECT_EQ(place_.metrics("moved").size(), 3u);
}

TEST_F(FullCheckpoints, WeightsAloneAreEnoughToBeginWith) {
  ASSERT_EQ(train({"checkpoint.content=weights", "precision.compute=bf16"}).exit_code, 0);
  const ProgramOutcome outcome =
      succeeded(train({"model.init_from=" + (place_ / "run/ckpt/step-00000004"), "run.dir=" + (place_ / "other")}));
  expect_parts(outcome.out, {"step 4, which has them in bf16 only"});
}

TEST_F(Checkpoints, WeightsOfAnotherModelAreRefused) {
  ASSERT_EQ(train().exit_code, 0);
  const std::string from = "model.init_from=" + (place_ / "run/ckpt"), other = "run.dir=" + (place_ / "other");
  const std::vector<std::string> before = place_.files();
  expect_one_line(train({from, other, "model.intermediate_size=96"}), 64,
                  {"model.init_from", "step-00000004", "mlp", "[96,32]", "[64,32]"});
  expect_one_line(train({from, other, "model.num_hidden_layers=5"}), 64, {"model.layers.4.", "is not there in the checkpoint"});
  expect_one_line(train({from, other, "model.num_hidden_layers=3"}), 64, {"model.layers.3.", "is not there in the model"});
  expect_one_line(train({from, other, "model.rope_theta=5000"}), 64, {"\"rope_theta\":5000", "same shapes", "checkpoint.allow"});
  expect_one_line(train({"model.init_from=" + (place_ / "nothing"), other}), 65,
                  {"model.init_from", "no such folder (nothing is downloaded)"});
  create_folder(place_ / "hf");
  write_file(place_ / "hf/config.json", "{}");
  expect_one_line(train({"model.init_from=" + (place_ / "hf"), other}), 65, {"there is no checkpoint", "or a Hugging Face folder"});
  std::vector<std::string> after = place_.files();
  std::erase_if(after, [&](const std::string& path) { return path.starts_with(place_ / "hf"); });
  EXPECT_EQ(after, before);
  succeeded(train({from, other, "model.rope_theta=5000", "model.dropout=0.1", "checkpoint.allow=model"}));
}

TEST_F(FullCheckpoints, AnotherRunDirBesideASharedFolderOfThemIsLookedAt) {
  const std::string shared = "checkpoint.dir=" + (place_ / "shared");
  ASSERT_EQ(train({shared}).exit_code, 0);
  ASSERT_EQ(train({"run.dir=" + (place_ / "other"), "run.seed=7", "checkpoint.every=0"}).exit_code, 0);
  const std::vector<std::string> before = place_.files();
  const std::string metrics = read_file(place_ / "other/metrics.jsonl");
  expect_one_line(train({shared, "run.steps=6", "run.dir=" + (place_ / "other")}), 64,
                  {"run.dir = ", "of another run", "run.overwrite=true"});
  EXPECT_EQ(place_.files(), before);
  const ProgramOutcome moved = train({shared, "run.steps=6", "run.dir=" + (place_ / "other"), "run.overwrite=true"});
  ASSERT_EQ(moved.exit_code, 0) << moved.err;
  EXPECT_EQ(read_file(place_ / "other/earlier-1/metrics.jsonl"), metrics);
  EXPECT_EQ(place_.metrics("other").size(), 2u);
  // Its own goes on.
  succeeded(train({shared, "run.steps=8", "run.dir=" + (place_ / "other")}));
  EXPECT_EQ(place_.metrics("other").size(), 4u);
}

TEST_F(Checkpoints, WeightsAloneAreNotGoneOnFrom) {
  ASSERT_EQ(train({"checkpoint.content=weights"}).exit_code, 0);
  const std::string newest = place_ / "run/ckpt/step-00000004";
  expect_one_line(train({"run.steps=6"}), 64,
                  {"checkpoint.resume = auto: " + newest + " holds weights alone", "set checkpoint.resume to \"never\"",
                   "model.init_from = " + newest});
}

// An older one in its place would train steps again that are trained, and set their weights aside.
TEST_F(Checkpoints, OneOfWeightsAloneIsNotPassedOverInSilence) {
  ASSERT_EQ(train({"run.steps=2"}).exit_code, 0);
  ASSERT_EQ(train({"checkpoint.content=weights"}).exit_code, 0);
  const std::vector<std::string> before = place_.files();
  const std::string older = place_ / "run/ckpt/step-00000002", newest = place_ / "run/ckpt/step-00000004";
  for (const std::string& from : {std::string("auto"), place_ / "run/ckpt", newest})
    expect_one_line(train({"run.steps=6", "checkpoint.resume=" + from}), 64,
                    {"checkpoint.resume = " + from + ": " + newest + " holds weights alone",
                     "name " + older + " in checkpoint.resume",
                     "model.init_from = " + newest + " in a run.dir of its own"});
  EXPECT_EQ(place_.files(), before);
  const ProgramOutcome back = succeeded(train({"run.steps=6", "checkpoint.resume=" + older}));
  expect_parts(back.out, {"goes on from step 2\n"});
  succeeded(train({"model.init_from=" + newest + ".aside-1", "run.dir=" + (place_ / "other")}));
}

// A script that starts the command again on 75 would be refused with 64.
TEST_F(Checkpoints, WhoSavesWeightsAloneIsNotToldThatTheRunGoesOn) {
  BackgroundProgram job({"train", "--config", place_ / "config.json", "--set", "run.steps=100000", "--set",
                         "checkpoint.content=weights", "--set", "checkpoint.every=50000"});
  ASSERT_TRUE(within(150, [&] { return job.steps_said() > 0; })) << job.err();
  kill(job.process(), SIGTERM);
  EXPECT_EQ(job.wait_to_end(150), 128 + SIGTERM) << job.err();
  expect_parts(job.err(), {"its weights are saved, and no run goes on from weights alone"});
}

}  // namespace
}  // namespace trident

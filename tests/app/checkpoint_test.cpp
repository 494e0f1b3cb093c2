// Runs of the real program that stop and go on: the files they leave are those of a run that never stopped.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/format/hash128.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "tests/app/background_program.h"
#include "tests/app/checkpoint_runs.h"
#include "tests/data/token_files.h"
#include "tests/support/log_text.h"

namespace trident {
namespace {

constexpr int kSteps = 9;

// Other formats and layouts, each step of a start of its own, are train/resume_test.cpp's. 4294967296 overflows here: batches are
// skipped, the scale shrinks, and position and updates differ.
TEST(Resumed, EveryStepIsAPlaceToGoOnFrom) {
  const Workplace place;
  const std::vector<std::string> settings{
      "parallel=2DP x 2PP x 1TP", "precision.compute=fp16", "eval.every=3", "eval.steps=1", "data.valid=" + (place / "valid"),
      "lr_schedule.type=cosine", "lr_schedule.warmup_steps=2",
      fmt::format(R"(data.train=[{{"path": "{}", "weight": 3}}, {{"path": "{}", "weight": 1}}])", place / "text", place / "valid")};
  ASSERT_EQ(place.train(plus(settings, {fmt::format("run.steps={}", kSteps), "run.dir=" + (place / "whole")})).exit_code, 0);
  for (int steps = 1; steps <= kSteps; ++steps) {
    const ProgramOutcome part = succeeded(place.train(plus(
        settings, {fmt::format("run.steps={}", steps), "checkpoint.every=5", fmt::format("lr_schedule.decay_steps={}", kSteps)})));
    EXPECT_EQ(part.out.find(fmt::format("goes on from step {}\n", steps - 1)) != std::string::npos, steps > 1) << part.out;
  }
  EXPECT_EQ(compared(place.metrics(), kComparedKeys), compared(place.metrics("whole"), kComparedKeys));
  // Each of those runs ended with an evaluation; the undisturbed one's are among them, with the same numbers.
  std::vector<JsonValue> evaluations = place.records("run/eval.jsonl");
  std::erase_if(evaluations, [](const JsonValue& line) { return line.find("step")->as_integer() % 3 != 0; });
  EXPECT_EQ(compared(evaluations, {"step", "valid_loss"}), compared(place.records("whole/eval.jsonl"), {"step", "valid_loss"}));
  const std::vector<std::string> kept{checkpoint_name(kSteps - 1), checkpoint_name(kSteps)};
  std::vector<std::string> there;
  for (const CheckpointEntry& entry : list_checkpoints(place / "run/ckpt")) there.push_back(entry.name);
  EXPECT_EQ(there, kept);
  const ProgramOutcome again = succeeded(place.train(plus(settings, {fmt::format("run.steps={}", kSteps), "checkpoint.every=5"})));
  expect_parts(again.out, {"there is nothing to train"});
}

// A failure.json alone, which a start that failed early leaves, and a run that goes on in another layout without a checkpoint,
// are no other runs.
TEST(EarlierStart, IsNoOtherRun) {
  const Workplace place;
  create_folder(place / "run");
  write_file(place / "run/failure.json", "{}");
  const std::vector<std::string> elastic{"run.steps=2", R"(elastic=["2DP x 1PP x 1TP", "1DP x 1PP x 1TP"])"};
  ASSERT_EQ(place.train(plus(elastic, {"parallel=2DP x 1PP x 1TP"})).exit_code, 0);
  succeeded(place.train(plus(elastic, {"parallel=1DP x 1PP x 1TP"})));
  EXPECT_EQ(place.train({"run.steps=2", "parallel=2DP x 1PP x 1TP"}).exit_code, 0) << "nor without the list";
  EXPECT_EQ(place.train({"run.steps=2", "run.seed=3"}).exit_code, 64);
}

// The place of its lines is full: training is not, and ends well.
TEST(StandardOutputThatIsFull, DoesNotFailARun) {
  const Workplace place;
  std::string command = std::string(TRIDENT_BINARY) + " train --config " + (place / "config.json") +
                        " --set run.steps=3 --set checkpoint.every=2 > /dev/full";
  const ProgramOutcome outcome = succeeded(run_command({"bash", "-c", command}));
  expect_parts(outcome.err, {"standard output could not be written"});
  EXPECT_EQ(place.metrics().size(), 3u);
}

TEST_F(Checkpoints, WhatMustNotChangeIsRefusedUnlessAllowed) {
  ASSERT_EQ(train().exit_code, 0);
  const std::vector<std::string> before = place_.files();
  expect_one_line(train({"run.steps=6", "run.seed=5"}), 64,
                  {"run.seed = 5 (was 1234): the checkpoint ", "step-00000004 was trained with other values; name another run.dir",
                   "by --set run.overwrite=true. To go on from it, give the earlier values, "
                   "or list \"run.seed\" in checkpoint.allow"});
  expect_one_line(train({"run.steps=6", "model.num_hidden_layers=2", "batch.global=4", "data.shuffle=false"}), 64,
                  {"model.num_hidden_layers = 2 (was 4), batch.global = 4 (was 8), data.shuffle = false (was true): ",
                   "list \"model\", \"batch.global\", \"data.shuffle\" in checkpoint.allow"});
  expect_one_line(train({"run.steps=6", "data.train=" + (place_ / "valid")}), 64, {"data.train", "was trained with: now "});
  expect_one_line(train({"run.steps=6", "optimizer.type=lion", "checkpoint.allow=optimizer"}), 64,
                  {"optimizer.type = \"lion\"", "step-00000004", "(was \"adamw\")", "model.init_from"});
  EXPECT_EQ(place_.files(), before);
  const ProgramOutcome faster = train({"run.steps=6", "optimizer.lr=2e-3"});  // how it learns may change
  EXPECT_EQ(faster.exit_code, 0) << faster.err;
  expect_parts(faster.out, {"optimizer.lr was 0.001 and is 0.002 from here on"});
}

// How documents are kept apart is part of what the run learned from.
TEST_F(Checkpoints, DocumentsAreKeptApartAsBefore) {
  ASSERT_EQ(train({"data.eod_mask_loss=true"}).exit_code, 0);
  expect_one_line(train({"run.steps=6"}), 64, {"data.eod_mask_loss = false (was true)", "checkpoint.allow"});
  expect_one_line(train({"run.steps=6", "data.eod_mask_loss=true", "data.eod=50255"}), 64, {"data.eod = 50255 (was 50256)"});
  succeeded(train({"run.steps=5", "data.eod_mask_loss=true", "data.eod=50256"}));  // null was the tokenizer's
  const ProgramOutcome allowed = succeeded(train({"run.steps=6", "checkpoint.allow=data.eod_mask_loss", "data.eod=50255"}));
  expect_parts(allowed.out, {"data.eod_mask_loss was true and is false from here on (checkpoint.allow)"});
  succeeded(train({"run.steps=7", "data.mean_document=20", "data.boundaries=index"}));  // which nothing depends on
}

TEST_F(Checkpoints, AMaskGoesOnAsItWas) {
  std::vector<std::uint8_t> counts;
  for (int t = 0; t < 3000; ++t) counts.push_back(t * t % 7 < 3);
  const Documents documents(600, std::vector<std::int32_t>{3, 1, 4, 1, 5});
  write_masked_dataset(place_ / "chat", documents, counts, 50257);
  const std::vector<std::string> masked{"data.train=" + (place_ / "chat"), "lr_schedule.decay_steps=4"};
  ASSERT_EQ(train(plus(masked, {"run.dir=" + (place_ / "whole")})).exit_code, 0);
  for (const char* steps : {"run.steps=1", "run.steps=3", "run.steps=4"}) succeeded(train(plus(masked, {steps})));
  const std::vector<std::string> keys = plus(kComparedKeys, {"loss_tokens"});
  EXPECT_EQ(compared(place_.metrics(), keys), compared(place_.metrics("whole"), keys));
  write_dataset(place_ / "chat", documents, 50257);
  expect_one_line(train({masked[0], "run.steps=5"}), 64, {"data.train", "was trained with: now ", "with a mask of targets"});
}

// "auto" may have come to another tokenizer when the run began, and a run does not change its own.
TEST_F(Checkpoints, ATokenizerThatIsNotNamedStays) {
  ASSERT_EQ(train({"data.tokenizer=null"}).exit_code, 0);
  expect_one_line(train({"run.steps=6", "data.tokenizer=gpt2"}), 64, {"data.tokenizer = \"gpt2\" (was null)"});
  const ProgramOutcome same = succeeded(train({"run.steps=6"}));
  expect_parts(same.out, {"data.tokenizer stays null, as it was at the first start"});
}

TEST_F(Checkpoints, ADamagedOneIsPassedOverAndSetAside) {
  ASSERT_EQ(train().exit_code, 0);
  const std::string weights = place_ / "run/ckpt/step-00000004/weights/w-00000-0.safetensors";
  std::string text = read_file(weights);
  text[text.size() / 2] ^= 1;
  write_file(weights, text);
  const ProgramOutcome outcome = succeeded(train());
  expect_parts(outcome.err, {"w-00000-0.safetensors", "looking for an older checkpoint"});
  expect_parts(outcome.out, {"goes on from step 2\n"});
  EXPECT_TRUE(folder_exists(place_ / "run/ckpt/step-00000004.aside-1"));
  EXPECT_TRUE(folder_exists(place_ / "run/ckpt/step-00000004"));
  EXPECT_EQ(place_.metrics().size(), 4u);
  // And where none is whole: nothing is thrown away, and the run does not begin anew by itself.
  for (const char* step : {"step-00000002", "step-00000004"})
    write_file(place_ / fmt::format("run/ckpt/{}/manifest.json", step), "{}");
  const std::vector<std::string> before = place_.files();
  expect_one_line(train(), 65, {"manifest.json", "no other checkpoint is valid", "\"never\""});
  EXPECT_EQ(place_.files(), before);
}

// As a run that goes on, whoever reads the newest one's weights takes the newest whose values are whole, and says so.
TEST_F(Checkpoints, ADamagedOneIsPassedOverByWhoeverReadsWeights) {
  ASSERT_EQ(train().exit_code, 0);
  const std::string folder = place_ / "run/ckpt", newest = folder + "/step-00000004", older = folder + "/step-00000002";
  const auto generate = [](const std::string& from, const std::vector<std::string>& more = {}) {
    const std::vector<std::string> words{"generate", "--ckpt", from, "--prompt-ids", "5 17", "--max-new-tokens", "8"};
    return run_program(plus(plus(words, {"--greedy", "--print-ids"}), more));
  };
  const auto eval = [&](const std::string& from) {
    return run_program({"eval", "--ckpt", from, "--data", place_ / "valid", "--json"});
  };
  const auto convert = [&](const std::string& from, const std::string& to) {
    return run_program({"convert", "--from", "ckpt", from, "--to", "hf", place_ / to});
  };
  const std::string text = succeeded(generate(older)).out, loss = succeeded(eval(older)).out;
  succeeded(convert(older, "second"));
  const auto damage = [](const std::string& checkpoint) {
    std::string bytes = read_file(checkpoint + "/weights/w-00000-0.safetensors");
    bytes[bytes.size() / 2] ^= 1;
    write_file(checkpoint + "/weights/w-00000-0.safetensors", bytes);
  };
  damage(newest);
  const std::vector<std::string> parts{newest + " is skipped: ", "w-00000-0.safetensors"};
  for (const std::vector<std::string>& layout : {std::vector<std::string>{}, {"--set", "parallel.tensor=2"}}) {
    const ProgramOutcome generated = succeeded(generate(place_ / "run", layout));
    EXPECT_EQ(generated.out, text);
    expect_parts(generated.err, plus(parts, {"has not the hash that its table says\n", older + " takes its place"}));
  }
  const ProgramOutcome evaluated = succeeded(eval(folder)), converted = succeeded(convert(folder, "third"));
  EXPECT_EQ(evaluated.out, loss) << "the report names the checkpoint that was evaluated";
  expect_parts(evaluated.err, parts);
  expect_parts(converted.out, {"warning: " + parts[0], parts[1], "warning: " + older + " takes its place"});
  EXPECT_EQ(read_file(place_ / "third/model.safetensors"), read_file(place_ / "second/model.safetensors"));
  // Nothing takes the place of a checkpoint that was named itself, nor of the oldest.
  for (const ProgramOutcome& named : {generate(newest), eval(newest), convert(newest, "none")}) {
    EXPECT_EQ(named.exit_code, 65) << named.err;
    expect_parts(named.err, {parts[1]});
  }
  const ProgramOutcome json =
      succeeded(run_program({"generate", "--ckpt", folder, "--prompt-ids", "5", "--max-new-tokens", "2", "--json"}));
  expect_parts(json.out, {"\"model\"", older});
  damage(older);
  for (const bool has_manifest : {true, false}) {
    if (!has_manifest) write_file(older + "/manifest.json", "{}");
    for (const ProgramOutcome& none : {generate(folder), eval(folder), convert(folder, "none")}) {
      EXPECT_EQ(none.exit_code, 65) << none.err;
      expect_parts(none.err, {parts[1], "no other checkpoint is valid"});
    }
  }
}

// A checkpoint that may not be read may be whole: no older one takes its place. Root may read everything, and gives that up here.
TEST_F(Checkpoints, OneThatMayNotBeReadIsNeitherDamagedNorPassedOver) {
  ASSERT_EQ(train().exit_code, 0);
  const auto without_privileges = [&](const std::vector<std::string>& words) {
    std::vector<std::string> all = words;
    if (geteuid() == 0) all = plus({"setpriv", "--bounding-set", "-dac_override,-dac_read_search"}, words);
    return run_command(all);
  };
  std::vector<std::string> start{TRIDENT_BINARY, "train", "--config", place_ / "config.json"};
  for (const char* setting : {"parallel.data=2", "run.steps=6", "checkpoint.every=2"})
    start.insert(start.end(), {"--set", setting});
  const std::string newest = place_ / "run/ckpt/step-00000004";
  for (const std::string file : {"/manifest.json", "/weights/w-00001-0.safetensors", "/optim", ""}) {
    const std::filesystem::perms before = std::filesystem::status(newest + file).permissions();
    std::filesystem::permissions(newest + file, std::filesystem::perms::none);
    const ProgramOutcome refused = without_privileges(start);
    const ProgramOutcome begun =
        without_privileges(plus(start, {"--set", "run.dir=" + (place_ / "other"), "--set", "model.init_from=" + newest}));
    const ProgramOutcome listed = without_privileges({TRIDENT_BINARY, "ckpt", "ls", place_ / "run/ckpt"});
    std::filesystem::permissions(newest + file, before);
    EXPECT_EQ(refused.exit_code, 65) << file << refused.err;
    const std::vector<std::string> parts{"checkpoint.resume = auto: " + newest + file, ": cannot be opened: Permission denied; ",
                                         "name another one in checkpoint.resume"};
    for (const std::string& part : parts)
      EXPECT_NE(refused.err.find(part), std::string::npos) << part << " in " << refused.err;
    EXPECT_EQ(refused.err.find("is skipped"), std::string::npos) << refused.err;
    std::vector<std::string> there;
    for (const CheckpointEntry& entry : list_checkpoints(place_ / "run/ckpt")) there.push_back(entry.name);
    EXPECT_EQ(there, (std::vector<std::string>{checkpoint_name(2), checkpoint_name(4)}));
    expect_parts(listed.out, {"no permission"});
    EXPECT_EQ(listed.out.find("damaged"), std::string::npos) << listed.out;
    if (file == "/optim" || file.empty()) continue;  // weights alone need the one, and the other is no folder to look into
    EXPECT_EQ(begun.exit_code, 65) << begun.err;
    expect_parts(begun.err, {"model.init_from = " + newest + ": " + newest + file});
  }
  EXPECT_EQ(without_privileges(start).exit_code, 0);
}

TEST_F(Checkpoints, AnotherFormatGoesOnWithItsOwnLossScale) {
  ASSERT_EQ(train().exit_code, 0);
  succeeded(train({"run.steps=5", "precision.compute=fp16"}));
  EXPECT_GT(place_.metrics().back().find("loss_scale")->as_number(), 1e5);  // not the 1 of fp32; 2^32 shrinks while it overflows
  succeeded(train({"run.steps=6", "precision.compute=fp16", "precision.loss_scale=1024"}));
  EXPECT_EQ(place_.metrics().back().find("loss_scale")->as_number(), 1024);
}

TEST_F(Checkpoints, NothingOfARunThatIsAliveIsTouched) {
  ASSERT_EQ(train().exit_code, 0);
  create_folder(place_ / "run/ckpt/step-00000005.tmp-1234/weights");  // being written
  const std::vector<std::string> before = place_.files();
  const AppendFile alive(place_ / "run/metrics.jsonl", AppendFile::Start::kAppend);
  const ProgramOutcome second = train({"run.steps=6"});
  EXPECT_EQ(second.exit_code, 64) << second.out;
  expect_parts(second.err, {"another run is writing metrics.jsonl"});
  EXPECT_EQ(place_.files(), before);
}

TEST_F(Checkpoints, LinesThatWereCutAreMissed) {
  ASSERT_EQ(train().exit_code, 0);
  const std::string path = place_ / "run/metrics.jsonl", whole = read_file(path);
  const std::size_t second = whole.find("{\"step\":2,"), fourth = whole.find("{\"step\":4,");
  const auto gap_said = [&](const std::string& text) {
    write_file(path, text);
    const ProgramOutcome outcome = succeeded(train({"run.steps=5"}));
    std::filesystem::remove_all(place_ / "run/ckpt/step-00000005");
    const std::string warning = "metrics.jsonl has no lines between steps ";
    const std::size_t at = outcome.err.find(warning), begin = at + warning.size();
    return at == std::string::npos ? "" : outcome.err.substr(begin, outcome.err.find('(', begin) - begin);
  };
  EXPECT_EQ(gap_said(whole), "");
  EXPECT_EQ(gap_said(whole.substr(0, second) + whole.substr(fourth)), "1 and 4 ");
  EXPECT_EQ(gap_said(whole.substr(0, second)), "1 and 5 ") << "5 is the next";
  EXPECT_EQ(gap_said(""), "0 and 5 ");
}

// Started again with fewer steps it has nothing to do, and what its folder says of it stays true.
TEST_F(Checkpoints, AFinishedRunThatIsAskedForLessKeepsItsFiles) {
  ASSERT_EQ(train().exit_code, 0);
  const JsonValue memory = parse_json(read_file(place_ / "run/memory.json"), "memory.json");
  EXPECT_GT(memory.find("ranks")->items().front().find("checkpoint_staging")->as_integer(), 0);
  const std::vector<std::string> names{"config.resolved.json", "plan.json", "memory.json", "metrics.jsonl"};
  const auto contents = [&] {
    std::vector<std::string> texts;
    for (const std::string& name : names) texts.push_back(read_file(place_ / ("run/" + name)));
    std::vector<std::string> files;  // no TensorBoard file without a scalar
    for (const auto& entry : std::filesystem::directory_iterator(place_ / "run")) files.push_back(entry.path().filename());
    std::ranges::sort(files);
    texts.insert(texts.end(), files.begin(), files.end());
    return texts;
  };
  const std::vector<std::string> before = contents();
  const ProgramOutcome outcome = succeeded(train({"run.steps=3", "parallel=1DP x 2PP x 1TP"}));
  expect_parts(outcome.out, {"the run is over at step 4, beyond run.steps = 3: there is nothing to train"});
  EXPECT_EQ(contents(), before);
  ASSERT_EQ(train({"run.steps=6"}).exit_code, 0);
  EXPECT_NE(contents(), before);
}

TEST_F(Checkpoints, AnEvaluationThatWasMissedIsMade) {
  const std::vector<std::string> settings{"eval.every=2", "eval.steps=1", "data.valid=" + (place_ / "valid")};
  ASSERT_EQ(train(settings).exit_code, 0);
  const std::string whole = read_file(place_ / "run/eval.jsonl");
  write_file(place_ / "run/eval.jsonl", whole.substr(0, whole.find("{\"step\":4,")));
  ASSERT_EQ(train(plus(settings, {"run.steps=5"})).exit_code, 0);
  const std::string now = read_file(place_ / "run/eval.jsonl");
  std::vector<std::string> lines = lines_without_clocks(now);
  const std::vector<std::string> of_whole = lines_without_clocks(whole);
  lines.resize(of_whole.size());
  EXPECT_EQ(lines, of_whole);
  expect_parts(now, {"{\"step\":5,"});
}

// A high learning rate: the loss is lowest early.
TEST_F(Checkpoints, TheBestStays) {
  const std::vector<std::string> shared{"checkpoint.keep_last=1", "checkpoint.keep_best=true", "eval.every=2", "eval.steps=1",
                                        "data.valid=" + (place_ / "valid"), "lr_schedule.type=constant"};
  ASSERT_EQ(train(plus(shared, {"run.steps=2"})).exit_code, 0);
  // From here on it gets worse, whichever of the saves in between find the disk idle. The one that a run goes on from stays, too.
  const std::vector<std::string> worse = plus(shared, {"optimizer.lr=5", "checkpoint.allow=optimizer.lr"});
  ASSERT_EQ(train(plus(worse, {"run.steps=4"})).exit_code, 0);
  const ProgramOutcome outcome = succeeded(train(plus(worse, {"run.steps=12"})));
  std::vector<std::string> there;
  for (const CheckpointEntry& entry : list_checkpoints(place_ / "run/ckpt")) there.push_back(entry.name);
  const TrainingState state = open_manifest(place_ / fmt::format("run/ckpt/{}", checkpoint_name(12))).state;
  ASSERT_TRUE(state.best_valid_loss.has_value()) << outcome.out;
  ASSERT_EQ(state.best_valid_step, 2) << outcome.out;
  EXPECT_EQ(there, (std::vector<std::string>{checkpoint_name(2), checkpoint_name(4), checkpoint_name(12)})) << outcome.out;
  ASSERT_EQ(train(plus(worse, {"run.steps=13", "checkpoint.keep_best=false"})).exit_code, 0);
  EXPECT_FALSE(folder_exists(place_ / "run/ckpt/step-00000002"));
}

// An older checkpoint's configuration is compared, too, and its decay goes on.
TEST_F(FullCheckpoints, TheOlderOneIsComparedAsTheNewestWas) {
  const std::vector<std::string> steps{"parallel=1DP x 2PP x 1TP", "lr_schedule.type=linear"}, allow{"checkpoint.allow=run.seed"};
  ASSERT_EQ(train(plus(steps, {"run.steps=2", "lr_schedule.decay_steps=50"})).exit_code, 0);
  ASSERT_EQ(train(plus(plus(steps, allow), {"run.steps=4", "lr_schedule.decay_steps=80", "run.seed=99"})).exit_code, 0);
  ASSERT_EQ(train(plus(steps, {"run.steps=6", "lr_schedule.decay_steps=50", "run.dir=" + (place_ / "whole"), "checkpoint.every=0"}))
                .exit_code,
            0);
  const std::string weights = place_ / "run/ckpt/step-00000004/weights/w-00000-0.safetensors";
  std::string text = read_file(weights);
  text[text.size() / 2] ^= 1;
  write_file(weights, text);
  // Asked for what the newest has, which the older one has not.
  const ProgramOutcome refused = train(plus(steps, {"run.steps=6", "run.seed=99"}));
  EXPECT_EQ(refused.exit_code, 64) << refused.err;
  expect_parts(refused.err, {"run.seed = 99 (was 1234): the checkpoint " + (place_ / "run/ckpt/step-00000002")});
  EXPECT_TRUE(folder_exists(place_ / "run/ckpt/step-00000004"));
  succeeded(train(plus(plus(steps, allow), {"run.steps=6"})));
  EXPECT_EQ(compared(place_.metrics(), kComparedKeys), compared(place_.metrics("whole"), kComparedKeys));
  for (const std::string& path : {place_ / "run/config.resolved.json", place_ / "run/ckpt/step-00000006/manifest.json"}) {
    const std::string space = path.ends_with("resolved.json") ? " " : "";
    EXPECT_NE(read_file(path).find("\"decay_steps\":" + space + "null"), std::string::npos) << path;
    EXPECT_NE(read_file(path).find("\"decay_length\":" + space + "50"), std::string::npos) << path;
  }
}

// As timeout(1) and shells that pass signals on do.
TEST_F(Checkpoints, ASignalSavesAlsoWhereItComesTwiceAtOnce) {
  for (const auto& [first, second] : {std::pair{SIGUSR1, SIGTERM}, std::pair{SIGTERM, SIGUSR1}}) {
    const std::string run = place_ / (first == SIGUSR1 ? "one" : "other");
    BackgroundProgram job({"train", "--config", place_ / "config.json", "--set", "run.steps=100000", "--set",
                           "checkpoint.every=50000", "--set", "run.dir=" + run});
    ASSERT_TRUE(within(150, [&] { return job.steps_said() > 0; })) << job.err();
    kill(job.process(), first);
    kill(job.process(), second);
    EXPECT_EQ(job.wait_to_end(150), 75) << job.err();
    expect_parts(job.err(), {"all is saved"});
  }
}

// Nothing is wrong with it: an older one must not take its place.
TEST_F(Checkpoints, OneOfANewerTridentIsNotPassedOver) {
  ASSERT_EQ(train().exit_code, 0);
  const std::string path = place_ / "run/ckpt/step-00000004/manifest.json";
  std::string text = read_file(path);
  for (const std::string key : {"\"version\":", "\"min_reader_version\":"}) {
    const std::size_t at = text.find(key + "1");
    ASSERT_NE(at, std::string::npos) << text.substr(0, 200);
    text[at + key.size()] = '3';
  }
  const std::size_t hash = text.rfind(",\"hash\"");
  text.replace(text.find_first_of("0123456789abcdef", hash + 9), kHashDigits, to_string(hash128(text.substr(0, hash))));
  write_file(path, text);
  const std::vector<std::string> before = place_.files();
  expect_one_line(train({"run.steps=6"}), 65, {"format 3", "use a newer trident"});
  EXPECT_EQ(place_.files(), before);
}

TEST_F(Checkpoints, ALastStepThatCannotBeSavedEndsWith74) {
  // Files end at 256 KiB; the weights have more.
  const auto limited = [&](const std::vector<std::string>& settings) {
    std::vector<std::string> words{"bash",
                                   "-c",
                                   "trap '' XFSZ; ulimit -f 256; exec \"$@\"",
                                   "bash",
                                   TRIDENT_BINARY,
                                   "train",
                                   "--config",
                                   place_ / "config.json"};
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    return run_command(words);
  };
  const ProgramOutcome last = limited({"run.steps=4", "checkpoint.every=100"});
  EXPECT_EQ(last.exit_code, 74) << last.err;
  expect_parts(last.err, {"its last checkpoint could not be written; there is no other", "the model of step 4 is lost"});
  expect_parts(last.out, {"the same command begins anew: no checkpoint of this run is complete"});
  EXPECT_EQ(place_.metrics().size(), 4u);
  const ProgramOutcome stop =
      limited({"run.steps=100000", "checkpoint.every=2", "checkpoint.on_error=stop", "run.dir=" + (place_ / "other")});
  EXPECT_EQ(stop.exit_code, 74) << stop.err;
  expect_parts(stop.err, {"the run ends because checkpoint.on_error is \"stop\""});
}

// Runs of the real program that are killed, and go on as if nobody had.

using Settings = std::vector<std::string>;

// A run of so many steps, killed so often, has the metrics of one that nobody killed. The starts take `layouts` in turn; the one
// that is not killed has the first.
void expect_kills_cost_nothing(const Workplace& place, int steps, int kills,
                               const std::vector<Settings>& layouts = {{"parallel.data=2"}}, const Settings& more = {}) {
  const Settings settings = plus({fmt::format("run.steps={}", steps), "checkpoint.every=3"}, more);
  succeeded(place.train(plus(plus(settings, layouts.front()), {"run.dir=" + (place / "whole"), "checkpoint.every=0"})));
  std::mt19937 random(12);
  for (int i = 0; i < kills; ++i) {
    // In the foreground it waits for the killed one, which a busy disk may hold for seconds; otherwise it kills itself as well. And
    // it ends as the program did: one that was done in the moment of the signal ended with 0.
    Settings words{"timeout", "--preserve-status", "--foreground", "-s", "KILL",
                   fmt::format("{:.3f}", std::uniform_real_distribution(0.15, 1.5)(random)),
                   TRIDENT_BINARY, "train", "--config", place / "config.json"};
    for (const std::string& setting : plus(settings, layouts[static_cast<std::size_t>(i) % layouts.size()]))
      words.insert(words.end(), {"--set", setting});
    const ProgramOutcome killed = run_command(words);
    EXPECT_TRUE(killed.exit_code == 137 || killed.exit_code == 0) << killed.exit_code << killed.err;
  }
  const ProgramOutcome last = succeeded(place.train(plus(settings, layouts.back())));
  EXPECT_EQ(last.err.find("has no lines"), std::string::npos) << last.err;
  EXPECT_EQ(compared(place.metrics(), kComparedKeys), compared(place.metrics("whole"), kComparedKeys));
}

// The same of adapters beside a folder's weights, each start in another of the layouts that promise the same bits.
void expect_kills_of_adapters_cost_nothing(const Workplace& place, int steps, int kills) {
  const std::string hf = place / "hf";
  succeeded(place.train({"run.dir=" + (place / "base"), "run.steps=1", "checkpoint.every=1"}));
  succeeded(run_program({"convert", "--from", "ckpt", place / "base/ckpt", "--to", "hf", hf}));
  const std::vector<Settings> layouts = {
      {"parallel=2DP x 1PP x 1TP", "parallel.zero=zero3"},
      {"parallel=2DP x 2PP x 1TP", "parallel.zero=zero2", "parallel.schedule=gpipe"},
      {"parallel=2DP x 1PP x 1TP", "parallel.zero=shard_grad_op", "recompute.policy=full", "parallel.bucket_mb=0.01"},
      {"parallel=2DP x 2PP x 1TP", "parallel.zero=zero3", "parallel.schedule=1f1b"}};
  const Settings lora{"model.init_from=" + hf, "adapter.type=lora", "adapter.r=4", "adapter.dropout=0.1", "optimizer.lr=0.01"};
  expect_kills_cost_nothing(place, steps, kills, layouts, lora);
}

TEST_F(Checkpoints, AKillAtAnyMomentCostsNothingThatIsCommitted) { expect_kills_cost_nothing(place_, 30, 20); }

TEST_F(Checkpoints, AKilledAdapterRunGoesOnInAnotherLayoutToTheBit) { expect_kills_of_adapters_cost_nothing(place_, 12, 3); }

TEST_F(FullCheckpoints, TenKillsOfAdapterRunsCostNothing) { expect_kills_of_adapters_cost_nothing(place_, 100, 10); }

TEST_F(FullCheckpoints, AHundredKillsAtAnyMomentCostNothing) { expect_kills_cost_nothing(place_, 1000, 100); }

}  // namespace
}  // namespace trident

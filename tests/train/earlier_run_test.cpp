// A run directory that was used before: what is refused, what is moved, and that nothing is lost.
#include "train/run/earlier_run.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <thread>

#include "checkpoint/lease.h"
#include "core/clock.h"
#include "core/file_io.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"
#include "tests/support/error_text.h"
#include "tests/train/config_support.h"
#include "train/run/data_summary.h"
#include "train/run/resume.h"
#include "train/run/weights_source.h"

namespace trident {
namespace {

using testing_support::small_with;

class EarlierRun : public ::testing::Test {
 protected:
  TrainConfig config(std::vector<std::string> settings = {}) const {
    settings.push_back("run.dir=" + folder_.path());
    return small_with(settings);
  }
  // Makes the files that a run with this configuration leaves.
  void leave(const TrainConfig& of) const {
    write_file(folder_ / "config.resolved.json", to_json_text(to_json(of), 2));
    for (const char* name :
         {"metrics.jsonl", "timing.jsonl", "eval.jsonl", "plan.json", "memory.json", "events.out.tfevents.1.host.2.0"})
      write_file(folder_ / name, std::string(name) + " of the earlier run");
    std::filesystem::create_directory(folder_ / "trace");
    write_file(folder_ / "trace/steps_1-2.json", "trace");
  }

  TemporaryFolder folder_;
};

TEST_F(EarlierRun, FoldersWithoutARunAreFine) {
  EXPECT_NO_THROW(check_earlier_run(small_with({"run.dir=" + (folder_ / "new")})));
  write_file(folder_ / "notes.txt", "mine");
  write_file(folder_ / "config.json", "{}");
  std::filesystem::create_directory(folder_ / "earlier-1");
  EXPECT_NO_THROW(check_earlier_run(config()));
  EXPECT_EQ(set_earlier_run_aside(config()), "");
  EXPECT_EQ(folder_.names(), (std::vector<std::string>{"config.json", "earlier-1", "notes.txt"}));
}

TEST_F(EarlierRun, AnotherConfigurationIsRefusedByName) {
  leave(config({"optimizer.lr=2"}));
  const std::vector<std::string> before = folder_.names();
  expect_error<ConfigError>(
      [&] { check_earlier_run(config({"optimizer.lr=4"})); },
      {"run.dir = " + folder_.path() + ": it has config.resolved.json, eval.jsonl and 6 more of another run, ",
       "whose optimizer.lr is 2", "choose another run.dir, or --set run.overwrite=true, which moves them to ",
       folder_ / "earlier-1"});
  EXPECT_NO_THROW(check_earlier_run(config({"optimizer.lr=4", "run.overwrite=true"})));
  EXPECT_EQ(folder_.names(), before) << "looking changes nothing";
}

TEST_F(EarlierRun, TheSameConfigurationGoesOn) {
  leave(config({"run.overwrite=true"}));
  EXPECT_NO_THROW(check_earlier_run(config()));
  std::string path = folder_.path();
  path.insert(path.rfind('/'), "/.");
  EXPECT_NO_THROW(check_earlier_run(small_with({"run.dir=" + path}))) << "the same folder, written otherwise";
}

// Neither what a user may change between two starts, nor what another version has by default or knows in addition.
TEST_F(EarlierRun, HowLongItIsAndWhatItSavesAndLogsIsNotCompared) {
  TrainConfig earlier = config({"eval.every=3", "checkpoint.every=5", "log.every=7", "run.steps=50", "run.max_minutes=3"});
  leave(earlier);
  JsonValue of_another_version = to_json(earlier);
  of_another_version.find("log")->set("of_another_version", 1);
  write_file(folder_ / "config.resolved.json", to_json_text(of_another_version));
  EXPECT_NO_THROW(check_earlier_run(config()));
  expect_error<ConfigError>([&] { check_earlier_run(config({"run.seed=5"})); }, {"whose run.seed is 1234, not 5"});
}

// A run that was killed for its memory begins again as it fits.
TEST_F(EarlierRun, HowItFitsIntoMemoryIsNotCompared) {
  leave(config({"recompute.policy=none", "batch.micro=2"}));
  EXPECT_NO_THROW(check_earlier_run(
      config({"recompute.policy=full", "recompute.head_chunk=64", "batch.micro=1", "debug.no_alloc=true", "cuda.graphs=true"})));
}

// As with a checkpoint: a run that was killed before its first one begins again in whatever layout there is a place for.
TEST_F(EarlierRun, ItsLayoutIsNotCompared) {
  leave(config({"parallel.tensor=2", "parallel.sequence_parallel=true"}));
  for (const auto& settings : std::vector<std::vector<std::string>>{
           {}, {"parallel=2DP x 2PP", "parallel.zero=zero3"}, {"parallel.data=2", R"(elastic=["1DP"])"}})
    EXPECT_NO_THROW(check_earlier_run(config(settings)));
  EXPECT_EQ(set_earlier_run_aside(config()), folder_ / "earlier-1");
}

TEST_F(EarlierRun, ARunWithoutAReadableConfigurationIsAnother) {
  write_file(folder_ / "metrics.jsonl", "{}");
  expect_error<ConfigError>([&] { check_earlier_run(config()); },
                            {"it has metrics.jsonl of another run, without config.resolved.json; choose"});
  write_file(folder_ / "config.resolved.json", R"({"run": {"later_key": 1}})");
  expect_error<ConfigError>([&] { check_earlier_run(config()); }, {"it has config.resolved.json and metrics.jsonl of another run, "
                                                                   "with a config.resolved.json that this version cannot read; "});
}

// Before anything opens them: a pipe without a reader holds whoever opens it.
TEST_F(EarlierRun, WhatIsNoFileIsRefused) {
  ASSERT_EQ(::mkfifo((folder_ / "metrics.jsonl").c_str(), 0600), 0);
  expect_error<StorageError>(
      [&] { check_earlier_run(config({"run.overwrite=true"})); },
      {"run.dir = ", "metrics.jsonl is a named pipe, where a run has a file; remove it or choose another run.dir"});
  std::filesystem::remove(folder_ / "metrics.jsonl");
  write_file(folder_ / "precious", "keep");
  std::filesystem::create_symlink(folder_ / "precious", folder_ / "eval.jsonl");
  expect_error<StorageError>([&] { check_earlier_run(config()); }, {"eval.jsonl is a symbolic link, where a run has a file"});
  expect_error<StorageError>([&] { set_earlier_run_aside(config()); }, {"eval.jsonl is a symbolic link"});
  EXPECT_EQ(read_file(folder_ / "precious"), "keep");
  std::filesystem::remove(folder_ / "eval.jsonl");
  write_file(folder_ / "trace", "no folder");
  expect_error<StorageError>([&] { check_earlier_run(config()); }, {"trace is a file, where a run has a folder"});
}

TEST_F(EarlierRun, EverythingMovesTogether) {
  leave(config());
  write_file(folder_ / "notes.txt", "mine");
  EXPECT_EQ(set_earlier_run_aside(config()), folder_ / "earlier-1");
  EXPECT_EQ(folder_.names(), (std::vector<std::string>{"earlier-1", "notes.txt"}));
  EXPECT_EQ(run_files_in(folder_ / "earlier-1").size(), 8u);
  EXPECT_EQ(read_file(folder_ / "earlier-1/metrics.jsonl"), "metrics.jsonl of the earlier run");
  EXPECT_EQ(read_file(folder_ / "earlier-1/trace/steps_1-2.json"), "trace");
  leave(config());
  EXPECT_EQ(set_earlier_run_aside(config()), folder_ / "earlier-2");
  EXPECT_EQ(run_files_in(folder_ / "earlier-1").size(), 8u);
}

TEST_F(EarlierRun, ARunThatGoesOnKeepsItsFiles) {
  leave(config());
  const AppendFile writer(folder_ / "metrics.jsonl", AppendFile::Start::kAppend);
  const std::vector<std::string> before = folder_.names();
  expect_error<StorageError>([&] { set_earlier_run_aside(config()); }, {"metrics.jsonl: another run is writing it"});
  EXPECT_EQ(folder_.names(), before);
}

// Between the look at the start and the first file of this run, another may come and go.
TEST_F(EarlierRun, WhatCameSinceTheFirstLookIsRefusedAsWell) {
  EXPECT_NO_THROW(check_earlier_run(config()));
  leave(config({"run.seed=4"}));
  const std::vector<std::string> before = folder_.names();
  expect_error<ConfigError>([&] { set_earlier_run_aside(config()); },
                            {"6 more of another run, whose run.seed is 4, not 1234; choose"});
  EXPECT_EQ(folder_.names(), before);
  EXPECT_EQ(set_earlier_run_aside(config({"run.overwrite=true"})), folder_ / "earlier-1");
}

// Not as if it were empty: a link to itself stands for a disk that does not answer.
TEST_F(EarlierRun, AFolderThatCannotBeReadIsRefused) {
  const std::string loop = folder_ / "loop";
  std::filesystem::create_symlink(loop, loop);
  for (const char* overwrite : {"false", "true"})
    expect_error<StorageError>(
        [&] { check_earlier_run(small_with({"run.dir=" + loop, std::string("run.overwrite=") + overwrite})); },
        {"run.dir = " + loop + ": cannot be read: Too many levels of symbolic links; choose a folder that may be read"});
  expect_error<StorageError>([&] { run_files_in(loop); }, {"cannot be read: Too many levels"});
}

// A folder that moves changes its "..", which needs permission: the last of the names cannot be moved, and the others come back.
TEST_F(EarlierRun, AllOrNoneAreMoved) {
  constexpr uid_t kNobody = 65534;
  leave(config());
  std::filesystem::permissions(folder_ / "trace", std::filesystem::perms::none);
  const std::vector<std::string> before = folder_.names();
  const bool root = ::geteuid() == 0;  // may move everything
  if (root) {
    ASSERT_EQ(::chown(folder_.path().c_str(), kNobody, kNobody), 0);
    for (const std::string& name : before) ASSERT_EQ(::chown((folder_ / name).c_str(), kNobody, kNobody), 0);
    ASSERT_EQ(::seteuid(kNobody), 0);
  }
  expect_error<StorageError>([&] { set_earlier_run_aside(config()); },
                             {"cannot be moved to", "earlier-1: Permission denied; choose another run.dir"});
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  EXPECT_EQ(folder_.names(), before);
  std::filesystem::permissions(folder_ / "trace", std::filesystem::perms::owner_all);
}

// A process that was killed keeps its files a moment longer than whoever killed it waits.
TEST(RefuseIfWritten, WaitsForADyingWriter) {
  const TemporaryFolder folder;
  std::string refusal;
  double died_after = 2;  // more than 1 s: a busy machine kept it alive
  for (int tries = 0; died_after > 1; ++tries) {
    if (tries == 10) GTEST_SKIP() << "this machine keeps a thread from its core for a second, ten times in turn";
    std::optional<AppendFile> writer(std::in_place, folder / "metrics.jsonl", AppendFile::Start::kAppend);
    const double start = monotonic_seconds();
    std::thread dies([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      writer.reset();
      died_after = monotonic_seconds() - start;
    });
    refusal = error_of<ConfigError>([&] { refuse_if_written(folder.path()); });
    dies.join();
  }
  EXPECT_EQ(refusal, "no error");
  const AppendFile lives(folder / "metrics.jsonl", AppendFile::Start::kAppend);
  expect_error<ConfigError>([&] { refuse_if_written(folder.path()); }, {"run.dir = ", "another run is writing metrics.jsonl"});
}

// The token of the environment, while alive.
class GivenToken {
 public:
  explicit GivenToken(const std::string& token) { ::setenv(kLeaseTokenVariables[0], token.c_str(), 1); }
  ~GivenToken() { ::unsetenv(kLeaseTokenVariables[0]); }
  GivenToken(const GivenToken&) = delete;
  GivenToken& operator=(const GivenToken&) = delete;
};

// A rank 0 that is stopped keeps its files for ever: the next start of the same run takes them, another run does not.
TEST(RefuseIfWritten, AnEarlierStartOfTheSameRunLosesItsFiles) {
  const TemporaryFolder folder;
  const std::string metrics = folder / "metrics.jsonl", eval = folder / "eval.jsonl", checkpoints = folder / "ckpt";
  AppendFile stopped(metrics, AppendFile::Start::kAppend), also(eval, AppendFile::Start::kAppend);
  stopped.append("{\"step\":1}\n");
  create_folder(checkpoints);
  write_file(checkpoints + "/" + lease_name(3), to_text({.holder = this_process("of this run"), .generation = 3}));
  for (const std::string token : {"", "of another run"}) {
    const GivenToken given(token);
    expect_error<ConfigError>([&] { refuse_if_written(folder.path(), checkpoints, 0); },
                              {"another run is writing metrics.jsonl"});
  }
  const GivenToken given("of this run");
  expect_error<ConfigError>([&] { refuse_if_written(folder.path(), "", 0); }, {"another run is writing"});
  EXPECT_NO_THROW(refuse_if_written(folder.path(), checkpoints, 0.05));
  EXPECT_EQ(read_file(metrics), "{\"step\":1}\n");
  AppendFile goes_on(metrics, AppendFile::Start::kAppend), evaluates(eval, AppendFile::Start::kAppend);
  stopped.append("{\"step\":2}\n");  // when it wakes
  EXPECT_EQ(read_file(metrics), "{\"step\":1}\n");
}

// As rank 0 would say it, whichever rank it is. Root may read everything, and is somebody else here.
TEST(FoundCheckpoint, OneThatThisRankMayNotReadIsRefused) {
  const TemporaryFolder folder;
  const std::string step = folder / "step-00000004";
  std::filesystem::create_directory(step);
  write_file(step + "/manifest.json", "{}");
  std::filesystem::permissions(step + "/manifest.json", std::filesystem::perms::none);
  const auto open = [&] {
    constexpr uid_t kNobody = 65534;
    std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
    if (geteuid() == 0 && setresuid(kNobody, kNobody, kNobody) != 0) std::_Exit(1);
    try {
      open_found(step, "checkpoint.resume", "auto");
    } catch (const NotPermitted& error) {
      std::cerr << error.what();
      std::_Exit(2);
    } catch (const Error& error) {
      std::cerr << error.what();
    }
    std::_Exit(3);
  };
  EXPECT_EXIT(open(), ::testing::ExitedWithCode(2),
              "checkpoint.resume = auto: .*manifest.json: cannot be opened: Permission denied");
  expect_error<DataError>([&] { open_found(folder / "none", "checkpoint.resume", "auto"); }, {"/none: cannot be opened"});
}

// model_difference(): the key of config.json in which two models differ, for whatever they can differ in.

ModelConfig model_of(const std::string& type) {
  const std::string sizes =
      type == "gpt2"
          ? R"("n_embd": 64, "n_layer": 3, "n_head": 4)"
          : R"("hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,)"
                       R"( "num_key_value_heads": 4)";
  return model_config_from_hf_json(R"({"model_type": ")" + type + R"(", "vocab_size": 90, )" + sizes + "}", "model");
}

struct Change {
  const char* type;
  const char* key;
  std::function<void(ModelConfig&)> make;
};

const Change kChanges[] = {
    {"llama", "model_type", [](ModelConfig& m) { m.family = ModelFamily::kMistral; }},
    {"llama", "vocab_size", [](ModelConfig& m) { m.vocab_size = 91; }},
    {"llama", "hidden_size", [](ModelConfig& m) { m.hidden = 128; }},
    {"gpt2", "n_embd", [](ModelConfig& m) { m.hidden = 128; }},
    {"llama", "num_hidden_layers", [](ModelConfig& m) { m.layers = 4; }},
    {"gpt2", "n_layer", [](ModelConfig& m) { m.layers = 4; }},
    {"llama", "num_attention_heads", [](ModelConfig& m) { m.heads = 8; }},
    {"gpt2", "n_head", [](ModelConfig& m) { m.heads = 8; }},
    {"llama", "num_key_value_heads", [](ModelConfig& m) { m.kv_heads = 2; }},
    {"llama", "head_dim", [](ModelConfig& m) { m.head_dim = 32; }},
    {"llama", "intermediate_size", [](ModelConfig& m) { m.ffn = 97; }},
    {"gpt2", "n_inner", [](ModelConfig& m) { m.ffn = 97; }},
    {"gpt2", "n_positions", [](ModelConfig& m) { m.max_positions += 1; }},
    {"llama", "rms_norm_eps", [](ModelConfig& m) { m.norm_eps = 2e-5; }},
    {"gpt2", "layer_norm_epsilon", [](ModelConfig& m) { m.norm_eps = 2e-5; }},
    {"llama", "attention_bias", [](ModelConfig& m) { m.qkv_bias = true; }},
    {"llama", "attention_bias", [](ModelConfig& m) { m.output_bias = true; }},
    {"llama", "mlp_bias", [](ModelConfig& m) { m.mlp_bias = true; }},
    {"llama", "tie_word_embeddings", [](ModelConfig& m) { m.tie_embeddings = !m.tie_embeddings; }},
    {"llama", "rope_theta", [](ModelConfig& m) { m.rope.theta = 5e5; }},
    {"llama", "partial_rotary_factor", [](ModelConfig& m) { m.rope.partial_rotary_factor = 0.5; }},
    {"llama", "rope_scaling.rope_type", [](ModelConfig& m) { m.rope.scaling = RopeScaling::kLinear; }},
    {"llama", "rope_scaling.factor", [](ModelConfig& m) { m.rope.factor = 2; }},
    {"llama", "rope_scaling", [](ModelConfig& m) { m.rope.low_freq_factor = 1.5; }},
    {"llama", "rope_scaling",
     [](ModelConfig& m) {
       m.rope.long_factors = {1.0, 2.0};
     }},
    {"mistral", "sliding_window", [](ModelConfig& m) { m.sliding_window = 17; }},
    {"mistral", "sliding_window", [](ModelConfig& m) { m.sliding_window = m.sliding_window == 0 ? 9 : 0; }},
    {"llama", "attn_logit_softcapping", [](ModelConfig& m) { m.attention_softcap = 50; }},
    {"llama", "final_logit_softcapping", [](ModelConfig& m) { m.logit_softcap = 30; }},
    {"llama", "model_type", [](ModelConfig& m) { m.norm = NormKind::kRmsNormRoundedOnce; }},
    {"llama", "model_type", [](ModelConfig& m) { m.norm_placement = NormPlacement::kAfter; }},
    {"olmo", "clip_qkv", [](ModelConfig& m) { m.clip_qkv = 8; }},
    {"llama", "model_type", [](ModelConfig& m) { m.qk_norm = QkNorm::kPerHead; }},
    {"llama", "model_type", [](ModelConfig& m) { m.activation = Activation::kGeluTanh; }},
    {"llama", "model_type", [](ModelConfig& m) { m.position = PositionKind::kLearned; }},
};

TEST(ModelDifference, NamesTheKeyInBothDirections) {
  for (const Change& change : kChanges) {
    const ModelConfig before = model_of(change.type);
    ModelConfig after = before;
    change.make(after);
    ASSERT_FALSE(before == after) << change.key;
    const std::optional<Difference> found = model_difference(before, after), back = model_difference(after, before);
    ASSERT_TRUE(found && back) << change.key;
    EXPECT_EQ(found->path, change.key);
    EXPECT_NE(found->a, found->b) << change.key;
    EXPECT_EQ(back->path, change.key);
  }
}

TEST(ModelDifference, WhatMayDifferIsNone) {
  const ModelConfig llama = model_of("llama");
  ModelConfig other = llama;
  other.max_positions *= 2, other.init_std = 0.5, other.residual_dropout = 0.1, other.embedding_dropout = 0.2;
  EXPECT_FALSE(model_difference(llama, other));
  for (const char* type : {"gpt2", "llama", "qwen2", "qwen3", "mistral", "olmo", "olmo2", "phi3"})
    EXPECT_FALSE(model_difference(model_of(type), model_of(type))) << type;
}

TEST(ModelDifference, AWindowIsShownAsInTheFile) {
  ModelConfig narrow = model_of("mistral"), none = narrow;
  narrow.sliding_window = 8, none.sliding_window = 0;
  const std::optional<Difference> found = model_difference(narrow, none);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->a, "8");
  EXPECT_EQ(found->b, "null");
}

TEST(ModelDifference, LayersThatSlideAreNamedOneByOne) {
  ModelConfig all = model_of("qwen2"), some = all;
  all.sliding_window = some.sliding_window = 8;
  some.sliding_layers.assign(static_cast<std::size_t>(some.layers), true);
  some.sliding_layers[0] = false;
  const std::optional<Difference> found = model_difference(all, some);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->path, "layer_types");
  EXPECT_EQ(found->a, std::string(static_cast<std::size_t>(all.layers), 's'));
  EXPECT_EQ(found->b, "f" + found->a.substr(1));
}

// Tests what a run says at its start about the data it is going to read.

using Lines = std::vector<std::string>;

class DataSummaryOfFiles : public ::testing::Test {
 protected:
  // `documents` of a hundred tokens each.
  std::string file(const std::string& name, std::size_t documents) {
    write_dataset(folder_ / name, Documents(documents, std::vector<std::int32_t>(100, 1)), 10);
    return folder_ / name;
  }
  Lines lines(std::vector<std::string> settings, const std::vector<WeightedPath>& train,
              const std::vector<WeightedPath>& valid = {}) {
    RunPlan plan;
    plan.config = small_with(settings);
    const DataSummary said = data_summary(plan, open_token_sources(train, valid, plan.config.data.split));
    Lines all{said.line};
    for (const Lines* more : {&said.details, &said.notes}) all.insert(all.end(), more->begin(), more->end());
    if (!said.evaluation.empty()) all.push_back(said.evaluation);
    return all;
  }
  TemporaryFolder folder_;
};

TEST_F(DataSummaryOfFiles, TokensSamplesAndEpochs) {
  const std::string text = file("text", 130), valid = file("valid", 13);
  EXPECT_EQ(lines({"batch.sequence=10", "batch.global=8", "run.steps=325"}, {{text, 1}}),
            Lines{"data: " + text + ", 13,000 tokens, 1,299 samples of 10 tokens; this run takes 2.00 epochs"});
  EXPECT_EQ(
      lines({"batch.sequence=10", "batch.global=8", "run.steps=1", "eval.every=1", "eval.steps=200"}, {{text, 1}}, {{valid, 1}}),
      (Lines{"data: " + text + ", 13,000 tokens, 1,299 samples of 10 tokens; this run takes 0.0062 epochs",
             "validation data: " + valid + ", 1,300 tokens, 129 samples of 10 tokens; an evaluation takes 129"}));
}

// 1,299 samples, of which steps of another batch.global took some.
TEST_F(DataSummaryOfFiles, EpochsAreWhatTheRunTakesFromItsFirstStepOn) {
  const std::vector<WeightedPath> text{{file("text", 130), 1}};
  RunPlan plan;
  plan.config = small_with({"batch.sequence=10", "batch.global=8", "run.epochs=1"});
  plan.config.run.steps = 163;
  const auto notes = [&](std::optional<std::int64_t> taken) {
    return data_summary(plan, open_token_sources(text, {}, std::nullopt), taken).notes;
  };
  EXPECT_EQ(notes({}), Lines{"run.epochs = 1: 163 steps of 8 samples; the last one takes 5 samples of the next epoch"});
  EXPECT_EQ(notes(1200), Lines{"run.epochs = 1: 163 steps of 8 samples; with those of the steps until now it takes 1200 samples "
                               "and leaves 99 samples out; --set run.epochs lengthens it"});
  EXPECT_EQ(notes(1400), Lines{"run.epochs = 1: 163 steps of 8 samples; with those of the steps until now it takes 1400 samples"});
}

TEST_F(DataSummaryOfFiles, ABlendByFile) {
  const std::string a = file("a", 100), b = file("b", 10);
  EXPECT_EQ(lines({"batch.sequence=10", "batch.global=10", "run.steps=100"}, {{a, 3}, {b, 1}}),
            (Lines{"data: 2 files, 11,000 tokens, 1,099 samples of 10 tokens; this run takes 0.91 epochs",
                   "data: " + a + ", 10,000 tokens, 999 samples of 10 tokens, 75 % of every batch; this run takes 0.75 epochs",
                   "data: " + b + ", 1,000 tokens, 99 samples of 10 tokens, 25 % of every batch; this run takes 2.53 epochs"}));
  const Lines many = lines({"batch.sequence=10"}, std::vector<WeightedPath>(9, {a, 1}));
  ASSERT_EQ(many.size(), 10u);
  EXPECT_EQ(many.back(), "  and 1 more file");
}

TEST_F(DataSummaryOfFiles, AThirdShareIsSaidToBeUnused) {
  const std::string text = file("text", 100);
  const Lines cut = lines(
      {"data.split=90,8,2", "batch.sequence=10", "eval.every=1", "eval.steps=1", "batch.global=1", "run.steps=899"}, {{text, 1}});
  ASSERT_EQ(cut.size(), 4u);
  EXPECT_EQ(cut[0], "data: " + text +
                        " (training part of data.split, 90 of 100 documents), 9,000 tokens, 899 samples of 10 tokens; this run "
                        "takes 1.00 epochs");
  EXPECT_EQ(cut[1],
            "validation data: " + text +
                " (validation part of data.split, 8 of 100 documents), 800 tokens, 79 samples of 10 tokens; an evaluation takes 1");
  EXPECT_EQ(cut[2], "data.split = 90,8,2: nothing reads its third share, 2 of 100 documents");
  EXPECT_EQ(lines({"data.split=90,10", "batch.sequence=10"}, {{text, 1}}).size(), 1u);
  const std::string large = file("large", 2000);
  for (const char* as_megatron : {"969,30,1", "96.9,3,0.1"})
    EXPECT_EQ(lines({std::string("data.split=") + as_megatron, "batch.sequence=10"}, {{large, 1}}).size(), 1u) << as_megatron;
  EXPECT_EQ(lines({"data.split=968,30,2", "batch.sequence=10"}, {{large, 1}}).size(), 2u);
}

TEST_F(DataSummaryOfFiles, AnEvaluationTakesNoSampleTwice) {
  struct Row {
    std::size_t documents;  // of 100 tokens
    int global, steps;
    const char* says;
  };
  for (const Row& row : {Row{2, 4, 4, "eval: 16 of 19 samples each time, eval.steps x batch.global; --set eval.steps=5 takes all"},
                         Row{2, 4, 5, "an evaluation takes 19"}, Row{2, 20, 7, "an evaluation takes 19"}}) {
    const std::string valid = file("valid", row.documents);
    const Lines said = lines({"batch.sequence=10", "eval.every=1", fmt::format("batch.global={}", row.global),
                              fmt::format("eval.steps={}", row.steps)}, {{valid, 1}}, {{valid, 1}});
    EXPECT_TRUE(said.back().ends_with(row.says)) << said.back();
  }
}

TEST_F(DataSummaryOfFiles, ASplitThatHoldsNothingOutIsWarnedOf) {
  const std::string one = file("one", 1), many = file("many", 100);
  const auto warnings = [&](const std::string& split, const std::string& path) {
    const std::vector<WeightedPath> train{{path, 1}};
    return empty_share_warnings(small_with({"data.split=" + split}), open_token_sources(train, {}, split));
  };
  for (const char* split : {"95,5", "969,30,1", "1,0.001"}) {
    const Lines said = warnings(split, one);
    ASSERT_EQ(said.size(), 1u) << split;
    const std::string what = "nothing is held out, " + one + " (validation part of data.split, 0 of 1 document)";
    EXPECT_NE(said[0].find(what), std::string::npos) << said[0];
  }
  for (const char* split : {"1", "1,0", "99,0,1"}) EXPECT_TRUE(warnings(split, one).empty()) << split << ": as it was asked for";
  EXPECT_TRUE(warnings("95,5", many).empty());
}

}  // namespace
}  // namespace trident

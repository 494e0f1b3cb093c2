// trident plan --search: what it prints, the configuration that it writes, and what it refuses.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "core/json_reader.h"
#include "tests/app/program.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"
#include "tests/train/large_machine.h"
#include "train/config/train_config.h"
#include "train/plan/run_plan.h"

namespace trident {
namespace {

constexpr const char* kConfig = TRIDENT_SOURCE_DIR "/configs/gpt3_175b_tp8_pp8.json";

std::vector<std::string> search(const std::vector<std::string>& more) {
  return plus({"plan", "--search", "--config", kConfig, "--set", "batch.global=256"}, more);
}

// As --set takes it.
std::string words_of(const JsonValue& value) {
  std::string text = to_json_text(value);
  std::erase(text, '"');
  return text;
}

void expect_refused(const std::vector<std::string>& words, const std::string& text) {
  const ProgramOutcome outcome = run_program(words);
  EXPECT_EQ(outcome.exit_code, 64) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  expect_parts(outcome.err, {text});
}

TEST(PlanSearch, SaysWhichLayoutsAreBestAndWritesTheFirst) {
  TemporaryFolder folder;
  const std::string written = folder / "best.json";
  const ProgramOutcome outcome =
      succeeded(run_program(search({"--cluster", "h100_sxm_ndr", "--gpus", "128", "--best", "3", "--json", "--write", written,
                                    "--html", folder / "page.html"})));
  const JsonValue result = parse_json(outcome.out, "a test", {.max_bytes = 1 << 24, .max_depth = 16});
  const JsonValue::Array& best = result.find("best")->items();
  ASSERT_EQ(best.size(), 3u);
  double before = 0;
  for (const JsonValue& layout : best) {
    const double seconds = layout.find("step_time_s")->as_number();
    EXPECT_GE(seconds, before);
    before = seconds;
    double sum = 0;
    for (const JsonMember& part : layout.find("time_parts_s")->members()) sum += part.value.as_number();
    EXPECT_NEAR(sum, seconds, 1e-9 * seconds);
    std::int64_t bytes = 0;
    for (const JsonMember& part : layout.find("memory_parts")->members()) bytes += part.value.as_integer();
    EXPECT_EQ(bytes, layout.find("memory_bytes")->as_integer());
    EXPECT_LT(bytes, layout.find("needed_bytes")->as_integer());
    EXPECT_LE(layout.find("needed_bytes")->as_integer(), result.find("device_bytes")->as_integer());
  }
  const std::string page = read_file(folder / "page.html");
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  for (const std::string& said : {best[2].find("layout")->as_string(), std::string("--set "), std::string("does not fit"),
                                  std::string("heads do not divide"), std::string("micro-batches of "),
                                  std::string(" UTC: trident plan search "), std::string("MFU is model FLOPs of a step")})
    EXPECT_NE(page.find(said), page.npos) << said;
  EXPECT_GT(result.find("rejected")->find("does not fit")->find("layouts")->as_integer(), 0);

  OptionValues values;
  const TrainConfig config = load_train_config(written, {}, values);
  EXPECT_EQ(config.parallel.tensor, best[0].find("tensor")->as_integer());
  EXPECT_EQ(config.parallel.pipeline, best[0].find("pipeline")->as_integer());
  EXPECT_EQ(config.batch.micro, best[0].find("micro")->as_integer());
  EXPECT_EQ(make_run_plan(config, resolve_model(config), 128, kLargeMachine).world_size(), 128);
  // The planner of one configuration takes it, too, and says the same of its memory, in the same words.
  succeeded(run_program({"plan", "--config", written}));
  const auto plan_on = [&](const std::string& form) {
    return succeeded(run_program({"plan", "cluster", "h100_sxm_ndr", "--config", written, form})).out;
  };
  const JsonValue planned = *parse_json(plan_on("--json"), "a test", {.max_bytes = 1 << 24, .max_depth = 16}).find("cluster");
  EXPECT_EQ(planned.find("needed")->find("value")->as_number(), best[0].find("needed_bytes")->as_number());
  EXPECT_EQ(planned.find("device_bytes")->as_number(), result.find("device_bytes")->as_number());
  const std::string text = succeeded(run_program(search({"--cluster", "h100_sxm_ndr", "--gpus", "128", "--best", "1"}))).out;
  expect_parts(text, {" to ", " s): ", "174.6B parameters", "128 GPUs of H100", "no run of this program on a GPU", "\n1  ",
                      "layout 1: ", "time of pipeline rank", "memory of pipeline rank", "next limit", "--html FILE and --json"});
  for (const char* const key : {"step_time_band_s", "next_limit", "variations"}) EXPECT_NE(best[0].find(key), nullptr) << key;
  const std::size_t room = text.find(" of 84.9 GB, ");
  ASSERT_NE(room, text.npos) << text;
  expect_parts(plan_on("--program"), {text.substr(room, text.find(':', room) - room) + '\n', " free\n"});
}

// Layouts whose times differ by less than predictions err are not told apart; of untrainable ones no more are shown.
TEST(PlanSearch, SaysWhichAreEqualAndCountsTheRest) {
  const std::string text = succeeded(run_program({"plan", "search", "h100_sxm_ndr", "--config", TRIDENT_SOURCE_DIR
                                                  "/configs/laptop.json", "--gpus", "16", "--best", "2", "--set",
                                                  "parallel.zero=zero1"})).out;
  expect_parts(text, {"\n1 and 2 are equal within the error of predictions\n", "\n4  ", " slower\n\n--html"});
  EXPECT_LT(text.find("are equal within"), text.find("\n1  ")) << text;
  EXPECT_EQ(text.find("\n5  "), text.npos) << text;
  EXPECT_EQ(text.find("layout 2: "), text.npos) << text;  // one has details
}

// How long a run is and its data change no plan: no form of it asks for them, and what --write leaves says neither.
TEST(PlanSearch, AsksForNothingThatNoPlanDependsOn) {
  TemporaryFolder folder;
  const std::string config = folder / "model.json", written = folder / "best.json";
  write_file(config, R"({"model": {"preset": "llama-1m"}, "batch": {"global": 8, "sequence": 32}, "log": {"trace_steps": [3, 5]},
                         "lr_schedule": {"type": "cosine", "warmup_steps": 2}})");
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"plan"},
           {"plan", "cluster", "a10_pcie"},
           {"plan", "cluster", "cpu"},
           {"bench", "--seconds", "0", "--steps", "1"},
           {"study", "--cluster", "cpu", "--vary", "micro=1|2"}}) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--config", config});
    EXPECT_EQ(succeeded(run_program(all)).out.find("run.epochs = "), std::string::npos);
  }
  const ProgramOutcome found = succeeded(
      run_program({"plan", "search", "a10_pcie", "--config", config, "--gpus", "2", "--best", "1", "--write", written}));
  expect_parts(found.out, {"written: " + written + "; to train it:\n  trident train --config " + written,
                           "data.train=PREFIX --set run.steps=N\n"});
  const JsonValue file = parse_json(read_file(written), "written");
  for (const char* const block : {"run", "data", "optimizer", "checkpoint", "cuda"}) EXPECT_EQ(file.find(block), nullptr) << block;
  EXPECT_EQ(to_json_text(*file.find("model")), R"({"preset":"llama-1m"})");
}

// A configuration that is searched in a moment, in a file of the folder.
std::string small_config(const TemporaryFolder& folder, int batch, const std::string& more = "") {
  write_file(folder / "small.json", fmt::format(
      R"({{"model": {{"model_type": "gpt2", "n_embd": 64, "n_layer": 4, "n_head": 4, "vocab_size": 300, "n_positions": 64}}, {}
          "batch": {{"global": {}, "sequence": 32}}, "optimizer": {{"lr": 1e-3}}, "run": {{"steps": 1, "dir": "{}"}},
          "data": {{"train": "none"}}}})", more, batch, folder / "run"));
  return folder / "small.json";
}

// Each layout that is printed, of small spaces, is a configuration that the planner and the program that trains take.
TEST(PlanSearch, PrintsConfigurationsThatArePlannedAndTrained) {
  TemporaryFolder folder;
  const std::string config = small_config(folder, 8, R"("precision": {"compute": "fp32"},)");
  std::size_t planned = 0;
  for (const std::string gpus : {"1", "2", "4"}) {
    const ProgramOutcome outcome = succeeded(
        run_program({"plan", "--search", "--config", config, "--cluster", "a10_pcie", "--gpus", gpus, "--json"}));
    const JsonValue result = parse_json(outcome.out, "a test", {.max_bytes = 1 << 24, .max_depth = 16});
    for (const JsonValue& layout : result.find("best")->items()) {
      std::vector<std::string> set;
      const auto add = [&](const std::string& setting) { set.insert(set.end(), {"--set", setting}); };
      for (const char* const key : {"data", "pipeline", "tensor", "virtual_stages", "schedule", "zero", "sequence_parallel"})
        add(std::string("parallel.") + key + "=" + words_of(*layout.find(key)));
      add("parallel.grad_sync=" + words_of(*layout.find("grad_sync")));
      add("batch.micro=" + words_of(*layout.find("micro")));
      add("recompute.policy=" + words_of(*layout.find("recompute")));
      const ProgramOutcome taken = run_program(plus({"plan", "--config", config}, set));
      EXPECT_EQ(taken.exit_code, 0) << layout.find("layout")->as_string() << ": " << taken.err;
      // Training gets as far as its data, which is not there: the layout is checked before.
      const ProgramOutcome started = run_program(plus({"train", "--config", config}, set));
      EXPECT_EQ(started.exit_code, 65) << layout.find("layout")->as_string() << ": " << started.err;
      ++planned;
    }
  }
  EXPECT_GE(planned, 9u);
}

// Only the time of the search may differ.
TEST(PlanSearch, SaysTheSameAgain) {
  const auto again = [](const std::vector<std::string>& more) {
    return succeeded(run_program(plus({"plan", "search", "h100_sxm_ndr", "--config", TRIDENT_SOURCE_DIR "/configs/laptop.json",
                                       "--gpus", "16", "--best", "3"}, more))).out;
  };
  const auto without_timing = [&] {
    JsonValue result = parse_json(again({"--json"}), "a test", {.max_bytes = 1 << 24, .max_depth = 16});
    EXPECT_GT(result.find("timing")->find("bound_cpu_s")->as_number(), 0);
    EXPECT_GT(result.find("timing")->find("closed_form_cpu_s")->as_number(), 0);
    std::erase_if(result.members(), [](const JsonMember& member) { return member.key == "timing"; });
    return to_json_text(result, 2);
  };
  EXPECT_EQ(without_timing(), without_timing());
  EXPECT_EQ(again({}), again({}));
}

// Amounts have digits in small models, too.
TEST(PlanSearch, IsReadableOfSmallModels) {
  TemporaryFolder folder;
  const std::string config = small_config(folder, 64);
  const ProgramOutcome outcome =
      succeeded(run_program({"plan", "--search", "--config", config, "--cluster", "a10_pcie", "--gpus", "2", "--best", "2"}));
  expect_parts(outcome.out, {"gpt2 of 223.4K parameters", " GB free: tensors ", " MB (parameters "});
  EXPECT_EQ(outcome.out.find(" 0.0 GB"), std::string::npos) << outcome.out;
}

// Ranks of a processor's search are threads of one machine: one to as many as it has cores, or --gpus. The first result takes what
// trident plan says that it takes.
TEST(PlanSearch, ProcessorsAreSearchedOverTheirRanks) {
  TemporaryFolder folder;
  const std::string written = folder / "best.json";
  std::vector<std::string> words{"plan", "search", "--config", TRIDENT_SOURCE_DIR "/configs/learn_1f1b.json", "--cluster", "cpu",
                                 "--best", "50", "--json", "--write", written};
  const JsonValue found = parse_json(succeeded(run_program(words)).out, "a test", {.max_bytes = 1 << 24, .max_depth = 16});
  const JsonValue::Array& best = found.find("best")->items();
  ASSERT_GE(best.size(), 4u);
  std::set<std::int64_t> ranks;
  double before = 0;
  for (const JsonValue& layout : best) {
    EXPECT_GE(layout.find("step_time_s")->as_number(), before);
    before = layout.find("step_time_s")->as_number();
    ranks.insert(layout.find("data")->as_integer() * layout.find("pipeline")->as_integer() * layout.find("tensor")->as_integer());
  }
  EXPECT_EQ(ranks, (std::set<std::int64_t>{1, 2}));  // the shipped profile has two cores
  EXPECT_EQ(best.size(), 4u) << "1 rank, 2 replicas, 2 stages, 2 tensor ranks: a row each, and the rest are its variations";
  std::size_t all = 0;
  for (const JsonValue& layout : best) all += 1 + layout.find("variations")->items().size();
  EXPECT_EQ(static_cast<std::int64_t>(all), found.find("fitting")->as_integer());
  const JsonValue& variation = best.front().find("variations")->items().front();
  for (const char* const key : {"zero", "recompute", "schedule", "sequence_parallel", "micro", "virtual_stages", "grad_sync"})
    EXPECT_NE(variation.find(key), nullptr) << key;
  std::vector<std::string> set{"plan", "--config", words[3], "--cluster", "cpu", "--json"};
  for (const JsonValue& setting : variation.find("settings")->items()) set.insert(set.end(), {"--set", setting.as_string()});
  const JsonValue varied = parse_json(succeeded(run_program(set)).out, "a test", {.max_bytes = 1 << 24, .max_depth = 16});
  EXPECT_EQ(varied.find("cluster")->find("step")->find("seconds")->as_number(), variation.find("closed_form_s")->as_number());
  EXPECT_NEAR(varied.find("cluster")->find("resident_bytes")->as_number(), variation.find("needed_bytes")->as_number(), 1);
  EXPECT_EQ(found.find("gpus"), nullptr);
  EXPECT_EQ(to_json_text(*found.find("ranks")), "[1,2]");
  const JsonValue planned =
      parse_json(succeeded(run_program({"plan", "--config", written, "--cluster", "cpu", "--json"})).out, "a test",
                 {.max_bytes = 1 << 24, .max_depth = 16});
  EXPECT_EQ(planned.find("cluster")->find("step")->find("seconds")->as_number(), best.front().find("step_time_s")->as_number());
  words = {"plan", "search", "--config", TRIDENT_SOURCE_DIR "/configs/learn_1f1b.json", "--cluster", "cpu", "--gpus", "4",
           "--best", "1", "--html", folder / "page.html"};
  const std::string text = succeeded(run_program(words)).out;
  expect_parts(text, {"on 2 cores, the profile cpu of ", " layouts looked at, ", "--set 'parallel="});
  EXPECT_EQ(text.find("GPU"), std::string::npos) << text;
  EXPECT_NE(text.find("\n" + (folder / "page.html") + ": open it in a browser\n"), text.npos) << text;
  words[7] = "11";
  expect_refused(words, "--gpus = 11: there is no layout of this model");
  words[5] = "h100_sxm_ndr", words[7] = "8";
  expect_parts(succeeded(run_program(words)).out, {"\nthe profile's products were fitted on models at least 1536 wide"});
}

// Documents are measured in the data, which no key says; a layout is priced by them.
TEST(PlanSearch, ProcessorsArePricedByTheDocumentsOfTheData) {
  TemporaryFolder folder;
  const std::string config = folder / "model.json", written = folder / "best.json";
  write_dataset(folder / "tokens", std::vector<std::vector<std::int32_t>>(200, std::vector<std::int32_t>(8, 7)), 300);
  write_file(config, R"({"model": {"preset": "llama-1m"}, "batch": {"global": 4, "sequence": 512},
                         "data": {"train": ")" + folder / "tokens" + R"(", "reset_attention_mask": true, "boundaries": "index"}})");
  const auto json_of = [](std::vector<std::string> words) {
    words.emplace_back("--json");
    return parse_json(succeeded(run_program(words)).out, "a test", {.max_bytes = 1 << 24, .max_depth = 16});
  };
  const JsonValue found = json_of({"plan", "search", "cpu", "--config", config, "--gpus", "2", "--best", "1", "--write", written});
  const JsonValue planned = json_of({"plan", "cluster", "cpu", "--config", written});
  EXPECT_EQ(found.find("best")->items().front().find("step_time_s")->as_number(),
            planned.find("cluster")->find("step")->find("seconds")->as_number());
}

// Three stages on two cores: one micro-batch passes them one after the other, whatever processor time says. Measured on such a
// machine: 58 ms with one micro-batch, 42 ms with two, and 63 ms of processor time (docs/benchmarks/2026-11-29-shared-cores.md).
TEST(PlanSearch, WaitingCountsWhereRanksShareCores) {
  const auto step = [](const std::string& micro) {
    const ProgramOutcome planned = run_program({"plan", "cluster", "cpu", "--config", TRIDENT_SOURCE_DIR "/configs/learn_1f1b.json",
                                                "--set", "parallel=1DP x 3PP", "--set", "batch.micro=" + micro, "--json"});
    return *parse_json(succeeded(planned).out, "a test", {.max_bytes = 1 << 24, .max_depth = 16}).find("cluster")->find("step");
  };
  const auto seconds = [&](const std::string& micro) { return step(micro).find("seconds")->as_number(); };
  EXPECT_NEAR(seconds("8"), step("8").find("cpu_seconds")->as_number(), 0.03 * seconds("8"));
  EXPECT_GT(seconds("8"), 1.25 * seconds("4"));
  EXPECT_GT(seconds("4"), seconds("1"));
  const ProgramOutcome found = succeeded(run_program({"plan", "search", "--config", TRIDENT_SOURCE_DIR "/configs/learn_1f1b.json",
                                                      "--cluster", "cpu", "--gpus", "3", "--best", "1"}));
  const std::string first = found.out.substr(found.out.find("\n1  "), 100);
  expect_parts(first, {"1DP x 3PP x 1TP", "micro-batches of 1,"});
}

TEST(PlanSearch, RefusesWhatCannotBe) {
  expect_refused(search({"--gpus", "128"}),
                 "cluster: missing; write the path of a file, or one of cpu, this-machine, a100_sxm_40gb_hdr, ");
  expect_refused({"plan", "cluster", "--config", kConfig}, "cluster: missing; write the path of a file, or one of cpu, ");
  expect_refused(search({"--cluster", "h200_sxm", "--gpus", "128"}), "or one of cpu, this-machine, a100_sxm_40gb_hdr, ");
  expect_refused({"plan", "serch", "--config", kConfig}, "unknown argument \"serch\"; did you mean trident plan search?");
  expect_refused(search({"--cluster", "h100_sxm_ndr"}), "--gpus: missing; write --gpus N");
  const std::string study = TRIDENT_SOURCE_DIR "/configs/studies/zero_7b.json";
  for (const std::vector<std::string>& words : {std::vector<std::string>{"plan", "search", "cpu"}, {"train"}})
    expect_refused(plus(words, {"--config", study}), "is a study; write trident study --config " + study + ", or give the file");
  expect_refused(search({"--cluster", "h100_sxm_ndr", "--gpus", "0"}), "--gpus = 0: must be from 1 to");
  expect_refused(search({"--cluster", "h100_sxm_ndr", "--gpus", "-8"}), "--gpus = -8");
  expect_refused(search({"--cluster", "no_such_cluster", "--gpus", "128"}), "no_such_cluster");
  expect_refused(search({"--cluster", "h100_sxm_ndr", "--gpus", "12"}), "whole nodes");
  expect_refused(search({"--cluster", "h100_sxm_ndr", "--gpus", "128", "--best", "0"}), "--best = 0");
  // 175 billion parameters on one node.
  expect_refused(search({"--cluster", "h100_sxm_ndr", "--gpus", "8"}), "no layout of this model fits");
  for (const std::string tuning : {"adapter.type=lora", "train.only=.*mlp.*", "train.freeze=.*mlp.*"})
    expect_refused(search({"--cluster", "h100_sxm_ndr", "--gpus", "128", "--set", tuning}),
                   tuning.substr(0, tuning.find('=')) + ": the search prices full training");
  expect_refused({"plan", "--search", "--cluster", "h100_sxm_ndr", "--gpus", "8"}, "nothing says which model; give --config FILE");
  const ProgramOutcome unwritable =
      run_program({"plan", "search", "h100_sxm_ndr", "--config", TRIDENT_SOURCE_DIR "/configs/laptop.json", "--gpus", "16",
                   "--write", "/nonexistent/folder/x.json"});
  EXPECT_EQ(unwritable.exit_code, 74);
  expect_parts(unwritable.err, {"/nonexistent/folder/x.json"});
}

// A key of the layout that --set gives is every layout's; what the file says is not.
TEST(PlanSearch, KeepsWhatSetGives) {
  constexpr const char* kSmall = TRIDENT_SOURCE_DIR "/configs/learn_1f1b.json";
  const auto found = [&](const std::vector<std::string>& settings, const std::string& cluster) {
    std::vector<std::string> words{"plan", "search", cluster, "--config", kSmall, "--gpus", "2", "--json", "--best", "100"};
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    return parse_json(succeeded(run_program(words)).out, "a test", {.max_bytes = 1 << 24, .max_depth = 16});
  };
  for (const std::string cluster : {"cpu", "a10_pcie"}) {
    const JsonValue free = found({}, cluster),
                    held = found({"parallel.tensor=2", "parallel.zero=zero1", "parallel.data=auto"}, cluster);
    EXPECT_EQ(to_json_text(*free.find("held")), "[]");
    EXPECT_EQ(to_json_text(*held.find("held")), R"(["parallel.tensor=2","parallel.zero=zero1"])");
    EXPECT_LT(held.find("layouts")->as_integer(), free.find("layouts")->as_integer());
    EXPECT_EQ(held.find("rejected")->find("another value than --set gives")->find("layouts")->as_integer(),
              free.find("layouts")->as_integer() - held.find("layouts")->as_integer());
    ASSERT_FALSE(held.find("best")->items().empty());
    for (const JsonValue& layout : held.find("best")->items()) EXPECT_EQ(layout.find("tensor")->as_integer(), 2);
    const JsonValue zero3 = found({"parallel.zero=zero3", "batch.micro=4", "recompute.policy=full"}, cluster);
    ASSERT_FALSE(zero3.find("best")->items().empty()) << "zero3 gathers nothing that ddp does not keep, and was asked for";
    for (const JsonValue& layout : zero3.find("best")->items()) {
      EXPECT_EQ(layout.find("zero")->as_string(), "zero3");
      EXPECT_EQ(layout.find("micro")->as_integer(), 4);
      EXPECT_EQ(layout.find("recompute")->as_string(), "full");
    }
  }
  const auto text = [&](const std::string& setting) {
    return run_program({"plan", "search", "cpu", "--config", kSmall, "--gpus", "2", "--set", setting});
  };
  expect_parts(succeeded(text("parallel=1DP x 2PP")).out,
               {"held by --set: parallel.data=1, parallel.pipeline=2, parallel.tensor=1\n"});
  expect_one_line(text("parallel.tensor=3"), 64,
                  {"parallel.tensor = 3: no layout of this model", " on 2 ranks has it; use 1, 2\n"});
  expect_one_line(text("batch.micro=3"), 64, {"batch.micro = 3: no layout of this model", "has it; use 1, 2, 4, 8\n"});
  expect_one_line(run_program({"plan", "search", "cpu", "--config", kSmall, "--set", "parallel.tensor=4"}), 64,
                  {"parallel.tensor = 4: ", " on 1, 2 ranks has it; use 1, 2\n"});
  expect_one_line(text("parallel=2DP x 1PP x 2TP"), 64,
                  {"--set: no layout of this model has all of parallel.data, parallel.pipeline, parallel.tensor; leave one"});
  expect_one_line(text("parallel.param_gather=per_use"), 64,
                  {"--set parallel.param_gather: a search does not vary it", "leave it out"});
}

// The file's own layout does not count, whatever --set holds beside it, and a key stands once in what is to be typed.
TEST(PlanSearch, HoldsWhatContradictsTheFile) {
  TemporaryFolder folder;
  const std::string config = folder / "layers.json";
  write_file(config, R"({"model": {"preset": "llama-1m"}, "batch": {"global": 8, "micro": 3, "sequence": 30},
                         "parallel": {"pipeline": 2, "layers": [1, 3], "tensor": 4, "sequence_parallel": true}})");
  const auto found = [&](std::vector<std::string> settings) {
    std::vector<std::string> words{"plan", "search", "a10_pcie", "--config", config, "--gpus", "4", "--best", "1"};
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    return succeeded(run_program(words)).out;
  };
  const std::string train = "trident train --config " + config;
  expect_parts(found({"parallel.pipeline=4"}), {"held by --set: parallel.pipeline=4\n", "\n1  1DP x 4PP x 1TP",
                                                train + " --set 'parallel=", " --set parallel.layers=null "});
  expect_parts(found({"parallel.virtual_stages=2"}), {"\n1  2DP x 2PP x 1TP", "interleaved of 2 chunks"});
  const std::string twice = found({"parallel.tensor=2", "batch.micro=4"});
  expect_parts(twice, {train + " --set batch.micro=4 --set 'parallel="});
  EXPECT_EQ(twice.find("--set parallel.tensor=2", twice.find("to train layout 1")), std::string::npos) << twice;
}

// The line to type next: by Slurm where there are several nodes, in a folder of its own, and with words for what is not given.
TEST(PlanSearch, SaysWhatToTypeNext) {
  TemporaryFolder folder;
  const std::string config = folder / "model.json", written = folder / "best.json";
  write_file(config, R"({"model": {"preset": "llama-1m"}, "batch": {"global": 32, "sequence": 32}})");
  const auto next = [&](const std::vector<std::string>& more) {
    const std::string out = succeeded(run_program(plus({"plan", "search", "--config", config, "--best", "1"}, more))).out;
    return out.substr(out.rfind("\n\n") + 2);
  };
  expect_parts(next({"h100_sxm_ndr", "--gpus", "16", "--write", written, "--set", "run.steps=7"}),
               {"written: " + written + "; to train it:\n  TRIDENT=" TRIDENT_BINARY " sbatch --nodes=2 --ntasks-per-node=8 "
                "--gpus-per-task=1 ", "train.sbatch " + written + " --set run.dir=runs/best --set data.train=PREFIX\n"});
  std::filesystem::create_directories(folder / "folders/trident");
  const std::string search = " plan search h100_sxm_ndr --gpus 16 --best 1 --config " + config;
  for (const std::string& in_path : {"PATH=" + (folder / "folders") + ":$(dirname " TRIDENT_BINARY "):$PATH exec trident",
                                     std::string("cd $(dirname " TRIDENT_BINARY ") && PATH=$PATH: exec ./trident")})
    expect_parts(run_command({"sh", "-c", in_path + search}).out, {"to train layout 1:\n  sbatch --nodes=2 "});
  // A folder that is there belongs to another run, which a start in it would go on with.
  const std::string taken = folder / "taken";
  std::filesystem::create_directories(taken + "-2");
  std::filesystem::create_directories(taken);
  const std::vector<std::string> there{"cpu", "--gpus", "1", "--set", "run.dir=" + taken, "--set", "checkpoint.dir=" + taken};
  const std::string instead = " --set run.dir=" + taken + "-3 --set checkpoint.dir=" + taken + "-3/ckpt ";
  expect_parts(next(plus(there, {"--write", written})), {"trident train --config " + written + instead});
  const std::string unwritten = next(there);
  expect_parts(unwritten, {instead});
  const std::string unseen(300, 'a');  // nobody can say that it is there: the name is too long
  expect_parts(next({"cpu", "--gpus", "1", "--set", "run.dir=" + unseen, "--set", "checkpoint.dir=" + unseen}), {unseen});
  EXPECT_EQ(unwritten.find("run.dir=" + taken + ' '), std::string::npos) << unwritten;
  const std::string line = next({"h100_sxm_ndr", "--gpus", "2", "--set", "run.dir=a b", "--set", "data.train=x"});
  expect_parts(line, {"to train layout 1:\n  trident train --config " + config + " --set 'run.dir=a b' --set data.train=x",
                      " --set 'parallel=", " --set run.steps=N\n"});
}

// In any spelling; what a result says to train it with is what --write writes of it.
TEST(PlanSearch, AResultSaysHowToTrainIt) {
  TemporaryFolder folder;
  const std::string config = small_config(folder, 8), written = folder / "second.json";
  const std::vector<std::string> words{"plan",   "search", "--config", config,     "--cluster", "a10_pcie", "--gpus",
                                       "2",      "--best", "2",        "--write",  written,     "--rank",   "2"};
  const ProgramOutcome found = run_program(words);
  ASSERT_EQ(found.exit_code, 0) << found.err;
  const std::string line = "    to train it:";
  expect_parts(found.out, {"\nlayout 2: "});
  const std::size_t at = found.out.find(line);
  ASSERT_NE(at, std::string::npos) << found.out;
  const std::string settings = found.out.substr(at + line.size(), found.out.find('\n', at) - at - line.size());
  const ProgramOutcome printed = run_command(
      {"sh", "-c", fmt::format("{} train --config {} --print-config {}", TRIDENT_BINARY, config, settings)});
  ASSERT_EQ(printed.exit_code, 0) << printed.err << settings;
  EXPECT_EQ(printed.out, succeeded(run_program({"train", "--config", written, "--print-config"})).out);
  // It says what the first one said and what the search chose, and trains.
  const JsonValue file = parse_json(read_file(written), "written");
  for (const char* const block : {"cuda", "lr_schedule", "eval", "log"}) EXPECT_EQ(file.find(block), nullptr) << block;
  EXPECT_EQ(to_json_text(*file.find("optimizer")), R"({"lr":0.001})");
  EXPECT_EQ(file.find("model")->members().size(), 6u);
  write_dataset(folder / "tokens", {std::vector<std::int32_t>(1000, 7)}, 300);
  const ProgramOutcome trained = succeeded(run_program({"train", "--config", written, "--set", "data.train=" + folder / "tokens",
                                                        "--set", "run.dir=" + folder / "run"}));
  expect_parts(trained.out, {" = 2 ranks, ", "result: step 1/1"});
  std::vector<std::string> third = words;
  third.back() = "3";
  expect_refused(third, "--rank = 3: only 2 layouts are shown; give another, or a larger --best");
  third[9] = "20", third.back() = "20";
  expect_refused(third, "layouts are shown; give another, or choose among variations with --set, such as parallel.zero=zero1");
}

}  // namespace
}  // namespace trident

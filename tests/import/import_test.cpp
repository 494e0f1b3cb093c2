// From leaves of inputs to a configuration, by a table of the test's own; tables of systems have goldens.
#include "import/import.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <ctime>

#include "core/file_io.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

using enum Verdict;
using S = ForeignSystem;

constexpr ForeignKey kAccelerateRows[] = {
    {"stage = 2", kMapped, "parallel.zero", "\"zero2\""},
    {"stage = 3", kMapped, "parallel.zero", "\"zero3\""},
    {"num_processes", kMapped, "@ranks"},
    {"num_machines", kMapped, "@nodes", {}, {}, "1"},
    {"per_machine", kMapped, "@ranks_per_node"},
    {"tp_size", kMapped, "parallel.tensor"},
    {"cp_size", kNotBuilt, "parallel.context"},
    {"schedule", kMapped, "parallel.schedule"},
    {"offload", kNotBuilt, "parallel.context", "2"},
    {"mixed_precision = bf16, fp16", kMapped, "precision.compute"},
    {"clipping", kMapped, "optimizer.grad_clip", {}, {}, "0.5"},
    {"rdzv_*", kLauncher, {}, {}, "mpirun or srun starts the ranks"},
    {"prefetch", kAlways, {}, {}, "units are gathered ahead"},
    {"tpu", kRefused, {}, {}, "ranks compute on CPUs and CUDA GPUs"},
    {"tune = true", kDiffers, "trident plan search", {}, "nothing is tried while training"},
    {"eval_only", kRefused, "trident eval", {}, "train trains"},
};
// Nothing but what all systems have in common is derived of these.
constexpr ForeignKey kPlainRows[] = {
    {"stage = 3", kMapped, "parallel.zero", "\"zero3\""},
    {"replicas", kMapped, "@replicate"},
    {"shards", kMapped, "@shard"},
};
constexpr ForeignKey kDeepSpeedRows[] = {
    {"micro", kMapped, "batch.micro"},
    {"total", kMapped, "batch.global"},
    {"gas", kMapped, "@accumulation"},
    {"bucket", kMapped, "parallel.bucket_mb", {}, {}, {}, Convert::kElementsToMb},
};
constexpr ForeignKey kImportRows[] = {
    {"micro_batch", kMapped, "batch.micro", {}, {}, "8"},
    {"micro", kAlways, {}, {}, "batches are always small"},
    {"accumulation", kMapped, "@accumulation", {}, {}, "1"},
    {"bf16", kMapped, "precision.compute", "\"bf16\""},
    {"fp16", kMapped, "precision.compute", "\"fp16\""},
    {"lr", kMapped, "optimizer.lr", {}, {}, "5e-5"},
    {"beta1", kMapped, "@beta1", {}, {}, "0.9"},
    {"beta2", kMapped, "@beta2", {}, {}, "0.999"},
    {"clip", kMapped, "optimizer.grad_clip", {}, {}, "1.0"},
    {"scheduler = linear", kMapped, "lr_schedule.type", "\"linear\"", {}, "\"linear\""},
    {"scheduler = cosine", kMapped, "lr_schedule.type", "\"cosine\"", "half a wave"},
    {"min_lr_rate", kMapped, "@min_lr_ratio"},
    {"warmup_steps", kMapped, "lr_schedule.warmup_steps"},
    {"warmup_ratio", kMapped, "@warmup_ratio"},
    {"epochs", kMapped, "run.epochs", {}, {}, "3"},
    {"max_steps", kMapped, "@max_steps"},
    {"tokens", kMapped, "@train_tokens"},
    {"samples", kMapped, "@train_samples"},
    {"length", kMapped, "batch.sequence"},
    {"save_strategy", kMapped, "@save_strategy", {}, {}, "\"steps\""},
    {"save_steps", kMapped, "@save_steps", {}, {}, "500"},
    {"eval_strategy", kMapped, "@eval_strategy"},
    {"eval_steps", kMapped, "@eval_steps"},
    {"logging_steps", kMapped, "@logging_steps"},
    {"window", kMapped, "model.sliding_window"},
    {"layers", kMapped, "model.num_hidden_layers"},
    {"adapter", kMapped, "adapter.type"},
    {"modules", kMapped, "adapter.target_modules", {}, {}, {}, Convert::kList},
    {"type", kMapped, "model.model_type"},
    {"output_dir", kMapped, "run.dir"},
    {"shuffle", kMapped, "data.shuffle"},
    {"steps", kMapped, "run.steps"},
    {"model", kMapped, "@model"},
    {"dataset", kMapped, "@dataset"},
    {"kto = true", kNotBuilt, "loss.type", "\"kto\"", "answers are judged alone"},
};
constexpr ForeignSection kTestSections[] = {{S::kAccelerate, "", kAccelerateRows},
                                            {S::kDeepSpeed, "", kDeepSpeedRows},
                                            {S::kHuggingFace, "", kImportRows},
                                            {S::kLauncher, "", kPlainRows}};

// Keys of one input, one a line.
std::vector<ForeignLeaf> leaves_of(S system, const std::string& file, std::vector<std::pair<std::string, JsonValue>> keys) {
  std::vector<ForeignLeaf> leaves;
  for (auto& [key, value] : keys) leaves.push_back({system, file, static_cast<int>(leaves.size()) + 1, 1, key, value});
  return leaves;
}
std::vector<ForeignLeaf> yaml(std::vector<std::pair<std::string, JsonValue>> keys) {
  return leaves_of(S::kAccelerate, "a.yaml", std::move(keys));
}
std::vector<ForeignLeaf> json(std::vector<std::pair<std::string, JsonValue>> keys) {
  return leaves_of(S::kDeepSpeed, "ds.json", std::move(keys));
}
std::vector<ForeignLeaf> flags(std::vector<std::pair<std::string, JsonValue>> keys) {
  for (auto& [key, value] : keys) key.insert(0, "--");
  return leaves_of(S::kHuggingFace, "run.sh", std::move(keys));
}
std::vector<ForeignLeaf> plain(std::vector<std::pair<std::string, JsonValue>> keys) {
  return leaves_of(S::kLauncher, "p.yaml", std::move(keys));
}
std::vector<ForeignLeaf> operator+(std::vector<ForeignLeaf> a, const std::vector<ForeignLeaf>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Import imported(const std::vector<ForeignLeaf>& leaves, std::optional<std::int64_t> ranks = {}) {
  static const ForeignTables tables(kTestSections);
  return import_leaves(leaves, {"", ranks}, tables);
}
void expect_refused(const std::vector<ForeignLeaf>& leaves, const std::vector<std::string>& parts) {
  expect_error<ConfigError>([&] { imported(leaves); }, parts);
}

const ImportedValue* find_value(const Import& import, std::string_view path) {
  const auto found = std::ranges::find(import.values, path, &ImportedValue::path);
  return found == import.values.end() ? nullptr : &*found;
}
// The value as JSON text; "nothing" where there is none.
std::string value_of(const Import& import, std::string_view path) {
  const ImportedValue* const value = find_value(import, path);
  return value == nullptr ? "nothing" : to_json_text(value->value);
}
const ImportedKey& key_named(const Import& import, std::string_view name) {
  return *std::ranges::find_if(import.keys, [&](const ImportedKey& key) { return key.leaf.key == name; });
}

TEST(Import, EveryLeafHasOneVerdict) {
  const Import import = imported(yaml({{"stage", 2},
                                       {"rdzv_backend", "static"},
                                       {"prefetch", "BACKWARD_PRE"},
                                       {"_comment", "mine"},
                                       {"config.x-note", "mine"},
                                       {"tpu", false},
                                       {"tune", true},
                                       {"offload", "none"},
                                       {"block", JsonValue::Object{}}}));
  const std::vector<Verdict> expected{kMapped, Verdict::kLauncher, kAlways, kAlways, kAlways, kAlways, kDiffers, kAlways, kAlways};
  ASSERT_EQ(import.keys.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(import.keys[i].verdict, expected[i]) << import.keys[i].leaf.key;
  EXPECT_EQ(import.keys[0].to, "parallel.zero = \"zero2\"");
  EXPECT_EQ(import.keys[1].note, "mpirun or srun starts the ranks");
  EXPECT_EQ(import.keys[3].note, "a comment");
  EXPECT_EQ(import.keys[6].to, "trident plan search");
  EXPECT_EQ(find_value(import, "parallel.zero")->origin, "a.yaml:1 stage: 2");
}

TEST(Import, AMisspeltKeyIsRefusedWithTheNearestName) {
  expect_refused(yaml({{"stage", 2}, {"num_proceses", 8}}),
                 {"a.yaml:2: unknown key \"num_proceses\" of Accelerate; did you mean num_processes?"});
  expect_refused(flags({{"warmup-step", 8}}), {"run.sh:1: unknown key \"--warmup-step\"", "did you mean --warmup-steps?"});
  expect_refused(yaml({{"stag", 2}, {"num_proceses", 8}}),
                 {"a.yaml:1: unknown key \"stag\"", "; also a.yaml:2: unknown key \"num_proceses\""});
  expect_refused(flags({{"n_layer", 8}}),
                 {"unknown key \"--n_layer\"", "leave it out there, and give it by --set model.n_layer=..."});
  expect_refused(json({{"entirely_else", 8}}), {"unknown key \"entirely_else\" of DeepSpeed; correct it or leave it out"});
}

TEST(Import, AValueThatNoRowOfAKnownKeyHasIsRefusedWithThoseThatDo) {
  expect_refused(yaml({{"mixed_precision", "bf32"}}),
                 {"a.yaml:1 mixed_precision: bf32: there is no such value of this key; take bf16, fp16"});
}

TEST(Import, ARefusedKeyNamesPlaceReasonAndRemedy) {
  expect_refused(yaml({{"tpu", true}}), {"a.yaml:1 tpu: true: ranks compute on CPUs and CUDA GPUs; leave it out"});
  expect_refused(yaml({{"eval_only", "yes"}}), {"a.yaml:1 eval_only: yes: train trains; use trident eval"});
  for (const JsonValue& neutral : {JsonValue(false), JsonValue(), JsonValue(0), JsonValue("no"), JsonValue("None"), JsonValue(""),
                                   JsonValue(JsonValue::Array{}), JsonValue("False")})
    EXPECT_EQ(imported(yaml({{"tpu", neutral}})).keys[0].verdict, kAlways) << to_json_text(neutral);
}

TEST(Import, InputsThatDisagreeAreRefusedWithBothPlaces) {
  expect_refused(
      yaml({{"mixed_precision", "bf16"}}) + flags({{"fp16", true}}),
      {"run.sh:1 --fp16: a.yaml:1 mixed_precision: bf16 says otherwise (precision.compute: \"fp16\" and \"bf16\"); keep one"});
  expect_refused(json({{"gas", 4}}) + flags({{"accumulation", "2"}}),
                 {"run.sh:1 --accumulation 2: ds.json:1 gas: 4 says otherwise;"});
  const Import same = imported(yaml({{"mixed_precision", "bf16"}, {"clipping", 1}}) + flags({{"bf16", true}, {"clip", "1.0"}}));
  EXPECT_EQ(value_of(same, "precision.compute"), "\"bf16\"");
  EXPECT_EQ(find_value(same, "optimizer.grad_clip")->origin, "a.yaml:2 clipping: 1, run.sh:2 --clip 1.0");
  EXPECT_EQ(key_named(same, "--bf16").to, "precision.compute = \"bf16\"");
  for (const bool is_first : {true, false}) {  // nobody knows what the script's own number is
    std::vector<ForeignLeaf> open = flags({{"accumulation", "$(x)"}});
    open[0].remark = "executed";
    open = (is_first ? open + json({{"gas", 4}}) : json({{"gas", 4}}) + open) + flags({{"micro_batch", 2}});
    EXPECT_EQ(value_of(imported(open, 2), "batch.global"), "16");
    EXPECT_EQ(key_named(imported(open, 2), "--accumulation").note, "executed; ds.json:1 gas: 4 counts in its place");
  }
}

TEST(Import, TextsOfFlagsBecomeWhatTheOptionTakes) {
  const Import import = imported(flags({{"lr", "1.0e-5"},
                                        {"micro_batch", "5e1"},
                                        {"shuffle", "False"},
                                        {"output_dir", "2024"},
                                        {"modules", "q_proj, v_proj"},
                                        {"type", "mistral"},
                                        {"window", "4095"},
                                        {"fp16", "false"},
                                        {"clip", JsonValue()},
                                        {"adapter", "lora"}}) +
                                 json({{"bucket", 5e8}}));
  EXPECT_EQ(value_of(import, "optimizer.lr"), "1e-05");
  EXPECT_EQ(value_of(import, "batch.micro"), "50");
  EXPECT_EQ(value_of(import, "data.shuffle"), "false");
  EXPECT_EQ(value_of(import, "run.dir"), "\"2024\"");
  EXPECT_EQ(value_of(import, "adapter.target_modules"), "[\"q_proj\",\"v_proj\"]");
  EXPECT_EQ(value_of(import, "model.sliding_window"), "4095");
  EXPECT_EQ(value_of(import, "parallel.bucket_mb"), "2000.0");
  EXPECT_NE(value_of(import, "precision.compute"), "\"fp16\"") << "a switch that is off";
  EXPECT_EQ(value_of(import, "optimizer.grad_clip"), "1.0") << "null says nothing: the default";
  expect_refused(flags({{"lr", "fast"}}), {"run.sh:1 --lr fast: optimizer.lr = \"fast\": must be a number"});
  expect_refused(flags({{"micro_batch", "2.5"}}), {"run.sh:1 --micro_batch 2.5: batch.micro = 2.5: must be an integer"});
}

TEST(Import, DefaultsOfTheSystemsAreFilledInAndMarked) {
  const Import import = imported(yaml({{"num_processes", 4}}) + flags({{"bf16", true}}));
  EXPECT_EQ(value_of(import, "optimizer.betas"), "[0.9,0.999]");
  EXPECT_EQ(value_of(import, "optimizer.grad_clip"), "1.0") << "the program's goes before the launcher's";
  EXPECT_EQ(value_of(imported(yaml({{"num_processes", 4}})), "optimizer.grad_clip"), "0.5");
  EXPECT_EQ(value_of(import, "lr_schedule.type"), "\"linear\"");
  EXPECT_EQ(value_of(import, "checkpoint.every"), "500");
  EXPECT_EQ(value_of(import, "batch.global"), "32");
  EXPECT_TRUE(find_value(import, "batch.global")->is_default);
  for (const char* path : {"optimizer.betas", "optimizer.lr", "run.epochs"}) {
    EXPECT_TRUE(find_value(import, path)->is_default) << path;
    EXPECT_NE(std::ranges::find(import.defaults, path, &ImportedValue::path), import.defaults.end()) << path;
  }
  EXPECT_EQ(find_value(import, "optimizer.lr")->origin, "TrainingArguments' default");
  EXPECT_EQ(std::ranges::find(import.defaults, "precision.compute", &ImportedValue::path), import.defaults.end());
  EXPECT_FALSE(find_value(imported(flags({{"beta2", "0.95"}})), "optimizer.betas")->is_default);
}

TEST(Import, TheBatchFollowsFromItsParts) {
  const Import import =
      imported(yaml({{"num_processes", 8}, {"tp_size", 2}}) + flags({{"micro_batch", "8"}, {"accumulation", "2"}}));
  EXPECT_EQ(value_of(import, "parallel.data"), "4");
  EXPECT_EQ(value_of(import, "batch.global"), "64");
  EXPECT_EQ(import.ranks, 8);
  EXPECT_EQ(key_named(import, "--accumulation").to, "batch.global = 64");
  EXPECT_EQ(key_named(import, "num_processes").to, "parallel.data = 4; batch.global = 64");
  EXPECT_EQ(key_named(import, "--micro_batch").to, "batch.micro = 8; batch.global = 64");
  EXPECT_EQ(std::ranges::find(import.defaults, "batch.global", &ImportedValue::path), import.defaults.end()) << "all is given";
  const Import in_part = imported(flags({{"beta1", 0.8}, {"min_lr_rate", 0.1}, {"save_strategy", "steps"}}), 4);
  for (const ImportedValue& value : in_part.defaults)
    EXPECT_EQ(value.origin.find("run.sh"), std::string::npos) << value.path << " is no default: " << value.origin;
  EXPECT_EQ(find_value(import, "batch.global")->origin,
            "run.sh:1 --micro_batch 8, run.sh:2 --accumulation 2, a.yaml:1 num_processes: 8, a.yaml:2 tp_size: 2");
  const Import by_total = imported(json({{"total", 128}, {"gas", 2}}), 16);
  EXPECT_EQ(value_of(by_total, "batch.micro"), "4");
  EXPECT_EQ(value_of(by_total, "parallel.data"), "16");
  EXPECT_EQ(value_of(imported(json({{"total", 128}, {"gas", 2}, {"micro", 4}})), "parallel.data"), "16");
  EXPECT_EQ(value_of(imported(yaml({{"num_machines", 2}, {"per_machine", 4}})), "parallel.data"), "8");
}

TEST(Import, RanksOfTheCommandLineCountAndAreSaid) {
  const Import import = imported(yaml({{"num_processes", 8}}), 16);
  EXPECT_EQ(value_of(import, "parallel.data"), "16");
  EXPECT_EQ(key_named(import, "num_processes").note, "--ranks 16 counts in its place");
  EXPECT_EQ(key_named(imported(yaml({{"num_processes", 8}}), 8), "num_processes").note, "8 ranks");
}

TEST(Import, NumbersThatCannotBeAreRefusedBeforeTheyAreMultipliedOrDivideAnother) {
  expect_refused(yaml({{"num_processes", 4}}) + flags({{"micro_batch", 0}, {"accumulation", 2}}),
                 {"run.sh:1 --micro_batch 0: batch.micro = 0: must be an integer from 1"});
  expect_refused(yaml({{"num_processes", 4}}) + flags({{"micro_batch", 2147483647}, {"accumulation", 9e15}}),
                 {"run.sh:2 --accumulation 9000000000000000", "9e15 or less"});
  for (const char* const key : {"save_steps", "logging_steps", "max_steps"})
    for (const JsonValue& huge : {JsonValue("99999999999999999999"), JsonValue(1e300)})
      expect_refused(flags({{key, huge}}), {fmt::format("run.sh:1 --{} ", key), ": "});
  expect_refused(yaml({{"tp_size", -2}}), {"a.yaml:1 tp_size: -2: "});
  for (const char* const key : {"accumulation", "tokens", "window", "layers", "save_steps"})
    expect_refused(yaml({{"num_processes", 4}}) + flags({{"micro_batch", 2}, {"length", 8}, {key, -4}}),
                   {fmt::format("run.sh:3 --{} -4: must be ", key)});
  EXPECT_EQ(value_of(imported(flags({{"save_steps", "1_048_576"}})), "checkpoint.every"), "1048576") << "as Python reads it";
  expect_refused(yaml({{"num_processes", -4}}) + flags({{"micro_batch", 2}}), {"a.yaml:1 num_processes: -4: must be 0 or more"});
  expect_refused(yaml({{"per_machine", 8}, {"num_machines", "2-4"}}), {"num_machines: 2-4: must be a number; write one number"});
  std::vector<ForeignLeaf> open = yaml({{"num_processes", 4}}) + flags({{"micro_batch", "$1"}, {"accumulation", 2}});
  open[1].remark = "an argument";
  std::string unknown;
  for (const ImportedValue& value : imported(open).values) unknown += value.unknown.empty() ? "" : value.path + ' ';
  EXPECT_EQ(unknown, "batch.global batch.micro ") << "what is made of what nobody knows is as unknown";
}

TEST(Import, AnErrorGivesNoReasonOfAFlagWhoseNameIsItsBeginning) {
  std::vector<ForeignLeaf> open =
      yaml({{"num_processes", 4}}) + flags({{"micro", true}, {"micro_batch", "x"}, {"accumulation", 2}});
  open[1].remark = "an argument";
  open[2].line = 1;
  const auto error = [&] { return error_of<ConfigError>([&] { imported(open); }); };
  EXPECT_EQ(error(), "run.sh:1 --micro_batch x: must be a number; correct it");
  open[2].remark = "another";
  EXPECT_TRUE(error().ends_with(" (another)")) << error();
}

TEST(Import, ABatchThatDoesNotDivideIsRefused) {
  expect_refused(yaml({{"num_processes", 6}, {"tp_size", 4}}),
                 {"a.yaml:1 num_processes: 6, a.yaml:2 tp_size: 4: parallel.data, ranks / (parallel.tensor)",
                  "is not a whole number: 6 / 4"});
  expect_refused(yaml({{"num_processes", 4}}) + json({{"total", 100}, {"micro", 8}, {"gas", 4}}),
                 {"ds.json:1 total: 100: is not micro-batch x accumulation x data-parallel ranks = 8 x 4 x 4 = 128",
                  "ds.json:2 micro: 8, ds.json:3 gas: 4, a.yaml:1 num_processes: 4"});
  expect_refused(yaml({{"num_processes", 4}}) + json({{"total", 100}, {"micro", 8}}), {"is not a whole number: 100 / 32"});
}

TEST(Import, AnUnknownNumberOfRanksIsSaidAndNotGuessed) {
  const Import import = imported(flags({{"micro_batch", 8}, {"accumulation", 2}}));
  EXPECT_EQ(value_of(import, "batch.global"), "nothing");
  EXPECT_EQ(value_of(import, "parallel.data"), "nothing");
  EXPECT_EQ(import.ranks, std::nullopt);
  const std::string remedy = "give trident import --ranks N, or trident train --import --set parallel.data=N";
  EXPECT_NE(key_named(import, "--accumulation").note.find(remedy), std::string::npos);
  EXPECT_EQ(value_of(imported(flags({{"micro_batch", 8}, {"accumulation", 2}}), 4), "batch.global"), "64");
}

TEST(Import, AutoIsResolvedByWhatOthersSay) {
  const Import import = imported(json({{"micro", "auto"}, {"gas", "auto"}, {"total", "auto"}, {"bucket", "auto"}}) +
                                     flags({{"micro_batch", 2}, {"accumulation", 4}}),
                                 2);
  EXPECT_EQ(key_named(import, "micro").to, "batch.micro = 2");
  EXPECT_EQ(key_named(import, "micro").note, "resolved to 2 (run.sh:1 --micro_batch 2)");
  EXPECT_EQ(key_named(import, "gas").note, "resolved to 4 (run.sh:2 --accumulation 4)");
  EXPECT_EQ(key_named(import, "total").to, "batch.global = 16");
  EXPECT_EQ(key_named(import, "bucket").note, "no input says it: ours stays");
}

TEST(Import, ReservedKeysAreAmongTheValuesWithTheirOwnText) {
  const Import import = imported(yaml({{"cp_size", 2}, {"schedule", "zb-h1"}}) + flags({{"kto", true}}));
  EXPECT_EQ(value_of(import, "parallel.context"), "2");
  EXPECT_EQ(value_of(import, "parallel.schedule"), "\"zb-h1\"");
  EXPECT_EQ(key_named(import, "cp_size").verdict, kNotBuilt);
  EXPECT_EQ(key_named(import, "cp_size").note, "not built yet; remove the key or set it to 1");
  EXPECT_EQ(key_named(import, "schedule").verdict, kNotBuilt);
  EXPECT_EQ(key_named(import, "schedule").note, "not built yet; use 1f1b");
  EXPECT_EQ(key_named(import, "--kto").note.find("answers are judged alone; not built yet"), 0u);
  EXPECT_EQ(imported(yaml({{"cp_size", 1}})).keys[0].verdict, kAlways);
}

TEST(Import, CopiesAndSharersBecomeAPresetOrAGroup) {
  const Import copies = imported(plain({{"replicas", 4}, {"shards", 1}}));
  EXPECT_EQ(value_of(copies, "parallel.zero"), "\"ddp\"");
  EXPECT_EQ(value_of(copies, "parallel.data"), "4");
  const Import shared = imported(plain({{"shards", -1}, {"stage", 3}}), 8);
  EXPECT_EQ(value_of(shared, "parallel.zero"), "\"zero3\"");
  EXPECT_EQ(value_of(shared, "parallel.data"), "8");
  const Import both = imported(plain({{"replicas", 2}, {"shards", -1}, {"stage", 3}}), 8);
  EXPECT_EQ(value_of(both, "parallel.shard_group"), "4");
  EXPECT_EQ(key_named(both, "replicas").verdict, kNotBuilt);
}

TEST(Import, LengthsFollowFromStepsAndShares) {
  const Import by_steps = imported(flags({{"max_steps", 100}, {"warmup_ratio", "0.03"}, {"lr", 1e-3}, {"min_lr_rate", 0.5}}));
  EXPECT_EQ(value_of(by_steps, "run.steps"), "100");
  EXPECT_EQ(value_of(by_steps, "run.epochs"), "nothing");
  EXPECT_EQ(value_of(by_steps, "lr_schedule.warmup_steps"), "3");
  EXPECT_EQ(value_of(by_steps, "lr_schedule.min_lr"), "0.0005");
  const Import by_epochs = imported(flags({{"max_steps", -1}, {"epochs", 1}, {"warmup_ratio", 0.03}}));
  EXPECT_EQ(value_of(by_epochs, "run.epochs"), "1.0");
  EXPECT_EQ(value_of(by_epochs, "lr_schedule.warmup_steps"), "0.03");
  EXPECT_EQ(value_of(imported(flags({{"warmup_steps", 7}, {"warmup_ratio", 0.03}})), "lr_schedule.warmup_steps"), "7");
  const Import by_tokens = imported(flags({{"tokens", "1e9"}, {"length", 4000}}) + json({{"total", 1000}}));
  EXPECT_EQ(value_of(by_tokens, "run.steps"), "250");
  const auto by_both = [](int samples) {
    return imported(flags({{"tokens", "1e9"}, {"samples", samples}, {"length", 4000}}) + json({{"total", 1000}}));
  };
  EXPECT_EQ(value_of(by_both(100'000), "run.steps"), "100") << "the first of both ends the run";
  EXPECT_EQ(value_of(by_both(900'000), "run.steps"), "250");
  EXPECT_EQ(key_named(by_both(900'000), "--samples").note, "the other number ends the run before");
}

TEST(Import, StrategiesBecomeIntervals) {
  const auto every = [&](std::vector<std::pair<std::string, JsonValue>> keys, std::string_view path) {
    return value_of(imported(flags(std::move(keys))), path);
  };
  EXPECT_EQ(every({{"save_strategy", "no"}, {"save_steps", 5}}, "checkpoint.every"), "0");
  EXPECT_EQ(every({{"save_strategy", "epoch"}}, "checkpoint.every"), "\"epoch\"");
  EXPECT_EQ(every({{"save_steps", "20000"}}, "checkpoint.every"), "20000");
  EXPECT_EQ(every({{"save_steps", 0.1}, {"max_steps", 95}}, "checkpoint.every"), "10");
  EXPECT_EQ(every({{"save_strategy", "best"}}, "checkpoint.keep_best"), "true");
  EXPECT_EQ(every({{"eval_strategy", "steps"}, {"logging_steps", 7}}, "eval.every"), "7");
  EXPECT_EQ(every({{"eval_strategy", "no"}}, "eval.every"), "0");
  EXPECT_EQ(every({{"logging_steps", 7}}, "log.every"), "7");
}

TEST(Import, NamesOfAHubAreAnsweredWithWhatToGive) {
  const TemporaryFolder folder;
  write_file(folder / "text.bin", "");
  write_file(folder / "text.idx", "");
  const Import local = imported(flags({{"model", folder.path()}, {"dataset", folder / "text"}}));
  EXPECT_EQ(value_of(local, "model.init_from"), in_quotes(folder.path(), 4096));
  EXPECT_EQ(value_of(local, "data.train"), in_quotes(folder / "text", 4096));
  const Import preset = imported(flags({{"model", "Qwen/Qwen2.5-1.5B"}, {"dataset", "open-r1/OpenR1-Math-220k"}}));
  EXPECT_EQ(value_of(preset, "model.preset"), "\"Qwen/Qwen2.5-1.5B\"");
  EXPECT_NE(key_named(preset, "--model").note.find("--set model.init_from=DIR for the weights"), std::string::npos);
  EXPECT_EQ(value_of(preset, "data.train"), "nothing");
  EXPECT_NE(key_named(preset, "--dataset").note.find("trident data prepare"), std::string::npos);
  EXPECT_NE(
      key_named(imported(flags({{"model", "nobody/nothing"}})), "--model").note.find("give one with --set model.init_from=DIR"),
      std::string::npos);
}

TEST(Import, TheTextIsJsonWithOriginsInTheTablesOrder) {
  const std::vector<ForeignLeaf> leaves =
      flags({{"output_dir", "a\nb \x1b[31m\"*/"}, {"type", "llama"}, {"window", 3}, {"lr", 1e-5}}) +
      yaml({{"stage", 2}, {"cp_size", 2}});
  expect_refused(leaves, {"run.dir = ", "contains a control character"});
  const Import import = imported(flags({{"type", "llama"}, {"window", 3}, {"lr", 1e-5}}) + yaml({{"stage", 2}, {"cp_size", 2}}));
  const std::string text = config_text(import);
  const JsonValue config = parse_json(text, "c.json");
  EXPECT_EQ(config, *report_of(import).find("config"));
  EXPECT_NE(text.find("    \"zero\": \"zero2\"  // a.yaml:1 stage: 2\n"), std::string::npos) << text;
  EXPECT_NE(text.find("    \"model_type\": \"llama\",  // run.sh:1 --type llama\n    \"sliding_window\": 3"), std::string::npos)
      << text;
  EXPECT_LT(text.find("\"run\""), text.find("\"model\""));
  EXPECT_LT(text.find("\"model\""), text.find("\"parallel\""));
  EXPECT_EQ(text,
            config_text(imported(flags({{"type", "llama"}, {"window", 3}, {"lr", 1e-5}}) + yaml({{"stage", 2}, {"cp_size", 2}}))));
  EXPECT_EQ(config_text(Import()), "{\n}\n");
  Import odd;
  odd.values.push_back({"run.dir", "x", "a\nb\x1b[31m" + std::string(500, 'c')});
  const std::string shown_text = config_text(odd);
  EXPECT_EQ(std::ranges::count(shown_text, '\n'), 5);
  EXPECT_EQ(shown_text.find('\x1b'), shown_text.npos);
  EXPECT_LT(shown_text.size(), 350u);
  EXPECT_NE(shown_text.find("ccc...\n"), shown_text.npos) << shown_text;
  odd.values.front().origin = "a.yaml:1 a: 1, " + std::string(150, 'b') + ", " + std::string(150, 'c');
  EXPECT_NE(config_text(odd).find("bbb, ...\n"), std::string::npos) << config_text(odd);
  EXPECT_NO_THROW(parse_json(shown_text, "c.json"));
}

TEST(Import, TheReportHasItsMembersAndNoOthers) {
  const JsonValue report = report_of(imported(yaml({{"stage", 2}})));
  const auto names = [](const JsonValue& object) {
    std::string all;
    for (const JsonMember& member : object.members()) all += member.key + " ";
    return all;
  };
  EXPECT_EQ(names(report), "config keys defaults ");
  EXPECT_EQ(names(report.find("keys")->items().at(0)), "file line key value verdict to note ");
  EXPECT_EQ(report.find("keys")->items()[0].find("verdict")->as_string(), "mapped");
  EXPECT_EQ(names(report.find("defaults")->items().at(0)), "key value origin ");
}

// The command of open-r1's readme with the file of Accelerate's that comes with TRL, by the tables of the systems.
TEST(ImportOfSystems, OpenR1sCommandIsRefusedForItsTwoFormatsAndTakenWithoutOne) {
  const std::string inputs = TRIDENT_SOURCE_DIR "/tests/import/files/";
  expect_error<ConfigError>(
      [&] { import_files({inputs + "open_r1.sh"}); },
      {"/open_r1.sh:11 --fp16", "/trl_zero2.yaml:2 mixed_precision: bf16", "precision.compute: \"bf16\" and \"fp16\""});
  const Import import = import_files({inputs + "open_r1_bf16.sh"});
  const std::vector<std::pair<std::string_view, std::string_view>> expected{{"batch.global", "128"},
                                                                            {"batch.micro", "8"},
                                                                            {"batch.sequence", "2048"},
                                                                            {"parallel.data", "8"},
                                                                            {"parallel.zero", "\"zero2\""},
                                                                            {"recompute.policy", "\"full\""},
                                                                            {"optimizer.lr", "1e-05"},
                                                                            {"optimizer.grad_clip", "1.0"},
                                                                            {"lr_schedule.type", "\"linear\""},
                                                                            {"lr_schedule.min_lr", "nothing"},
                                                                            {"run.epochs", "1.0"},
                                                                            {"run.steps", "nothing"},
                                                                            {"data.samples", "\"packed\""},
                                                                            {"precision.compute", "\"bf16\""},
                                                                            {"checkpoint.every", "20000"}};
  for (const auto& [path, value] : expected) EXPECT_EQ(value_of(import, path), value) << path;
  EXPECT_EQ(import.ranks, 8);
  for (const ImportedKey& key : import.keys) EXPECT_TRUE(key.verdict != kRefused && key.verdict != kNotBuilt) << key.leaf.key;
  EXPECT_NE(key_named(import, "--model_name_or_path").note.find(": no such folder here; give one with --set model.init_from=DIR"),
            std::string::npos);
}

TEST(Import, AThousandKeysTakeMilliseconds) {  // of CPU time: other programs do not count
  std::vector<ForeignLeaf> leaves;
  for (int i = 0; i < 1000; ++i) leaves.push_back({S::kAccelerate, "a.yaml", i + 1, 1, fmt::format("rdzv_{}", i), i});
  const std::clock_t begin = std::clock();
  imported(leaves);
  EXPECT_LT(std::clock() - begin, 2 * CLOCKS_PER_SEC);
}

}  // namespace
}  // namespace trident

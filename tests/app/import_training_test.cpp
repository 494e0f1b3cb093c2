// Files of other systems over a configuration of ours: what the whole run then is.
#include <algorithm>
#include <filesystem>

#include "core/file_io.h"
#include "tests/app/json_answer.h"
#include "tests/app/program.h"

namespace trident {
namespace {

const std::string kForeignFiles = TRIDENT_SOURCE_DIR "/tests/import/files/";

// A row says what a file makes of the base, and what makes it small; or the keys that it asks for and that are not built.
struct ImportedRun {
  std::string file;
  int global = 0, data = 0, pipeline = 1, tensor = 1;  // data 0: as many ranks as are started
  std::string zero = {};
  std::vector<std::string> small = {}, not_built = {};
};

std::vector<ImportedRun> imported_runs() {
  const std::vector<std::string> gpt2{"model.n_layer=2", "model.n_embd=32", "model.n_head=4", "data.split=null",
                                      "precision.compute=fp32"},
      llama{"model.hidden_size=32", "model.intermediate_size=64", "model.num_hidden_layers=1", "model.num_attention_heads=4"},
      text{"data.samples=stream"};
  const std::vector<std::string> debug = plus(llama, {"model.vocab_size=50257", "lr_schedule.type=constant",
                                                      "lr_schedule.wsd_decay_steps=null", "model.num_key_value_heads=4"});
  return {
      {.file = "accelerate_fsdp2_hybrid.yaml", .not_built = {"parallel.shard_group = 4"}},
      {"accelerate_megatron.yaml", 16, 2, 2, 2, "zero1"},
      {"accelerate_zero2.yaml", 16, 4, 1, 1, "zero2"},
      {.file = "accelerate_zero2_host.yaml", .not_built = {"offload.optimizer = \"host\""}},
      {.file = "accelerate_zero3_disk.yaml",
       .not_built = {"offload.optimizer = \"disk\"", "offload.parameters = \"disk\"", "offload.path"}},
      {.file = "axolotl_lora.yaml", .not_built = {"model.quantize.type = \"nf4\""}},
      {"deepspeed_auto.json", 32, 0, 1, 1, "zero3"},
      {"deepspeed_fp16.json", 8, 0, 1, 1, "ddp"},
      {"deepspeed_zero2.json", 8, 0, 1, 1, "zero2"},
      {.file = "deepspeed_zero3_offload.json", .not_built = {"offload.optimizer = \"host\"", "offload.parameters = \"host\""}},
      {"llama_factory_sft.yaml", 32, 0, 1, 1, "ddp", text},
      {"megatron_175b.sh", 1536, 1, 2, 2, "ddp", plus(gpt2, {"parallel.pipeline=2", "parallel.tensor=2", "batch.micro=512"})},
      {"megatron_345m.sh", 64, 8, 1, 1, "ddp", gpt2},
      {"megatron_arguments.sh", 512, 2, 1, 2, "zero1",
       plus(llama, {"model.vocab_size=50257", "model.head_dim=8", "model.num_key_value_heads=4", "parallel.data=2",
                    "batch.micro=256"})},
      {.file = "megatron_llama3_8b.sh", .not_built = {"precision.fp8 = true"}},
      {"olmo_1b.yaml", 2048, 0, 1, 1, "zero3", llama},
      {"open_r1_bf16.sh", 128, 8, 1, 1, "zero2", text},
      {"swift_fsdp2.json", 32, 0, 1, 1, "zero3"},
      {"swift_megatron.sh", 16, 2, 1, 4, "zero1", plus(text, {"checkpoint.content=all", "parallel.sequence_parallel=false"})},
      {"swift_sft.sh", 16, 2, 1, 1, "zero2", text},
      {"swift_zero0.json", 32, 0, 1, 1, "ddp"},
      {"swift_zero1.json", 32, 0, 1, 1, "zero1"},
      {"swift_zero2.json", 32, 0, 1, 1, "zero2"},
      {.file = "swift_zero2_offload.json", .not_built = {"offload.optimizer = \"host\""}},
      {"swift_zero3.json", 32, 0, 1, 1, "zero3"},
      {.file = "swift_zero3_offload.json", .not_built = {"offload.optimizer = \"host\"", "offload.parameters = \"host\""}},
      {"torchtitan_debug.toml", 32, 0, 1, 1, "zero3", debug},
      {"torchtitan_llama3_8b.toml", 32, 0, 1, 1, "zero3", {"model.preset=llama-1m", "log.trace_steps=null"}},
      {"trl_fsdp1.yaml", 32, 8, 1, 1, "zero3"},
      {"trl_fsdp2.yaml", 32, 8, 1, 1, "zero3"},
      {"trl_multi_gpu.yaml", 32, 8, 1, 1, "ddp"},
      {"trl_sft.yaml", 32, 0, 1, 1, "ddp", text},
      {"trl_single_gpu.yaml", 32, 1, 1, 1, "ddp"},
      {"trl_zero1.yaml", 16, 8, 1, 1, "zero1"},
      {"trl_zero2.yaml", 32, 8, 1, 1, "zero2"},
      {"trl_zero3.yaml", 32, 8, 1, 1, "zero3"},
  };
}

// A base of 32 sequences a step, 2 at once, on text.
class ImportedRuns : public ::testing::Test {
 protected:
  ImportedRuns() {
    write_file(place_ / "base.json", replaced(read_file(place_ / "config.json"), "\"global\": 8, \"micro\": 1",
                                              "\"global\": 32, \"micro\": 2"));
  }
  static ProgramOutcome train(std::vector<std::string> arguments, const std::vector<std::string>& settings) {
    arguments.insert(arguments.begin(), "train");
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    return run_program(arguments);
  }

  Workplace place_;
};

TEST_F(ImportedRuns, EachFileTrainsOverABaseOrNamesWhatIsNotBuilt) {
  for (const ImportedRun& run : imported_runs()) {
    SCOPED_TRACE(run.file);
    std::vector<std::string> settings{"run.steps=2",  "run.epochs=null",    "batch.sequence=2",    "lr_schedule.warmup_steps=0",
                                      "eval.every=0", "checkpoint.every=0", "checkpoint.dir=null", "log.every=1",
                                      "data.train=" + (place_ / "text"), "run.dir=" + (place_ / run.file)};
    settings.insert(settings.end(), run.small.begin(), run.small.end());
    const ProgramOutcome outcome = train({"--config", place_ / "base.json", "--import", kForeignFiles + run.file}, settings);
    if (!run.not_built.empty()) {
      expect_one_line(outcome, 64, run.not_built);
      continue;
    }
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const JsonValue config = read_json_file((place_ / run.file) + "/config.resolved.json");
    const JsonValue& parallel = *config.find("parallel");
    EXPECT_EQ(*config.find("batch")->find("global"), JsonValue(run.global));
    EXPECT_EQ(*parallel.find("data"), run.data == 0 ? JsonValue("auto") : JsonValue(run.data));
    EXPECT_EQ(*parallel.find("pipeline"), JsonValue(run.pipeline));
    EXPECT_EQ(*parallel.find("tensor"), JsonValue(run.tensor));
    EXPECT_EQ(*parallel.find("zero"), JsonValue(run.zero));
    const std::vector<JsonValue> steps = place_.metrics(run.file);
    ASSERT_EQ(steps.size(), 2u);
    EXPECT_EQ(*steps[1].find("tokens"), JsonValue(2 * run.global * 2)) << "all ranks together took the global batch";
  }
}

TEST_F(ImportedRuns, DataThatAreNotThereAreNamedWithTheCommandThatMakesThem) {
  write_file(place_ / "run.sh", "accelerate launch sft.py --dataset_name chats.jsonl --max_steps 2 --learning_rate 1e-5\n");
  expect_one_line(train({"--import", place_ / "run.sh"}, {"model.preset=llama-1m", "batch.global=2"}), 64,
                  {"--dataset_name chats.jsonl: give token files of it, by --loss completion where its lines have prompt and "
                   "completion: trident data prepare --chat --input chats.jsonl"});
}

TEST_F(ImportedRuns, AScheduleThatAShortTrialLeavesNoRoomForNamesTheKeyToSet) {
  const std::vector<std::string> run{"--import", kForeignFiles + "torchtitan_debug.toml"};
  std::vector<std::string> settings{"run.steps=2", "model.preset=llama-1m", "log.trace_steps=null", "batch.sequence=2",
                                    "data.train=" + (place_ / "text"), "run.dir=" + (place_ / "run"), "parallel.data=1"};
  expect_one_line(train(run, settings), 64, {"leaves 0 for the final decay; --set lr_schedule.warmup_steps=1"});
  settings.emplace_back("lr_schedule.warmup_steps=1");
  succeeded(train(run, settings));
}

TEST_F(ImportedRuns, NoFileIsLeftOut) {
  const std::vector<ImportedRun> runs = imported_runs();
  for (const auto& entry : std::filesystem::directory_iterator(kForeignFiles)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() || name.ends_with(".txt") || name == "open_r1.sh") continue;  // the last contradicts itself
    EXPECT_TRUE(std::ranges::any_of(runs, [&](const ImportedRun& run) { return run.file == name; })) << name;
  }
}

TEST_F(ImportedRuns, TheConfigurationThatImportWritesIsWhatTrainImports) {
  const std::string copy = place_ / "c.json";
  for (const ImportedRun& run : imported_runs()) {
    if (!run.not_built.empty()) continue;
    SCOPED_TRACE(run.file);
    succeeded(run_program({"import", kForeignFiles + run.file, "--output", copy}));
    const JsonValue config = read_json_file(copy);
    const auto says = [&](const char* block, const char* key) {
      const JsonValue* const there = config.find(block);
      return there != nullptr && there->find(key) != nullptr;
    };
    // --set says both times what nobody does.
    std::vector<std::string> missing{"data.train=x", "data.valid=null", "checkpoint.dir=x", "run.dir=x"};
    if (!says("run", "steps") && !says("run", "epochs")) missing.emplace_back("run.steps=3");
    if (!says("model", "model_type") && !says("model", "preset")) missing.emplace_back("model.preset=llama-1m");
    for (const char* const key : {"global", "micro", "sequence"})
      if (!says("batch", key)) missing.push_back(fmt::format("batch.{}=8", key));
    const ProgramOutcome imported = succeeded(train({"--import", kForeignFiles + run.file, "--print-config"}, missing));
    EXPECT_EQ(succeeded(train({"--config", copy, "--print-config"}, missing)).out, imported.out);
  }
}

TEST_F(ImportedRuns, WhatIsDifferentHereOpensTheRun) {
  write_file(place_ / "run.sh", "torchrun pretrain_gpt.py --lr 1e-4 --ddp-num-buckets 4");
  const JsonValue report = parsed(succeeded(run_program({"import", place_ / "run.sh", "--json"})).out);
  const JsonValue* differs = nullptr;
  for (const JsonValue& key : report.find("keys")->items())
    if (*key.find("verdict") == JsonValue("differs")) differs = &key;
  ASSERT_NE(differs, nullptr);
  const ProgramOutcome run = succeeded(train({"--config", place_ / "base.json", "--import", place_ / "run.sh"},
                                             {"run.steps=1", "batch.sequence=2", "checkpoint.every=0",
                                              "data.train=" + (place_ / "text"), "run.dir=" + (place_ / "run")}));
  EXPECT_NE(run.out.find("different here: " + (place_ / "run.sh:1 ") + differs->find("key")->as_string()), std::string::npos)
      << run.out;
  EXPECT_NE(run.out.find(differs->find("note")->as_string()), std::string::npos) << run.out;
}

TEST_F(ImportedRuns, TwelveDifferencesAreSaidAndTheOthersCounted) {
  write_file(place_ / "run.sh",
             "torchrun pretrain_gpt.py --ddp-num-buckets 4 --exit-interval 9 --no-load-optim --ckpt-step 3 --wandb-project x "
             "--wandb-exp-name y --profile-ranks 0 --nvtx-ranges --use-pytorch-profiler --record-memory-history "
             "--distributed-timeout-minutes 5 --lr-warmup-init 0.1 --fp16-lm-cross-entropy --decrease-batch-size-if-needed");
  const ProgramOutcome run = succeeded(train({"--config", place_ / "base.json", "--import", place_ / "run.sh"},
                                             {"run.steps=1", "batch.sequence=2", "checkpoint.every=0",
                                              "data.train=" + (place_ / "text"), "run.dir=" + (place_ / "run")}));
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = run.out.find("different here: ", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 12u) << run.out;
  EXPECT_NE(run.out.find("and 2 more: trident import " + (place_ / "run.sh") + " shows all"), std::string::npos) << run.out;
}

// Eight processes with two stages of two ranks each are two data-parallel ranks.
TEST_F(ImportedRuns, WhatFollowsFromSeveralKeysTakesTheBasesWhereNoInputSaysThem) {
  JsonValue root = read_json_file(place_ / "base.json");
  root.set("parallel", JsonValue::Object{{"pipeline", 2}, {"tensor", 2}});
  write_file(place_ / "wide.json", to_json_text(root, 2));
  const auto config = [&](const std::string& file) {
    return train({"--config", place_ / "wide.json", "--import", kForeignFiles + file, "--print-config"}, {});
  };
  const JsonValue zero1 = parsed(succeeded(config("trl_zero1.yaml")).out);
  EXPECT_EQ(*zero1.find("parallel")->find("data"), JsonValue(2));
  EXPECT_EQ(*zero1.find("batch")->find("global"), JsonValue(4)) << "2 at once, 1 time, on 2 ranks";
  const JsonValue zero2 = parsed(succeeded(config("trl_zero2.yaml")).out);
  EXPECT_EQ(*zero2.find("batch")->find("global"), JsonValue(32)) << "no input counts the micro-batches";
  expect_one_line(config("trl_single_gpu.yaml"), 64,
                  {"trl_single_gpu.yaml:1 distributed_type: NO", "wide.json:",
                   "ranks / (parallel.tensor x parallel.pipeline)", ": 1 / 4"});
}

}  // namespace
}  // namespace trident

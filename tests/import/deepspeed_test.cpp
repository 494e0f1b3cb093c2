// Accelerate's and DeepSpeed's files by their own tables: every key has a verdict, and what values become.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "core/file_io.h"
#include "tests/data/temporary_folder.h"
#include "import/import.h"
#include "import/yaml_reader.h"

namespace trident {
namespace {

const std::string kImportFolder = TRIDENT_SOURCE_DIR "/tests/import/files/";

std::vector<std::string> lines_of_file(const std::string& path) {
  const std::string text = read_file(path);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size(); at = std::min(text.find('\n', at), text.size()) + 1)
    lines.push_back(text.substr(at, text.find('\n', at) - at));
  return lines;
}

void flatten(const JsonValue& value, const std::string& key, ForeignSystem system, const std::string& file,
             std::vector<ForeignLeaf>& leaves) {
  if (value.is_object() && !value.members().empty())
    for (const auto& [name, member] : value.members()) flatten(member, key.empty() ? name : key + "." + name, system, file, leaves);
  else
    leaves.push_back({system, file, value.line(), value.column(), key, value});
}

std::vector<ForeignLeaf> leaves_of_text(const std::string& name, std::string_view text) {
  std::vector<ForeignLeaf> leaves;
  if (name.ends_with(".yaml"))
    flatten(read_yaml(text, name, YamlTyping::kPyYaml), "", ForeignSystem::kAccelerate, name, leaves);
  else
    flatten(parse_json(text, name), "", ForeignSystem::kDeepSpeed, name, leaves);
  return leaves;
}

Import imported_file(const std::string& name) { return import_files({kImportFolder + name}); }
Import imported_text(const std::string& name, std::string_view text) { return import_leaves(leaves_of_text(name, text)); }

// "batch.micro=8 parallel.zero=\"zero2\"": what inputs say, and defaults of the system after a "?".
std::string all_values_of(const Import& import) {
  std::string all;
  for (const ImportedValue& value : import.values)
    all += (all.empty() ? "" : " ") + value.path + (value.is_default ? "?" : "") + "=" + to_json_text(value.value);
  return all;
}

std::string verdict_named(const Import& import, std::string_view key) {
  const auto found = std::ranges::find_if(import.keys, [&](const ImportedKey& one) { return one.leaf.key == key; });
  return found == import.keys.end() ? "no such key" : std::string(name_of(found->verdict));
}

// The remark of a key.
std::string note_named(const Import& import, std::string_view key) {
  const auto found = std::ranges::find_if(import.keys, [&](const ImportedKey& one) { return one.leaf.key == key; });
  return found == import.keys.end() ? "no such key" : found->note;
}

TEST(Launchers, SayHowManyRanksThereAre) {
  const auto ranks = [](const std::vector<std::pair<std::string, std::string>>& flags) {
    std::vector<ForeignLeaf> leaves;
    for (const auto& [flag, value] : flags) leaves.push_back({ForeignSystem::kLauncher, "run.sh", 1, 1, flag, value});
    return import_leaves(leaves).ranks.value_or(0);
  };
  EXPECT_EQ(ranks({{"--nproc-per-node", "8"}, {"--nnodes", "2"}, {"--rdzv_backend", "c10d"}}), 16);
  EXPECT_EQ(ranks({{"--nproc_per_node", "8"}, {"--standalone", "true"}}), 8);
  EXPECT_EQ(ranks({{"--num_gpus", "4"}, {"--master_port", "29501"}}), 4);
  EXPECT_EQ(ranks({{"-np", "6"}, {"--bind-to", "core"}}), 6);
  EXPECT_EQ(ranks({{"--nodes", "2"}, {"--ntasks-per-node", "4"}, {"--ntasks", "8"}}), 8);
  EXPECT_EQ(ranks({{"--nproc_per_node", "gpu"}, {"--nnodes", "2"}}), 0);
  EXPECT_EQ(ranks({{"--nproc_per_node", "8"}, {"--nnodes", "1:4"}}), 0);
}

TEST(Launchers, ProgramsThatCountTheGpusSayNoNumber) {
  using enum ForeignSystem;
  for (const auto& [system, program] :
       {std::pair{kHuggingFace, "trl sft"}, {kAxolotl, "axolotl train"}, {kLlamaFactory, "llamafactory-cli train"}}) {
    const std::vector<ForeignLeaf> leaves{{system, "run.sh", 1, 1, "program", program}, {system, "run.sh", 2, 1, "--seed", "1"}};
    EXPECT_EQ(import_leaves(leaves).ranks, std::nullopt) << program << " starts as many as the machine has";
    EXPECT_EQ(import_leaves(leaves, {"", 4}).ranks, 4) << program;
  }
}

TEST(MsSwift, DefaultsOfTwoTablesAreTheNearerOnes) {
  const Import swift = import_leaves({{ForeignSystem::kSwift, "run.sh", 1, 1, "--model", "m"}});
  const auto betas = std::ranges::find(swift.values, "optimizer.betas", &ImportedValue::path);
  EXPECT_EQ(betas->origin, "ms-swift's default") << "both of them, though one is Trainer's as well";
}

TEST(Launchers, NamedFlagsAreGivenAndMisspeltOnesRefused) {
  const auto imported = [](const std::string& flag) {
    return import_leaves({{ForeignSystem::kLauncher, "run.sh", 1, 1, flag, "8"}});
  };
  EXPECT_EQ(all_values_of(imported("--nproc_per_node")), "parallel.data=8");
  EXPECT_EQ(all_values_of(imported("--mca")), "") << "mpirun and srun have more flags than the table";
  expect_error<ConfigError>([&] { imported("--nproc_per_nod"); }, {"run.sh:1", "--nproc_per_nod", "--nproc_per_node?"});
  expect_error<ConfigError>([&] { imported("--rdzv-endpiont"); }, {"run.sh:1", "--rdzv-endpoint?"});
}

TEST(AccelerateFiles, FlagsOfTheLauncherGoBeforeItsFile) {
  const TemporaryFolder folder;
  write_file(folder / "z.yaml", R"(compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_processes: 8
deepspeed_config:
  zero_stage: 2
  gradient_accumulation_steps: 4
)");
  write_file(folder / "run.sh",
             "accelerate launch --config_file z.yaml --num_processes 4 --zero_stage 3 sft.py --learning_rate 1e-5\n");
  const Import import = import_files({folder / "run.sh"});
  const std::string values = all_values_of(import);
  for (const char* part : {R"(parallel.data=4 parallel.zero="zero3")", "batch.global=128"})
    EXPECT_NE(values.find(part), std::string::npos) << part << ": " << values;
  EXPECT_NE(note_named(import, "num_processes").find("run.sh:1 --num_processes replaces it"), std::string::npos);
}

TEST(AccelerateFiles, ReshardAfterForwardHasTheMeaningOfItsVersion) {
  const std::pair<std::string, std::string> cases[] = {
      {"FULL_SHARD", R"(parallel.zero="zero3")"},
      {"true", R"(parallel.zero="zero3")"},
      {"SHARD_GRAD_OP", R"(parallel.zero="shard_grad_op")"},
      {"false", R"(parallel.zero="shard_grad_op")"},
      {"NO_SHARD", R"(parallel.zero="ddp")"},
      {"HYBRID_SHARD", R"(parallel.zero="zero3" parallel.shard_group="node")"},
      {"HYBRID_SHARD_ZERO2", R"(parallel.zero="shard_grad_op" parallel.shard_group="node")"}};
  for (const auto& [value, values] : cases)
    for (const char* key : {"fsdp_reshard_after_forward", "reshard_after_forward"}) {
      const Import import = imported_text("a.yaml", fmt::format("distributed_type: FSDP\nfsdp_config:\n  {}: {}\n", key, value));
      EXPECT_EQ(all_values_of(import), values) << key << ": " << value;
      EXPECT_EQ(verdict_named(import, fmt::format("fsdp_config.{}", key)), value.starts_with("HYBRID") ? "not built" : "mapped")
          << value;
    }
  expect_error<ConfigError>([] { imported_text("a.yaml", "fsdp_config: {fsdp_sharding_strategy: HALF}\n"); },
                            {"a.yaml:1", "HALF", "FULL_SHARD"});
}

TEST(AccelerateFiles, AProgramsFormatGoesBeforeNoMixedPrecision) {
  const std::vector<ForeignLeaf> none = leaves_of_text("a.yaml", "mixed_precision: no\n");
  EXPECT_EQ(all_values_of(import_leaves(none)), R"(precision.compute="fp32")");
  std::vector<ForeignLeaf> both = leaves_of_text("ds.json", R"({"bf16": {"enabled": true}})");
  both.insert(both.end(), none.begin(), none.end());
  EXPECT_NE(all_values_of(import_leaves(both)).find(R"(precision.compute="bf16")"), std::string::npos);
  const std::vector<ForeignLeaf> fp16 = leaves_of_text("a.yaml", "mixed_precision: fp16\n");
  both.insert(both.end(), fp16.begin(), fp16.end());
  expect_error<ConfigError>([&] { import_leaves(both); }, {"a.yaml:1", "fp16", "ds.json:1", "bf16.enabled"});
  EXPECT_EQ(all_values_of(imported_text("a.yaml", "mixed_precision: fp8\n")), R"(precision.compute="bf16" precision.fp8=true)");
}

TEST(AccelerateFiles, WhatIsLeftOutIsTheBackendsDefault) {
  EXPECT_EQ(all_values_of(imported_text("a.yaml", "distributed_type: FSDP\n")), R"(parallel.zero="zero3")");
  EXPECT_EQ(all_values_of(imported_text("a.yaml", "distributed_type: DEEPSPEED\n")),
            R"(parallel.zero="zero2" optimizer.grad_clip?=1.0)");
  EXPECT_EQ(all_values_of(imported_text("a.yaml", "distributed_type: MEGATRON_LM\n")),
            R"(parallel.zero="ddp" recompute.policy?="full" optimizer.grad_clip?=1.0)");
  std::vector<ForeignLeaf> both = leaves_of_text("a.yaml", "distributed_type: MULTI_GPU\nnum_processes: 4\n");
  const std::vector<ForeignLeaf> stage = leaves_of_text("ds.json", R"({"zero_optimization": {"stage": 3}})");
  both.insert(both.end(), stage.begin(), stage.end());
  EXPECT_EQ(all_values_of(import_leaves(both)), R"(parallel.data=4 parallel.zero="zero3" optimizer.grad_clip?=1.0)");
}

TEST(AccelerateFiles, OneProcessIsStartedWithoutADistributedType) {
  const Import import = imported_file("trl_single_gpu.yaml");
  EXPECT_EQ(import.ranks, 1);
  EXPECT_NE(note_named(import, "num_processes").find("one process"), std::string::npos);
  EXPECT_EQ(import_leaves(leaves_of_text("a.yaml", "distributed_type: \"NO\"\n"), {"", 8}).ranks, 8);
}

TEST(AccelerateFiles, FullyShardedOffloadTakesAllStates) {
  EXPECT_EQ(all_values_of(imported_text("a.yaml", "distributed_type: FSDP\nfsdp_config: {fsdp_offload_params: true}\n")),
            R"(parallel.zero="zero3" offload.optimizer="host" offload.parameters="host" offload.gradients="host")");
}

TEST(AccelerateFiles, DegreesOfOneSayNothing) {
  EXPECT_EQ(all_values_of(imported_text("a.yaml",
                                        "num_processes: 8\nparallelism_config:\n  parallelism_config_dp_replicate_size: 1\n"
                                        "  parallelism_config_dp_shard_size: 1\n  parallelism_config_tp_size: 1\n")),
            "parallel.data=8 parallel.tensor=1");
  EXPECT_EQ(all_values_of(imported_text("a.yaml",
                                        "num_processes: 8\nparallelism_config: {parallelism_config_dp_shard_size: 4, "
                                        "parallelism_config_tp_size: 2, parallelism_config_cp_size: 1}\n")),
            "parallel.data=4 parallel.tensor=2");
}

TEST(DeepSpeedFiles, MissingSizesOfTheBatchFollowAsDeepSpeedComputesThem) {
  const auto batch = [](const char* text) {
    const std::string all = all_values_of(import_leaves(leaves_of_text("ds.json", text), {"", 4}));
    return all.substr(0, all.find(" optimizer"));
  };
  EXPECT_EQ(batch(R"({"train_batch_size": 32})"), R"(parallel.data=4 parallel.zero?="ddp" batch.global=32 batch.micro=8)");
  EXPECT_EQ(batch(R"({"train_micro_batch_size_per_gpu": 2})"),
            R"(parallel.data=4 parallel.zero?="ddp" batch.global=8 batch.micro=2)");
  EXPECT_EQ(batch(R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 2})"),
            R"(parallel.data=4 parallel.zero?="ddp" batch.global=32 batch.micro=2)");
  EXPECT_EQ(batch(R"({"train_batch_size": 32, "gradient_accumulation_steps": 4})"),
            R"(parallel.data=4 parallel.zero?="ddp" batch.global=32 batch.micro=2)");
}

TEST(DeepSpeedFiles, WhatTheFileLeavesOutIsDeepSpeedsDefaultWhateverTheProgramSays) {
  const auto values = [](const std::string& file) {
    std::vector<ForeignLeaf> leaves = leaves_of_text("ds.json", file);
    for (const auto& [flag, value] : {std::pair{"--max_grad_norm", "0.5"}, {"--warmup_ratio", "0.1"}, {"--learning_rate", "1e-5"}})
      leaves.push_back({ForeignSystem::kHuggingFace, "run.sh", 1, 1, flag, value});
    return import_leaves(leaves);
  };
  const Import left_out = values(R"({"optimizer": {"type": "AdamW"}, "scheduler": {"type": "WarmupDecayLR"}})");
  const std::string all = all_values_of(left_out);
  for (const char* part : {"optimizer.lr?=0.001", "optimizer.grad_clip?=1.0", "lr_schedule.warmup_steps?=1000"})
    EXPECT_NE(all.find(part), std::string::npos) << part << ": " << all;
  for (const char* flag : {"--max_grad_norm", "--warmup_ratio", "--learning_rate"})
    EXPECT_NE(note_named(left_out, flag).find("DeepSpeed's default counts, as its file leaves this number out: write it there"),
              std::string::npos) << flag;
  const std::string taken = all_values_of(values(R"({"gradient_clipping": "auto", "bf16": {"enabled": true}})"));
  for (const char* part : {"optimizer.lr=1e-05", "optimizer.grad_clip=0.5", "lr_schedule.warmup_steps=0.1"})
    EXPECT_NE(taken.find(part), std::string::npos) << part << ": " << taken;
}

TEST(DeepSpeedFiles, AnAutoThatNobodyResolvesIsTrainersDefault) {
  const std::string values = all_values_of(imported_text("ds.json", R"({
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "eps": "auto"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": "auto"}}})"));
  EXPECT_NE(values.find("optimizer.lr?=5e-05"), std::string::npos) << values;
  EXPECT_NE(values.find("lr_schedule.warmup_steps?=0"), std::string::npos) << values;
  const Import import = imported_text("ds.json", R"({"gradient_clipping": "auto", "train_batch_size": "auto"})");
  EXPECT_EQ(import.values.back().origin, "TrainingArguments' default");
  EXPECT_EQ(note_named(import, "train_batch_size"), "no input says it: ours stays");
}

TEST(DeepSpeedFiles, AFormatThatTheFileTurnsOffIsNotAskedForBesideIt) {
  for (const std::string format : {"bf16", "fp16"}) {
    std::vector<ForeignLeaf> leaves = leaves_of_text("ds.json", fmt::format(R"({{"{}": {{"enabled": false}}}})", format));
    EXPECT_EQ(import_leaves(leaves).keys[0].verdict, Verdict::kAlways);
    leaves.push_back({ForeignSystem::kHuggingFace, "run.sh", 2, 1, "--" + format, true});
    expect_error<ConfigError>([&] { import_leaves(leaves); }, {"ds.json:1 " + format + ".enabled: false: run.sh:2 --" + format,
                                                               "says otherwise"});
  }
}

TEST(DeepSpeedChat, MainPyHasItsOwnArgumentsAndDefaults) {
  const TemporaryFolder folder;
  const auto values = [&](const std::string& flags, const std::string& start = "deepspeed --num_gpus 8 main.py") {
    write_file(folder / "dpo-1.sh", start + " --model_name_or_path m " + flags + "\n");
    return all_values_of(import_files({folder / "dpo-1.sh"}));
  };
  const std::string sft = values("--data_split 2,4,4 --zero_stage 3 --lora_dim 64 --per_device_train_batch_size 4 --offload");
  for (const char* part :
       {"run.seed?=1234", "run.epochs?=1.0", "parallel.zero=\"zero3\"", "batch.global=32", "batch.sequence?=512",
        "precision.compute?=\"fp16\"", "optimizer.lr?=0.001", "optimizer.betas?=[0.9,0.95]", "lr_schedule.type?=\"cosine\"",
        "adapter.r=64 adapter.alpha?=1", "offload.optimizer=\"host\""})
    EXPECT_NE(sft.find(part), std::string::npos) << part << ": " << sft;
  EXPECT_EQ(sft.find("loss.type"), std::string::npos) << sft;
  EXPECT_NE(values("--zero_stage $2 --beta 0.1").find("loss.type=\"dpo\""), std::string::npos);
  EXPECT_NE(values("--zero_stage 3", "deepspeed step2_dpo_finetuning/main.py").find("loss.type=\"dpo\""), std::string::npos);
  for (const char* const flags : {"--zero_stage 0", "--zero_stage 2", "--lora_dim 0"})
    EXPECT_NE(values(flags).find("optimizer.lr?=0.001"), std::string::npos) << flags;
  EXPECT_NE(values("--zero_stage 2", "trl sft").find("optimizer.lr?=2e-05"), std::string::npos) << "one of accelerate launch";
}

TEST(DeepSpeedFiles, AWarmUpThatTrainerWritesIsNoneWhereNoArgumentSaysOne) {
  std::vector<ForeignLeaf> leaves =
      leaves_of_text("ds.json", R"({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": "auto"}}})");
  leaves.push_back({ForeignSystem::kHuggingFace, "run.sh", 1, 1, "--learning_rate", "1e-5"});
  const std::string all = all_values_of(import_leaves(leaves));
  EXPECT_NE(all.find("lr_schedule.warmup_steps?=0"), std::string::npos) << all;
}

TEST(DeepSpeedFiles, WhatDiffersIsRefusedOrSaid) {
  const auto refused = [](const char* text, const std::vector<std::string>& parts) {
    expect_error<ConfigError>([&] { imported_text("ds.json", text); }, parts);
  };
  refused(R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})", {"ds.json:1", "adam_w_mode", "decoupled"});
  EXPECT_EQ(all_values_of(imported_text("ds.json", R"({"zero_optimization": 1, "steps_per_print": 1e5})"))
                .find("parallel.zero=\"zero1\" optimizer.grad_clip?=1.0 log.every=100000"),
            0);
  refused(R"({"optimizer": {"type": "Lamb"}})", {"Lamb", "adamw"});
  refused(R"({"scheduler": {"type": "OneCycle"}})", {"OneCycle", "WarmupLR"});
  refused(R"({"zero_optimisation": {"stage": 2}})", {"zero_optimisation.stage", "zero_optimization.stage"});
  refused(R"({"curriculum_learning": {"enabled": true}})", {"curriculum_learning.enabled"});
  EXPECT_EQ(verdict_named(imported_text("ds.json", R"({"curriculum_learning": {"enabled": false, "min_difficulty": 8}})"),
                          "curriculum_learning.enabled"),
            "always so here");
  EXPECT_NE(note_named(imported_file("deepspeed_fp16.json"), "scheduler.type").find("logarithmic"), std::string::npos);
  for (const auto& [peak, is_said] : {std::pair{"", true}, {R"(, "params": {"warmup_max_lr": 1e-4})", false}}) {
    const std::string file = fmt::format(
        R"({{"optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, "scheduler": {{"type": "WarmupLR"{}}}}})", peak);
    const std::string note = note_named(imported_text("ds.json", file), "scheduler.type");
    EXPECT_EQ(note.find("without warmup_max_lr it climbs to 0.001") != std::string::npos, is_said) << note;
  }
  EXPECT_NE(note_named(imported_file("swift_zero2.json"), "zero_optimization.stage").find("parallel.grad_sync"), std::string::npos);
}

TEST(DeepSpeedFiles, SwitchesOfZeroPlusPlusStandForReservedKeys) {
  const Import import =
      imported_text("ds.json", R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8, "zero_quantized_weights": true,
                     "zero_quantized_gradients": false, "mics_shard_size": -1}, "sequence_parallel_size": 2})");
  EXPECT_EQ(all_values_of(import), R"(parallel.context=2 parallel.zero="zero3" parallel.secondary_shards=8 )"
                                   R"(parallel.quantized_weights=true optimizer.grad_clip?=1.0)");
  EXPECT_EQ(verdict_named(import, "zero_optimization.zero_hpz_partition_size"), "not built");
  EXPECT_EQ(verdict_named(import, "zero_optimization.zero_quantized_gradients"), "always so here");
}

TEST(DeepSpeedFiles, ALossScaleCountsWithFp16) {
  EXPECT_EQ(all_values_of(imported_text("ds.json", R"({"fp16": {"enabled": true, "loss_scale": 1024}})")),
            R"(parallel.zero?="ddp" precision.compute="fp16" precision.loss_scale=1024.0 optimizer.grad_clip?=1.0)");
  for (const char* const file : {R"({"fp16": {"enabled": true, "loss_scale": 0}})", R"({"fp16": {"enabled": true}})"}) {
    std::vector<ForeignLeaf> leaves = leaves_of_text("ds.json", file);
    leaves.push_back({ForeignSystem::kMegatron, "run.sh", 1, 1, "--loss-scale", "12"});
    const Import import = import_leaves(leaves);
    EXPECT_EQ(all_values_of(import).find("loss_scale"), std::string::npos) << "DeepSpeed finds it while training";
    EXPECT_NE(note_named(import, "--loss-scale").find("DeepSpeed's file counts"), std::string::npos);
  }
  const Import bf16 = imported_text("ds.json", R"({"bf16": {"enabled": true}, "fp16": {"enabled": false, "loss_scale": 1024}})");
  EXPECT_EQ(all_values_of(bf16), R"(parallel.zero?="ddp" precision.compute="bf16" optimizer.grad_clip?=1.0)");
  EXPECT_NE(note_named(bf16, "fp16.loss_scale").find("not scaled"), std::string::npos);
  for (const char* const off : {"", R"(, "bf16": {"enabled": false})"})
    EXPECT_EQ(all_values_of(imported_text(
                  "ds.json", fmt::format(R"({{"torch_autocast": {{"enabled": true, "dtype": "bfloat16"}}{}}})", off))),
              R"(parallel.zero?="ddp" precision.compute="bf16" optimizer.grad_clip?=1.0)");
}

// Names of what a Python file has: fields of dataclasses, keys that the dialogue writes, flags of the launcher.
void add_dataclass_fields(const std::string& path, std::set<std::string>& names) {
  static const std::map<std::string, std::string> blocks{{"DeepSpeedPlugin", "deepspeed_config."},
                                                         {"FullyShardedDataParallelPlugin", "fsdp_config."},
                                                         {"MegatronLMPlugin", "megatron_lm_config.megatron_lm_"},
                                                         {"ParallelismConfig", "parallelism_config."},
                                                         {"TorchContextParallelConfig", "parallelism_config."},
                                                         {"DeepSpeedSequenceParallelConfig", "parallelism_config."},
                                                         {"TorchTensorParallelConfig", "parallelism_config."},
                                                         {"TorchTensorParallelPlugin", "torch_tp_plugin."},
                                                         {"BaseConfig", ""},
                                                         {"ClusterConfig", ""},
                                                         {"SageMakerConfig", ""}};
  const std::regex a_class("class (\\w+).*"), a_method("    (@|def ).*"), a_field("    ([a-z]\\w*): \\S.*");
  std::string prefix;
  bool is_decorated = false, is_inside = false;
  for (const std::string& line : lines_of_file(path)) {
    std::smatch found;
    if (line.starts_with('@')) is_decorated = line.starts_with("@dataclass");
    if (std::regex_match(line, found, a_class)) {
      const auto block = blocks.find(found[1]);
      prefix = block == blocks.end() ? found[1].str() + "." : block->second;
      is_inside = std::exchange(is_decorated, false);
    } else if (std::regex_match(line, a_method)) {
      is_inside = false;
    } else if (is_inside && std::regex_match(line, found, a_field)) {
      names.insert(prefix + found[1].str());
    }
  }
}

void add_matches(const std::string& path, const std::string& pattern, const std::function<std::string(const std::smatch&)>& name,
                 std::set<std::string>& names) {
  const std::regex regex(pattern);
  for (const std::string& line : lines_of_file(path))
    for (std::sregex_iterator at(line.begin(), line.end(), regex), end; at != end; ++at) names.insert(name(*at));
}

TEST(AccelerateKeys, TheListIsThatOfTheInstalledPackage) {
  const char* const folder = std::getenv("ACCELERATE_PACKAGE");
  if (folder == nullptr) GTEST_SKIP() << "ACCELERATE_PACKAGE names no folder of Accelerate 1.15";
  const std::string root = std::string(folder) + "/";
  std::set<std::string> names;
  for (const char* file : {"utils/dataclasses.py", "parallelism_config.py", "commands/config/config_args.py"})
    add_dataclass_fields(root + file, names);
  add_matches(
      root + "commands/config/cluster.py", "(\\w+)_config\\[(prefix \\+ )?\"(\\w+)\"\\]",
      [](const std::smatch& found) {
        return found[1].str() + "_config." +
               (found[2].matched ? found[1].str() + (found[1] == "parallelism" ? "_config_" : "_") : "") + found[3].str();
      },
      names);
  for (const char* pattern : {"^ *\"--?(\\w+)\",", "add_argument\\(\"--?(\\w+)\", ", "add_argument\\(\"-\\w\", \"--(\\w+)\","})
    add_matches(
        root + "commands/launch.py", pattern, [](const std::smatch& found) { return found[1].str(); }, names);
  for (const char* help : {"h", "help"}) names.erase(help);
  std::ifstream list(kImportFolder + "accelerate_names.txt");
  std::string title, keys;
  std::getline(list, title);
  std::getline(list, keys, '#');  // those of earlier versions stand below another title
  std::istringstream words(keys);
  EXPECT_EQ(names, std::set<std::string>(std::istream_iterator<std::string>(words), {}));
}

}  // namespace
}  // namespace trident

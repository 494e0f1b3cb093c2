// Arguments of Trainer, TRL, PEFT, ms-swift, axolotl and LLaMA-Factory: every one has a verdict, and what they become.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/check.h"
#include "tests/data/temporary_folder.h"
#include "train/config/option_table.h"
#include "import/import.h"

namespace trident {
namespace {

using S = ForeignSystem;
using Words = std::vector<std::pair<std::string, JsonValue>>;

const std::string kFolder = TRIDENT_SOURCE_DIR "/tests/import/files/";

Import imported(S system, const Words& words, ImportRules rules = {}) {
  std::vector<ForeignLeaf> leaves;
  for (const auto& [key, value] : words)
    leaves.push_back({key.starts_with("fsdp_config.") ? S::kAccelerate : system, "run.sh", static_cast<int>(leaves.size()) + 1, 1,
                      key == "program" ? key : "--" + key, value});  // as the reader of inputs has it
  return import_leaves(leaves, rules);
}

// The value that came out as JSON text, 1.0 as 1; "": none did.
std::string became(const Import& import, std::string_view path) {
  const auto found = std::ranges::find(import.values, path, &ImportedValue::path);
  if (found == import.values.end()) return "";
  return found->value.is_number() ? fmt::format("{}", found->value.as_number()) : to_json_text(found->value);
}

std::string origin(const Import& import, std::string_view path) {
  const auto found = std::ranges::find(import.values, path, &ImportedValue::path);
  return found == import.values.end() ? "" : found->origin;
}

void expect_refusal(const Words& words, const std::string& part) {
  expect_error<ConfigError>([&] { imported(S::kHuggingFace, words); }, {part});
}

TEST(HuggingFaceImport, APartOfTheDataIsNotWhatTrains) {
  for (const auto& [system, name] : {std::pair{S::kHuggingFace, "max_train_samples"}, {S::kLlamaFactory, "max_samples"}})
    EXPECT_EQ(imported(system, {{name, 1000}}).keys[0].verdict, Verdict::kDiffers) << name;
}

TEST(HuggingFaceImport, AWrongLineIsNotLeftOut) {
  EXPECT_EQ(imported(S::kSwift, {{"strict", true}}).keys[0].verdict, Verdict::kAlways);
  EXPECT_EQ(imported(S::kSwift, {{"strict", false}}).keys[0].verdict, Verdict::kDiffers);
}

TEST(HuggingFaceImport, AListOfOneIsItsItem) {
  for (const auto& [system, key, item, path, value] :
       {std::tuple{S::kHuggingFace, "loss_type", "ipo", "loss.variant", "\"ipo\""},
        {S::kAxolotl, "dpo_loss_type", "hinge", "loss.variant", "\"hinge\""},
        {S::kHuggingFace, "report_to", "none", "log.tensorboard", "false"}})
    EXPECT_EQ(became(imported(system, {{"beta", 0.1}, {key, JsonValue::Array{item}}}), path), value) << key;
}

TEST(HuggingFaceImport, AxolotlsBatchSizeIsNotItsBatch) {
  ImportRules rules;
  rules.ranks = 2;
  const Import import = imported(S::kAxolotl, {{"batch_size", 128}, {"micro_batch_size", 4}}, rules);
  EXPECT_EQ(became(import, "batch.global"), "8") << "its gradient_accumulation_steps is 1 where the file leaves it out";
  EXPECT_EQ(import.keys[0].verdict, Verdict::kDiffers);
}

TEST(HuggingFaceImport, AConfigurationOfNewWeightsIsTheModel) {
  const Import import = imported(S::kHuggingFace, {{"config_name", "models/new"}});
  EXPECT_EQ(import.keys[0].verdict, Verdict::kDiffers);
  EXPECT_NE(import.keys[0].note.find("model.hf_config"), std::string::npos) << import.keys[0].note;
}

TEST(HuggingFaceImport, StatesOfFewerBitsAreAnotherMemoryAndNoOtherRule) {
  for (const auto& [name, rule] :
       {std::pair{"adamw_bnb_8bit", "\"adamw\""}, {"adamw_torch_4bit", "\"adamw\""}, {"lion_8bit", "\"lion\""}}) {
    const Import import = imported(S::kAxolotl, {{"optimizer", name}});
    EXPECT_EQ(became(import, "optimizer.type"), rule);
    EXPECT_EQ(import.keys[0].verdict, Verdict::kDiffers) << name;
  }
  EXPECT_EQ(became(imported(S::kHuggingFace, {{"save_total_limit", -1}}), "checkpoint.keep_last"), "0") << "all are kept";
}

TEST(HuggingFaceImport, ABetaIsOfTheMethodThatTheNamesAroundItSay) {
  EXPECT_EQ(became(imported(S::kHuggingFace, {{"beta", 0.1}}), "loss.type"), "\"dpo\"");
  expect_refusal({{"beta", 0.1}, {"output_dir", "data/zephyr-orpo"}}, "--beta 0.1: no training by orpo here");
  expect_error<ConfigError>(
      [] { import_leaves({{S::kHuggingFace, "recipes/c-ORPO.yaml", 3, 1, "beta", 0.1}}); },
      {"recipes/c-ORPO.yaml:3 beta: 0.1: no training by orpo here; take supervised fine-tuning (sft), pre-training or dpo "
       "(loss.type orpo: not built yet; use loss.type dpo, with loss.nll_weight)"});
  expect_refusal({{"beta", 0.1}, {"output_dir", "out/zephyr-orpo/"}}, "no training by orpo here");
  for (const char* const folder : {"out/helpful-reward", "/home/ppo/out", "kto/out/"})
    EXPECT_EQ(became(import_leaves({{S::kHuggingFace, "grpo/c.yaml", 3, 1, "beta", 0.1},
                                    {S::kHuggingFace, "grpo/c.yaml", 4, 1, "output_dir", folder}}),
                     "loss.type"),
              "\"dpo\"")
        << folder << ": folders are the user's, and a reward model's training has no beta";
}

TEST(HuggingFaceImport, ASmallShareOfValidationIsWrittenWithoutAnExponent) {
  for (const auto& [share, split] : {std::pair{0.07, "93,7"}, {1e-7, "99.99999,0.00001"}, {0.5, "50,50"}, {0.001, "99.9,0.1"}})
    EXPECT_EQ(became(imported(S::kAxolotl, {{"val_set_size", share}}), "data.split"), fmt::format("\"{}\"", split));
}

TEST(HuggingFaceImport, AWarmUpStableDecayEndsInACosineUnlessItsArgumentsSayOtherwise) {
  const auto decay_type = [](Words words) {
    words.emplace_back("lr_scheduler_type", "warmup_stable_decay");
    return became(imported(S::kHuggingFace, words), "lr_schedule.wsd_decay_type");
  };
  EXPECT_EQ(decay_type({}), "\"cosine\"");
  EXPECT_EQ(decay_type({{"lr_scheduler_kwargs.decay_type", "1-sqrt"}}), "\"minus_sqrt\"");
}

TEST(HuggingFaceImport, AnArgumentOfAnAdapterThatIsNotThereIsRemarked) {
  const Import import = imported(S::kHuggingFace, {{"lora_r", 8}});
  EXPECT_EQ(import.keys[0].note, "the other keys say as much, or it needs one that is left out");
}

TEST(HuggingFaceImport, AProgramOfTrlHasItsDefaults) {
  const Import sft = imported(S::kHuggingFace, {{"program", "src/open_r1/sft.py"}});
  for (const auto& [path, value] : {std::pair{"optimizer.lr", "2e-05"},
                                    {"batch.sequence", "1024"},
                                    {"batch.micro", "8"},
                                    {"recompute.policy", "\"full\""},
                                    {"precision.compute", "\"bf16\""},
                                    {"log.every", "10"},
                                    {"lr_schedule.type", "\"linear\""},
                                    {"optimizer.grad_clip", "1"},
                                    {"run.epochs", "3"},
                                    {"optimizer.weight_decay", "0"},
                                    {"checkpoint.every", "500"},
                                    {"data.samples", "\"packed\""}})
    EXPECT_EQ(became(sft, path), value) << path;
  EXPECT_EQ(origin(sft, "optimizer.lr"), "SFTConfig's default");
  const Import dpo = imported(S::kHuggingFace, {{"program", "trl dpo"}, {"beta", "0.2"}, {"loss_type", "ipo"}});
  EXPECT_EQ(became(dpo, "optimizer.lr"), "1e-06");
  EXPECT_EQ(origin(dpo, "data.samples"), "a pair is a sample");
  EXPECT_EQ(origin(sft, "lr_schedule.type").find("TrainingArguments' default: step n has the rate"), 0u) << "which differs";
  EXPECT_EQ(became(dpo, "loss.type") + became(dpo, "loss.variant") + became(dpo, "loss.beta"), "\"dpo\"\"ipo\"0.2");
  const Import other = imported(S::kHuggingFace, {{"program", "run_clm.py"}});
  EXPECT_EQ(became(other, "optimizer.lr"), "5e-05");
  EXPECT_EQ(became(other, "precision.compute"), "\"fp32\"");
  EXPECT_EQ(became(other, "data.samples") + became(other, "recompute.policy"), "");
  expect_refusal({{"program", "grpo.py"}}, "run.sh:1 program: grpo.py: ");
  expect_refusal({{"program", "grpo.py"}, {"unheard_of", 1}}, "run.sh:1 program: grpo.py: no training by grpo here");
}

TEST(HuggingFaceImport, ProgramsWithoutTrainerHaveWordsOfTheirOwn) {
  const Import clm = imported(S::kHuggingFace, {{"program", "run_clm_no_trainer.py"}, {"max_train_steps", "1000"},
                                                {"checkpointing_steps", "250"}, {"mixed_precision", "fp16"}});
  EXPECT_EQ(became(clm, "run.steps") + became(clm, "checkpoint.every") + became(clm, "precision.compute"), "1000250\"fp16\"");
  EXPECT_EQ(became(imported(S::kHuggingFace, {{"checkpointing_steps", "epoch"}}), "checkpoint.every"), "\"epoch\"");
}

TEST(HuggingFaceImport, WhatIsGivenGoesBeforeDefaults) {
  const Import off = imported(S::kHuggingFace, {{"program", "sft.py"}, {"bf16", "False"}, {"gradient_checkpointing", "false"}});
  EXPECT_EQ(became(off, "precision.compute") + became(off, "recompute.policy"), "\"fp32\"\"none\"");
  EXPECT_EQ(became(imported(S::kHuggingFace, {{"program", "sft.py"}, {"dtype", "float32"}, {"bf16", true}}), "precision.compute"),
            "\"bf16\"")
      << "the format of files is not that of products";
  EXPECT_EQ(became(imported(S::kHuggingFace, {{"program", "sft.py"}, {"dtype", "float32"}}), "precision.compute"), "\"bf16\"");
  EXPECT_EQ(became(imported(S::kHuggingFace, {{"dtype", "bfloat16"}, {"bf16", "False"}}), "precision.compute"), "\"bf16\"");
  const Import steps = imported(S::kHuggingFace, {{"max_steps", "100"}, {"num_train_epochs", "2"}, {"save_strategy", "no"}});
  EXPECT_EQ(became(steps, "run.steps") + became(steps, "run.epochs") + became(steps, "checkpoint.every"), "100\"end\"");
  EXPECT_EQ(steps.keys[1].note, "no effect: run.sh:1 --max_steps 100 counts");
  EXPECT_TRUE(steps.keys[1].verdict == Verdict::kAlways);
  const Import eval = imported(S::kHuggingFace, {{"program", "run_clm.py"}, {"do_eval", true}});
  EXPECT_TRUE(eval.keys[1].verdict == Verdict::kDiffers) << "run_clm.py sets data aside";
}

TEST(HuggingFaceImport, RanksWithoutDeepSpeedAndFsdpHaveWholeCopies) {
  EXPECT_EQ(became(imported(S::kHuggingFace, {{"program", "train.py"}}), "parallel.zero"), "\"ddp\"");
  const Import lora = imported(S::kHuggingFace, {{"program", "train/train_lora.py"}, {"lora_r", 4}});
  EXPECT_EQ(became(lora, "adapter.type"), "\"lora\"") << "which has no argument that asks for it";
  EXPECT_EQ(became(imported(S::kHuggingFace, {{"fsdp", "full_shard"}}), "parallel.zero"), "\"zero3\"");
  EXPECT_EQ(became(imported(S::kSwift, {{"deepspeed", "zero2"}}), "parallel.zero"), "\"zero2\"");
  expect_refusal({{"warmup_ratio", "-1"}}, "from 0 to 1");
  expect_refusal({{"bf16", true}, {"bf16", "False"}}, "run.sh:2 --bf16 False: run.sh:1 --bf16 says otherwise");
  expect_refusal({{"gradient_accumulation", 2}}, "did you mean --gradient_accumulation_steps?");
}

TEST(HuggingFaceImport, AScheduleIsTheOneOfItsName) {
  const auto warm_up = [](const char* type) {
    return imported(S::kHuggingFace, {{"lr_scheduler_type", type}, {"warmup_steps", "7"}});
  };
  EXPECT_EQ(became(warm_up("constant"), "lr_schedule.type") + became(warm_up("constant"), "lr_schedule.warmup_steps"),
            "\"constant\"0");
  EXPECT_EQ(became(warm_up("constant_with_warmup"), "lr_schedule.type"), "\"constant\"");
  EXPECT_EQ(became(warm_up("constant_with_warmup"), "lr_schedule.warmup_steps"), "7");
  EXPECT_EQ(became(warm_up("inverse_sqrt"), "lr_schedule.type"), "\"inverse_sqrt\"");
  for (const char* const type : {"linear", "cosine", "constant_with_warmup"})
    EXPECT_NE(warm_up(type).keys.front().note.find("the rate that Trainer gives to step n + 1"), std::string::npos) << type;
  expect_refusal({{"lr_scheduler_type", "inverse_sqrt"}}, "give warmup_steps");
  expect_refusal({{"lr_scheduler_type", "reduce_lr_on_plateau"}}, "run.sh:1 --lr_scheduler_type reduce_lr_on_plateau: ");
  EXPECT_EQ(became(warm_up("polynomial"), "lr_schedule.type"), "\"linear\"") << "its power is 1";
  EXPECT_EQ(became(warm_up("cosine_with_restarts"), "lr_schedule.type"), "\"cosine\"") << "it has one cycle";
  for (const auto& [type, cycles, one_wave] : {std::tuple{"cosine", "0.5", true}, {"cosine", "1", false},
                                               {"cosine_with_restarts", "1", true}, {"cosine_with_restarts", "0.5", false}}) {
    const Words words{{"lr_scheduler_type", type}, {"lr_scheduler_kwargs.num_cycles", cycles}};
    if (one_wave) EXPECT_EQ(became(imported(S::kHuggingFace, words), "lr_schedule.type"), "\"cosine\"") << type;
    else expect_refusal(words, fmt::format("num_cycles {}: ", cycles));
  }
  const Import lowest =
      imported(S::kHuggingFace,
               {{"lr_scheduler_type", "cosine_with_min_lr"}, {"learning_rate", "1e-4"}, {"lr_scheduler_kwargs.min_lr_rate", 0.1}});
  EXPECT_EQ(became(lowest, "lr_schedule.type") + became(lowest, "lr_schedule.min_lr"), "\"cosine\"1e-05");
}

TEST(HuggingFaceImport, WordsOfFsdpAndDeepspeedArePresets) {
  const auto zero = [](S system, const char* key, const char* words) {
    return became(imported(system, {{key, words}}), "parallel.zero");
  };
  EXPECT_EQ(zero(S::kHuggingFace, "fsdp", "full_shard auto_wrap"), "\"zero3\"");
  EXPECT_EQ(zero(S::kHuggingFace, "fsdp", "no_shard"), "\"ddp\"");
  EXPECT_EQ(zero(S::kSwift, "deepspeed", "zero0"), "\"ddp\"");
  EXPECT_EQ(zero(S::kSwift, "parallel_method", "fsdp"), "\"zero3\"");
  const Import swift = imported(S::kSwift, {{"fsdp", "fsdp2"}});
  EXPECT_EQ(became(swift, "parallel.zero") + became(swift, "recompute.policy"), "\"zero3\"\"full\"");
  const Import host = imported(S::kSwift, {{"deepspeed", "zero3_offload"}});
  EXPECT_EQ(became(host, "parallel.zero") + became(host, "offload.optimizer") + became(host, "offload.parameters"),
            "\"zero3\"\"host\"\"host\"");
  const Import words = imported(S::kHuggingFace, {{"fsdp", "hybrid_shard auto_wrap offload"}});
  EXPECT_EQ(became(words, "parallel.shard_group") + became(words, "offload.parameters"), "\"node\"\"host\"");
  EXPECT_EQ(became(imported(S::kHuggingFace, {{"fsdp", true}, {"fsdp_config.reshard_after_forward", false}}), "parallel.zero"),
            "\"shard_grad_op\"");
}

TEST(HuggingFaceImport, HybridShardsAndOffloadBecomeAllThatTheyMean) {
  struct Case {
    const char* key;
    JsonValue value;
    const char *zero, *group, *host;
  };
  const Case cases[] = {{"fsdp", "hybrid_shard_zero2 auto_wrap", "\"shard_grad_op\"", "\"node\"", ""},
                        {"fsdp", "hybrid_shard", "\"zero3\"", "\"node\"", ""},
                        {"fsdp", JsonValue::Array{"shard_grad_op", "offload"}, "\"shard_grad_op\"", "", "\"host\""},
                        {"fsdp", "full_shard auto_wrap offload", "\"zero3\"", "", "\"host\""},
                        {"fsdp", false, "\"ddp\"", "", ""},
                        {"fsdp_config.fsdp_offload_params", true, "\"ddp\"", "", "\"host\""},
                        {"fsdp_config.reshard_after_forward", "HYBRID_SHARD", "\"zero3\"", "\"node\"", ""},
                        {"fsdp_config.fsdp_sharding_strategy", 5, "\"shard_grad_op\"", "\"node\"", ""}};
  for (const Case& one : cases) {
    const Import import = imported(S::kHuggingFace, {{"seed", 7}, {one.key, one.value}});
    const std::string what = fmt::format("{} {}", one.key, to_json_text(one.value));
    EXPECT_EQ(became(import, "parallel.zero"), one.zero) << what;
    EXPECT_EQ(became(import, "parallel.shard_group"), one.group) << what;
    for (const char* const path : {"offload.parameters", "offload.optimizer", "offload.gradients"})
      EXPECT_EQ(became(import, path), one.host) << what << " " << path;
  }
  expect_refusal({{"fsdp", "full_shard half"}}, "no word \"half\"");
}

TEST(HuggingFaceImport, PackingSaysWhatASampleIs) {
  const auto samples = [](S system, const Words& words) { return became(imported(system, words), "data.samples"); };
  EXPECT_EQ(samples(S::kHuggingFace, {{"program", "sft.py"}, {"packing", true}}), "\"packed\"");
  EXPECT_EQ(samples(S::kHuggingFace, {{"program", "sft.py"}, {"packing", "False"}}), "\"packed\"") << "each conversation by itself";
  EXPECT_EQ(samples(S::kHuggingFace, {{"program", "sft.py"}, {"packing", true}, {"packing_strategy", "wrapped"}}), "\"stream\"");
  EXPECT_EQ(samples(S::kLlamaFactory, {{"packing", true}}), "\"stream\"") << "its blocks are cut from a stream";
  EXPECT_EQ(samples(S::kLlamaFactory, {{"packing", true}, {"neat_packing", true}}), "\"packed\"");
  EXPECT_EQ(samples(S::kLlamaFactory, {{"stage", "pt"}}), "");
  EXPECT_EQ(samples(S::kAxolotl, {{"sample_packing", true}}), "\"packed\"");
}

TEST(HuggingFaceImport, AdaptersAreThoseThatAreAskedFor) {
  const Words lora{{"program", "sft.py"}, {"lora_r", "32"}};
  EXPECT_EQ(became(imported(S::kHuggingFace, lora), "adapter.r"), "") << "without use_peft it says nothing";
  Words used = lora;
  used.emplace_back("use_peft", true);
  const Import peft = imported(S::kHuggingFace, used);
  EXPECT_EQ(became(peft, "adapter.type") + became(peft, "adapter.r") + became(peft, "adapter.alpha"), "\"lora\"3232");
  EXPECT_EQ(became(peft, "adapter.target_modules"), R"(["q_proj","v_proj"])");
  const Import gpt2 = imported(S::kHuggingFace, {{"program", "sft.py"}, {"use_peft", true}, {"model_name_or_path", "gpt2"}});
  EXPECT_EQ(became(gpt2, "adapter.target_modules"), R"(["c_attn"])");
  used.emplace_back("use_dora", true);
  EXPECT_EQ(became(imported(S::kHuggingFace, used), "adapter.type"), "\"dora\"");
  const Import swift = imported(S::kSwift, {{"model", "x"}}), full = imported(S::kSwift, {{"tuner_type", "full"}});
  EXPECT_EQ(became(swift, "adapter.type") + became(swift, "optimizer.lr"), "\"lora\"0.0001");
  EXPECT_EQ(became(full, "adapter.r") + became(full, "optimizer.lr"), "1e-05");
  const Import factory = imported(S::kLlamaFactory, {{"lora_rank", 16}});
  EXPECT_EQ(became(factory, "adapter.r") + became(factory, "adapter.alpha"), "1632");
  const Import on = imported(S::kLlamaFactory, {{"adapter_name_or_path", "sft/lora"}, {"lora_rank", 4}});
  EXPECT_EQ(became(on, "adapter.type") + became(on, "adapter.r") + became(on, "adapter.alpha"), "4") << "the folder says the rest";
  const Import again = imported(S::kAxolotl, {{"adapter", "lora"}, {"lora_model_dir", "out"}});
  EXPECT_EQ(became(again, "adapter.type") + became(again, "adapter.r") + became(again, "adapter.init_from"), "\"lora\"\"out\"");
  EXPECT_EQ(became(imported(S::kAxolotl, {{"adapter", "lora"}, {"lora_model_dir", nullptr}}), "adapter.init_from"), "");
  const Import qlora = imported(S::kAxolotl, {{"adapter", "qlora"}, {"load_in_4bit", true}});
  EXPECT_EQ(became(qlora, "adapter.type") + became(qlora, "model.quantize.type"), "\"lora\"\"nf4\"");
}

TEST(HuggingFaceImport, ProgramsBesideTrainerHaveTheirOwnDefaults) {
  const Import swift = imported(S::kSwift, {{"model", "x"}}, {"", 4});
  for (const auto& [path, value] : {std::pair{"batch.micro", "1"},
                                    {"batch.global", "16"},
                                    {"optimizer.weight_decay", "0.1"},
                                    {"optimizer.betas", "[0.9,0.95]"},
                                    {"lr_schedule.type", "\"cosine\""},
                                    {"log.every", "5"},
                                    {"recompute.policy", "\"full\""},
                                    {"precision.compute", "\"bf16\""}})
    EXPECT_EQ(became(swift, path), value) << path;
  const Import launched =
      import_leaves({{S::kLauncher, "run.sh", 1, 1, "--nproc_per_node", "4"}, {S::kSwift, "run.sh", 2, 1, "--model", "x"}});
  EXPECT_EQ(became(launched, "batch.global"), "16") << "ranks of a launcher count as --ranks does";
  const Import axolotl = imported(S::kAxolotl, {{"base_model", "x"}, {"wandb_project", nullptr}});
  for (const auto& [path, value] : {std::pair{"batch.micro", "1"},
                                    {"batch.sequence", "512"},
                                    {"run.epochs", "1"},
                                    {"lr_schedule.type", "\"cosine\""},
                                    {"lr_schedule.warmup_steps", "0.03"},
                                    {"checkpoint.every", "\"epoch\""},
                                    {"precision.compute", "\"auto\""}})
    EXPECT_EQ(became(axolotl, path), value) << path;
  EXPECT_EQ(became(imported(S::kAxolotl, {{"warmup_steps", 10}}), "lr_schedule.warmup_steps"), "10");
  EXPECT_EQ(became(imported(S::kAxolotl, {{"save_strategy", "no"}}), "checkpoint.every"), "\"end\"");
  EXPECT_EQ(became(imported(S::kAxolotl, {{"rl", "ipo"}}), "loss.variant"), "\"ipo\"");
  EXPECT_EQ(became(imported(S::kLlamaFactory, {{"stage", "dpo"}, {"pref_beta", 0.3}}), "loss.beta"), "0.3");
}

TEST(HuggingFaceImport, AxolotlsStepsMayBeAShareOfAll) {
  const Import import = imported(
      S::kAxolotl, {{"max_steps", 1000}, {"eval_steps", 0.05}, {"save_steps", 200}, {"val_set_size", 0.1}});
  EXPECT_EQ(became(import, "eval.every") + ' ' + became(import, "checkpoint.every"), "50 200");
  EXPECT_EQ(became(imported(S::kAxolotl, {{"eval_steps", 20}}), "eval.every"), "0") << "there is nothing to evaluate on";
}

TEST(HuggingFaceImport, MegatronOfSwiftHasItsOwnDefaults) {
  const Import import = import_leaves({{S::kLauncher, "run.sh", 1, 1, "--nproc_per_node", "8"},
                                       {S::kSwift, "run.sh", 2, 1, "program", "megatron sft"},
                                       {S::kSwift, "run.sh", 2, 1, "--model", "x"}});
  EXPECT_EQ(became(import, "batch.global"), "16") << "of all ranks, whatever is accumulated";
  EXPECT_EQ(became(import, "adapter.type"), "") << "all weights train";
  for (const auto& [path, wanted] : {std::pair{"batch.micro", "1"}, {"optimizer.lr", "1e-05"}, {"optimizer.weight_decay", "0.1"},
                                     {"recompute.policy", "\"selective\""}, {"parallel.zero", "\"zero1\""}, {"parallel.data", "8"}})
    EXPECT_EQ(became(import, path), wanted) << path;
  const Import split = import_leaves({{S::kLauncher, "run.sh", 1, 1, "--nproc_per_node", "4"},
                                      {S::kSwift, "run.sh", 2, 1, "program", "megatron sft"},
                                      {S::kSwift, "run.sh", 2, 1, "--tuner_type", "lora"},
                                      {S::kMegatron, "run.sh", 2, 1, "--micro_batch_size", "2"},
                                      {S::kMegatron, "run.sh", 2, 1, "--tensor_model_parallel_size", "2"}});
  EXPECT_EQ(became(split, "batch.global") + became(split, "batch.micro") + became(split, "parallel.data"), "1622");
}

TEST(HuggingFaceImport, AFileThatTrainsNothingIsRefused) {
  for (const char* const key : {"export_dir", "infer_backend"})
    expect_error<ConfigError>([&] { imported(S::kLlamaFactory, {{"template", "m"}, {key, "x"}}); }, {"nothing is trained"});
  const Words merged{{"model_name_or_path", "models/a"}, {"adapter_name_or_path", "out/b"}, {"export_dir", "out/c"}};
  expect_error<ConfigError>([&] { imported(S::kLlamaFactory, merged); },
                            {"--export_dir out/c: ", "use trident convert --from peft models/a out/b --to hf out/c"});
  const Words measured{{"template", "m"}, {"do_predict", true}};
  expect_error<ConfigError>([&] { imported(S::kLlamaFactory, measured); }, {"do_predict", "nothing is trained", "trident eval"});
  EXPECT_EQ(became(imported(S::kLlamaFactory, {{"do_train", true}, {"do_predict", true}}), "run.seed"), "42");
  expect_error<ConfigError>([&] { imported(S::kAxolotl, {{"relora_steps", 150}}); }, {"relora_steps", "not there"});
  expect_error<ConfigError>([&] { imported(S::kLlamaFactory, {{"stage", "kto"}}); }, {"stage", "use sft, pt or dpo"});
}

TEST(HuggingFaceImport, MegatronOfLlamaFactoryDividesTheModel) {
  const Words words{{"use_mca", true},
                    {"tensor_model_parallel_size", 2},
                    {"pipeline_model_parallel_size", 2},
                    {"sequence_parallel", true},
                    {"use_distributed_optimizer", true},
                    {"recompute_granularity", "full"},
                    {"per_device_train_batch_size", 1},
                    {"gradient_accumulation_steps", 4}};
  const Import import = imported(S::kLlamaFactory, words, {"", 8});
  EXPECT_EQ(became(import, "parallel.tensor") + became(import, "parallel.pipeline") + became(import, "parallel.data") +
                became(import, "batch.global") + became(import, "parallel.zero") + became(import, "recompute.policy"),
            "2228\"zero1\"\"full\"");
}

TEST(HuggingFaceImport, FilesOfUsersAreTaken) {
  const Import trl = import_files({kFolder + "trl_sft.yaml"}, {"", 4});
  for (const auto& [path, value] : {std::pair{"batch.global", "64"},
                                    {"batch.sequence", "4096"},
                                    {"lr_schedule.min_lr", "2e-05"},
                                    {"adapter.r", "32"},
                                    {"checkpoint.every", "\"epoch\""},
                                    {"eval.every", "0"},
                                    {"run.seed", "7"}})
    EXPECT_EQ(became(trl, path), value) << path;
  const Import axolotl = import_files({kFolder + "axolotl_lora.yaml"}, {"", 2});
  EXPECT_EQ(became(axolotl, "batch.global") + became(axolotl, "adapter.alpha") + became(axolotl, "model.quantize.type"),
            "1616\"nf4\"");
  const Import factory = import_files({kFolder + "llama_factory_sft.yaml"}, {"", 8});
  EXPECT_EQ(became(factory, "batch.global") + became(factory, "adapter.type") + became(factory, "run.overwrite"), "16true");
  const Import swift = import_files({kFolder + "swift_sft.sh"}, {"", 2});
  EXPECT_EQ(became(swift, "batch.global") + became(swift, "parallel.zero") + became(swift, "checkpoint.every"), "16\"zero2\"50");
}

TEST(HuggingFaceImport, LinearLayersAreTakenBesideNamedOnes) {
  const Import lora = imported(S::kAxolotl, {{"adapter", "lora"},
                                             {"lora_target_linear", true},
                                             {"lora_target_modules", JsonValue::Array{"q_proj"}},
                                             {"load_in_8bit", false},
                                             {"early_stopping_patience", nullptr}});
  EXPECT_EQ(became(lora, "adapter.target_modules"), "[\"all-linear\"]");
  EXPECT_EQ(became(lora, "checkpoint.keep_last"), "4") << "axolotl's default";
  expect_refusal({{"optim", "rmsprop"}}, "whose states have 32 bits");
  EXPECT_EQ(became(imported(S::kHuggingFace, {{"optim", "paged_adamw_8bit"}}), "offload.optimizer"), "\"host\"");
  EXPECT_EQ(lora.keys[3].note + lora.keys[4].note, "off, as hereoff, as here") << "what is off differs in nothing";
}

TEST(HuggingFaceImport, DocumentsAreSetAsideForValidation) {
  const auto of = [](S system, const Words& words) {
    const Import import = imported(system, words);
    return became(import, "data.split") + " " + became(import, "eval.every");
  };
  EXPECT_EQ(of(S::kAxolotl, {{"val_set_size", "0.05"}, {"evals_per_epoch", 4}}), "\"95,5\" \"epoch\"");
  EXPECT_EQ(of(S::kAxolotl, {{"val_set_size", "0.0"}, {"evals_per_epoch", 1}}), " 0") << "nothing is evaluated there";
  EXPECT_EQ(of(S::kAxolotl, {{"evals_per_epoch", 1}, {"test_datasets", "x"}}), " \"epoch\"");
  EXPECT_EQ(of(S::kLlamaFactory, {{"val_size", 0.0025}, {"eval_strategy", "epoch"}}), "\"99.75,0.25\" \"epoch\"");
  EXPECT_EQ(of(S::kSwift, {{"split_dataset_ratio", 0.01}, {"eval_strategy", "no"}}), "\"99,1\" 0");
  EXPECT_EQ(of(S::kSwift, {{"split_dataset_ratio", 0.01}, {"save_steps", 50}}), "\"99,1\" 50") << "as often as it saves";
  EXPECT_EQ(of(S::kSwift, {{"val_dataset", "x"}, {"eval_steps", 20}}), " 20");
  EXPECT_EQ(of(S::kSwift, {{"val_dataset", "x"}, {"save_strategy", "epoch"}}), " \"epoch\"");
  EXPECT_EQ(of(S::kSwift, {{"eval_steps", 20}}), " 0");
  const Import import = imported(S::kLlamaFactory, {{"val_size", 100}});
  EXPECT_NE(import.keys[0].note.find("so many documents there: data.split takes their share"), std::string::npos);
}

TEST(HuggingFaceImport, TheNameOfTheProgramSaysWhatTrains) {
  const TemporaryFolder folder;
  const auto of_command = [&](std::string_view command) {
    std::ofstream(folder / "run.sh") << command << '\n';
    return import_files({folder / "run.sh"});
  };
  EXPECT_EQ(became(of_command("trl dpo --model_name_or_path m"), "loss.type"), "\"dpo\"");
  const Import clm = of_command("torchrun --nproc_per_node 2 run_clm.py --block_size 2048");
  EXPECT_EQ(became(clm, "optimizer.lr") + became(clm, "batch.sequence") + became(clm, "data.samples"), "5e-052048");
  std::ofstream(folder / "clm.json") << R"({"model_name_or_path": "m", "block_size": 64})";
  EXPECT_EQ(became(of_command("torchrun --nproc_per_node 2 run_clm.py clm.json"), "optimizer.lr"), "5e-05") << "and no SFT's";
  std::ofstream(folder / "acc.yaml") << "distributed_type: FSDP\nnum_processes: 4\n";
  std::ofstream(folder / "lf.yaml") << "stage: sft\nfinetuning_type: full\ntemplate: t\n";
  const Import launched = of_command("accelerate launch --config_file acc.yaml src/train.py lf.yaml");
  EXPECT_EQ(became(launched, "parallel.data") + became(launched, "parallel.zero") + became(launched, "data.samples"),
            "4\"zero3\"\"packed\"");
  EXPECT_EQ(became(of_command("swift pt --model m --dataset d"), "data.samples"), "");
  EXPECT_EQ(became(of_command("swift rlhf --rlhf_type dpo --model m --dataset d"), "loss.type"), "\"dpo\"");
  EXPECT_EQ(became(of_command("python $HOME/trl/sft.py --model_name_or_path m"), "data.samples"), "\"packed\"");
  std::ofstream(folder / "a.yml") << "base_model: m\nbf16: auto\ndeepspeed: ds.json\n";
  std::ofstream(folder / "ds.json") << R"({"bf16": {"enabled": true}})";
  const Import axolotl = of_command("axolotl train a.yml --num-processes 4 --main-process-port 1 --learning-rate 1e-4");
  EXPECT_EQ(became(axolotl, "parallel.data") + became(axolotl, "optimizer.lr") + became(axolotl, "precision.compute"),
            "40.0001\"bf16\"") << "auto gives way to what another file says";
  std::ofstream(folder / "ray.yaml") << "model: m\ndataset: d\nuse_ray: true\ndevice_groups: {nproc_per_node: 4}\n";
  EXPECT_EQ(became(of_command("swift sft ray.yaml"), "parallel.data"), "4");
  for (const std::string launcher : {"--launcher torchrun", "--launcher=torchrun"})
    EXPECT_EQ(became(of_command("axolotl train a.yml " + launcher + " -- --nproc_per_node=2"), "parallel.data"), "2");
  EXPECT_EQ(became(of_command("torchrun swift/cli/sft.py --model m --dataset d"), "data.samples"), "\"packed\"");
}

// Returns what is said of the argument, which is given once.
std::string note_of(const Import& import, std::string_view key) {
  const auto found = std::ranges::find(import.keys, key, [](const ImportedKey& one) { return one.leaf.key; });
  return found == import.keys.end() ? "" : found->note;
}

TEST(HuggingFaceImport, PreferencesAreLearntWithoutDropoutUnlessAnArgumentKeepsIt) {
  const auto dropout = [](S system, Words words) {
    const Import import = imported(system, words);
    return became(import, "adapter.dropout") + "," + became(import, "model.dropout");
  };
  const Words dpo{{"program", "trl dpo"}, {"use_peft", true}};
  const auto with = [&](const char* key, const JsonValue& value) {
    Words words = dpo;
    words.emplace_back(key, value);
    return words;
  };
  EXPECT_EQ(dropout(S::kHuggingFace, dpo), "0,0");
  EXPECT_EQ(dropout(S::kHuggingFace, with("lora_dropout", "0.1")), "0,0");
  EXPECT_EQ(note_of(imported(S::kHuggingFace, with("lora_dropout", "0.1")), "--lora_dropout"),
            "DPO turns dropout off there, too (disable_dropout)");
  EXPECT_EQ(dropout(S::kHuggingFace, with("disable_dropout", "False")), "0.05,");
  EXPECT_EQ(dropout(S::kHuggingFace, with("no_disable_dropout", true)), "0.05,");
  EXPECT_EQ(dropout(S::kHuggingFace, {{"program", "trl sft"}, {"use_peft", true}}), "0.05,");
  EXPECT_EQ(dropout(S::kSwift, {{"program", "swift rlhf"}, {"rlhf_type", "dpo"}}), "0,");
  EXPECT_EQ(dropout(S::kAxolotl, {{"rl", "dpo"}, {"adapter", "lora"}, {"lora_dropout", 0.05}}), "0,");
}

TEST(HuggingFaceImport, TokensThatAreAddedAreThoseOfTheTokenizer) {
  for (const auto& [system, name] : {std::pair{S::kAxolotl, "special_tokens.eos_token"}, {S::kAxolotl, "tokens"},
                                     {S::kLlamaFactory, "add_tokens"}, {S::kSwift, "new_special_tokens"},
                                     {S::kHuggingFace, "eos_token"}}) {
    const Import import = imported(system, {{name, "<|im_end|>"}});
    EXPECT_EQ(import.keys[0].verdict, Verdict::kDiffers) << name;
    EXPECT_NE(import.keys[0].note.find("data.tokenizer"), std::string::npos) << name;
  }
}

TEST(HuggingFaceImport, ADataSetsNameIsThatOfItsFile) {
  TemporaryFolder folder;
  std::ofstream(folder / "dataset_info.json") << R"({"chats": {"file_name": "c.jsonl"}})";
  for (const auto& [name, part] : {std::pair{"chats", "--chat --input " + (folder / "c.jsonl") + " --tokenizer"},
                                   {"none", "dataset_info.json, which says the file of \"none\", is not here and was not read"}}) {
    const Import import = imported(S::kLlamaFactory, {{"dataset", name}, {"dataset_dir", folder / ""}});
    EXPECT_NE(import.keys[0].note.find(part), std::string::npos) << import.keys[0].note;
  }
  const std::string some = note_of(imported(S::kSwift, {{"program", "swift sft"}, {"dataset", "a/c.jsonl#100"}}), "--dataset");
  EXPECT_NE(some.find("drawn at random there: for the first ones give the output of head -n 100 a/c.jsonl"), some.npos) << some;
  EXPECT_NE(some.find("--input a/c.jsonl --tokenizer MODEL --loss assistant --output data/c, then"), some.npos) << some;
}

TEST(HuggingFaceImport, ADatasetIsAnsweredWithTheCommandsThatPrepareIt) {
  const auto answer = [](S system, const Words& words) {
    const Import import = imported(system, words);
    return note_of(import, system == S::kHuggingFace ? "--dataset_name" : "--dataset");
  };
  EXPECT_EQ(answer(S::kHuggingFace, {{"program", "sft.py"}, {"dataset_name", "in/chats.jsonl"}}),
            "give token files of it, by --loss completion where its lines have prompt and completion: "
            "trident data prepare --chat --input in/chats.jsonl --tokenizer MODEL --loss all --output "
            "data/chats, then --set data.train=data/chats");
  const Words packed{{"program", "sft.py"}, {"dataset_name", "a/b"}, {"model_name_or_path", kFolder}, {"packing", "true"},
                     {"assistant_only_loss", "true"}, {"completion_only_loss", "false"}};
  EXPECT_EQ(answer(S::kHuggingFace, packed),
            "give token files of it: trident data prepare --chat --input FILE --tokenizer " + kFolder +
                " --loss assistant --output data/b, trident data pack data/b --sequence 1024 --output data/b_packed, then --set "
                "data.train=data/b_packed");
  EXPECT_EQ(note_of(imported(S::kHuggingFace, packed), "--assistant_only_loss"),
            "--loss assistant: the targets that count are chosen with the data");
  const std::string pairs = answer(S::kHuggingFace, {{"program", "dpo.py"}, {"dataset_name", "p.jsonl"}});
  EXPECT_NE(pairs.find("trident data prepare --preference --input p.jsonl"), std::string::npos) << pairs;
  EXPECT_NE(answer(S::kHuggingFace, {{"program", "run_clm.py"}, {"dataset_name", "t.txt"}}).find("prepare --input t.txt"),
            std::string::npos);
  EXPECT_NE(answer(S::kSwift, {{"program", "swift sft"}, {"dataset", "c.jsonl"}}).find("--loss assistant"), std::string::npos);
  TemporaryFolder folder;  // TRL learns completions alone where the data have them, unless an argument says otherwise
  for (const auto& [line, argument, loss] : {std::tuple{R"({"prompt": "a", "completion": "b"})", "true", "--loss completion"},
                                             {R"({"prompt": "a", "completion": "b"})", "false", "--loss all"},
                                             {R"({"messages": []})", "", "--loss all"}}) {
    std::ofstream(folder / "d.jsonl") << line << "\nx";
    Words words{{"program", "sft.py"}, {"dataset_name", folder / "d.jsonl"}};
    if (argument == std::string("false")) words.emplace_back("completion_only_loss", argument);
    const std::string said = answer(S::kHuggingFace, words);
    EXPECT_TRUE(said.starts_with("give token files of it: ") && said.find(std::string(loss) + " --output") != said.npos) << said;
  }
  for (const auto& [system, key, name, style] : {std::tuple{S::kAxolotl, "chat_template", "llama3", "llama3"},
                                                 {S::kLlamaFactory, "template", "qwen", "chatml"},
                                                 {S::kSwift, "template", "chatml", "chatml"}}) {
    const std::string said = answer(system, {{"program", "swift sft"}, {"dataset", "c.jsonl"}, {key, name}});
    EXPECT_NE(said.find(fmt::format("--loss assistant --template {} --output", style)), said.npos) << said;
  }
}

}  // namespace
}  // namespace trident

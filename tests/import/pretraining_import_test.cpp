// Files of torchtitan and OLMo: every key has a verdict, and what the files become.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "model/config/model_presets.h"
#include "train/config/option_table.h"
#include "import/import.h"

namespace trident {
namespace {

const std::string kInputs = TRIDENT_SOURCE_DIR "/tests/import/files/";
using Keys = std::vector<std::pair<std::string, JsonValue>>;

Import import_of(ForeignSystem system, const Keys& keys, std::int64_t ranks = 8) {
  std::vector<ForeignLeaf> leaves;
  for (const auto& [key, value] : keys) leaves.push_back({system, "f", static_cast<int>(leaves.size()) + 1, 1, key, value});
  ImportRules rules;
  rules.ranks = ranks;
  return import_leaves(leaves, rules);
}

// The value of a path as JSON text; "-": none came out.
std::string value_at(const Import& import, std::string_view path) {
  const auto found = std::ranges::find(import.values, path, &ImportedValue::path);
  return found == import.values.end() ? "-" : to_json_text(found->value);
}

std::string refusal_of(ForeignSystem system, const Keys& keys) {
  try {
    import_of(system, keys);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

void expect_values(const Import& import, const std::vector<std::pair<std::string, std::string>>& expected) {
  for (const auto& [path, value] : expected) EXPECT_EQ(value_at(import, path), value) << path;
}

TEST(PretrainingImport, TheDebugModelOfTorchtitan) {
  ImportRules rules;
  rules.ranks = 4;
  const Import import = import_files({kInputs + "torchtitan_debug.toml"}, rules);
  expect_values(import, {{"run.steps", "10"}, {"model.model_type", "\"llama\""}, {"model.hidden_size", "256"},
                         {"model.intermediate_size", "768"}, {"model.num_hidden_layers", "6"}, {"model.num_attention_heads", "16"},
                         {"model.vocab_size", "2048"}, {"parallel.data", "4"}, {"parallel.zero", "\"zero3\""},
                         {"parallel.schedule", "-"}, {"batch.global", "32"}, {"batch.micro", "8"}, {"batch.sequence", "2048"},
                         {"precision.compute", "\"bf16\""}, {"recompute.policy", "\"selective\""}, {"optimizer.lr", "0.0008"},
                         {"optimizer.betas", "[0.9,0.95]"}, {"optimizer.weight_decay", "0.1"}, {"lr_schedule.type", "\"wsd\""},
                         {"lr_schedule.warmup_steps", "2"}, {"lr_schedule.wsd_decay_steps", "8"},
                         {"lr_schedule.wsd_decay_type", "\"linear\""}, {"checkpoint.every", "0"}, {"eval.every", "0"},
                         {"log.every", "1"}, {"log.tensorboard", "false"}});
}

TEST(PretrainingImport, TheEightBillionModelOfTorchtitan) {
  ImportRules rules;
  rules.ranks = 64;
  const Import import = import_files({kInputs + "torchtitan_llama3_8b.toml"}, rules);
  expect_values(import, {{"run.steps", "1000"},
                         {"model.preset", "\"llama3.1-8b\""},
                         {"parallel.data", "64"},
                         {"batch.global", "64"},
                         {"batch.micro", "1"},
                         {"batch.sequence", "8192"},
                         {"lr_schedule.type", "\"linear\""},
                         {"lr_schedule.warmup_steps", "200"},
                         {"lr_schedule.min_lr", "0.0"},
                         {"log.trace_steps", "[100,100]"}});
  rules.settings = {"run.steps=2"};
  const Import tried = import_files({kInputs + "torchtitan_llama3_8b.toml"}, rules);
  expect_values(tried, {{"run.steps", "-"}, {"lr_schedule.warmup_steps", "2"}, {"log.trace_steps", "-"}});
  for (const auto& [key, note] : {std::pair("training.steps", "--set run.steps=2 counts in its place"),
                                  {"profiling.profile_freq", "nothing is traced: run.steps = 2 ends before"}})
    EXPECT_TRUE(std::ranges::any_of(tried.keys, [&](const ImportedKey& one) {
      return one.leaf.key == key && one.note.find(note) != std::string::npos;
    })) << key;
}

TEST(PretrainingImport, APipelineOfTorchtitanCutsTheLocalBatch) {
  const Import import = import_of(ForeignSystem::kTorchtitan, {{"parallelism.pipeline_parallel_degree", 2},
                                                               {"parallelism.pipeline_parallel_schedule", "Interleaved1F1B"},
                                                               {"parallelism.tensor_parallel_degree", 2},
                                                               {"training.local_batch_size", 8},
                                                               {"parallelism.pipeline_parallel_microbatch_size", 2},
                                                               {"model.flavor", "8B_flex"}});
  expect_values(import, {{"parallel.data", "2"}, {"parallel.schedule", "\"interleaved\""}, {"parallel.virtual_stages", "2"},
                         {"parallel.zero", "\"shard_grad_op\""}, {"parallel.sequence_parallel", "true"}, {"batch.micro", "2"},
                         {"batch.global", "16"}, {"data.reset_attention_mask", "true"}, {"model.preset", "\"llama3.1-8b\""}});
  const auto stages = [](const char* schedule, int layers) -> Keys {  // of 34: 32, the embedding and the head
    return {{"parallelism.pipeline_parallel_degree", 2}, {"parallelism.pipeline_parallel_schedule", schedule},
            {"parallelism.pipeline_parallel_layers_per_stage", layers}, {"model.flavor", "8B"}};
  };
  EXPECT_EQ(value_at(import_of(ForeignSystem::kTorchtitan, stages("Interleaved1F1B", 9)), "parallel.virtual_stages"), "2");
  EXPECT_EQ(refusal_of(ForeignSystem::kTorchtitan, stages("1F1B", 17)), "accepted");
  Keys even = stages("1F1B", 16);
  for (const char* const end : {"first", "last"})
    even.emplace_back(std::string("parallelism.pipeline_parallel_") + end + "_stage_less_layers", 0);
  EXPECT_EQ(refusal_of(ForeignSystem::kTorchtitan, even), "accepted");
  for (const auto& [schedule, layers] : {std::pair{"Interleaved1F1B", 5}, {"Interleaved1F1B", 17}, {"1F1B", 9}}) {
    const std::string refusal = refusal_of(ForeignSystem::kTorchtitan, stages(schedule, layers));
    EXPECT_NE(refusal.find("each; change one of them"), std::string::npos) << schedule << layers << refusal;
  }
}

TEST(PretrainingImport, TorchtitansDegreesSwitchesAndSchedules) {
  const auto titan = [](const Keys& keys) { return import_of(ForeignSystem::kTorchtitan, keys); };
  EXPECT_EQ(value_at(titan({{"parallelism.data_parallel_replicate_degree", 2}}), "parallel.shard_group"), "4");
  EXPECT_EQ(value_at(titan({{"parallelism.data_parallel_shard_degree", 1}, {"parallelism.data_parallel_replicate_degree", 8}}),
                     "parallel.zero"),
            "\"ddp\"");
  EXPECT_EQ(value_at(titan({{"parallelism.fsdp_reshard_after_forward", "never"}}), "parallel.zero"), "\"shard_grad_op\"");
  EXPECT_EQ(value_at(titan({{"training.global_batch_size", 64}, {"training.local_batch_size", 2}}), "batch.global"), "64");
  expect_values(
      titan({{"lr_scheduler.decay_type", "sqrt"}, {"training.steps", 100}, {"lr_scheduler.warmup_steps", 20}}),
      {{"lr_schedule.type", "\"wsd\""}, {"lr_schedule.wsd_decay_type", "\"minus_sqrt\""}, {"lr_schedule.wsd_decay_steps", "80"}});
  EXPECT_EQ(value_at(titan({{"training.steps", 50}, {"lr_scheduler.total_steps", 100}}), "lr_schedule.decay_steps"), "100");
  expect_values(
      titan({{"checkpoint.enable", true}, {"checkpoint.interval", 25}, {"checkpoint.folder", "c"}, {"job.dump_folder", "out"}}),
      {{"checkpoint.every", "25"}, {"checkpoint.dir", "\"out/c\""}});
  expect_values(titan({{"training.enable_cpu_offload", true}}),
                {{"offload.parameters", "\"host\""}, {"offload.optimizer", "\"host\""}});
  EXPECT_EQ(value_at(titan({{"model.converters", JsonValue::Array{"quantize.linear.float8"}},
                            {"quantize.linear.float8.recipe_name", "rowwise"}}),
                     "precision.fp8"),
            "\"rowwise\"");
  EXPECT_EQ(value_at(titan({{"parallelism.context_parallel_degree", 2}}), "parallel.context"), "2");
  expect_values(titan({{"checkpoint.enable_checkpoint", true}, {"checkpoint.interval", 7}, {"training.compile", true},
                       {"lr_scheduler.lr_min", 0.1}, {"optimizer.lr", 0.5}}),
                {{"checkpoint.every", "7"}, {"lr_schedule.min_lr", "0.05"}});  // names of torchtitan 0.1
  const Import qwen = titan({{"model.name", "qwen3"}, {"model.flavor", "0.6B"}});
  expect_values(qwen, {{"model.model_type", "\"qwen3\""}, {"model.hidden_size", "1024"}, {"model.head_dim", "128"},
                       {"model.tie_word_embeddings", "true"}});
  EXPECT_NE(refusal_of(ForeignSystem::kTorchtitan, {{"model.name", "deepseek_v3"}}).find("f:1 model.name: deepseek_v3"),
            std::string::npos);
  EXPECT_NE(refusal_of(ForeignSystem::kTorchtitan, {{"training.local_batchsize", 2}}).find("training.local_batch_size"),
            std::string::npos);
}

TEST(PretrainingImport, TorchtitansSectionsOfBeforeAreRead) {
  const auto titan = [](const Keys& keys) { return import_of(ForeignSystem::kTorchtitan, keys); };
  expect_values(titan({{"training.tensor_parallel_degree", 2},
                       {"training.data_parallel_shard_degree", -1},
                       {"experimental.pipeline_parallel_degree", 2},
                       {"experimental.pipeline_parallel_schedule", "interleaved_1f1b"},
                       {"experimental.pipeline_parallel_microbatches", 4},
                       {"training.batch_size", 8},
                       {"training.warmup_steps", 50},
                       {"model.name", "llama2"},
                       {"model.flavor", "13B"},
                       {"model.norm_type", "fused_rmsnorm"},
                       {"float8.enable_float8_linear", true}}),
                {{"parallel.tensor", "2"},
                 {"parallel.pipeline", "2"},
                 {"parallel.data", "2"},
                 {"parallel.schedule", "\"interleaved\""},
                 {"batch.micro", "2"},
                 {"batch.global", "16"},
                 {"lr_schedule.warmup_steps", "50"},
                 {"model.preset", "\"llama2-13b\""},
                 {"precision.fp8", "\"tensorwise\""}});
  EXPECT_EQ(value_at(titan({{"training.data_parallel_degree", 8}, {"training.data_parallel_type", "ddp"}}), "parallel.zero"),
            "\"ddp\"");
  EXPECT_EQ(value_at(titan({{"profiling.enable_profiling", true}, {"profiling.profile_freq", 100}, {"training.steps", 10}}),
                     "log.trace_steps"),
            "-")
      << "the run ends before";
  EXPECT_EQ(value_at(titan({{"float8.enable_float8_linear", false}}), "precision.fp8"), "-");
  for (const auto& [key, value] : {std::pair{"checkpoint.interval_type", "seconds"}, {"model.norm_type", "layernorm"}})
    EXPECT_NE(refusal_of(ForeignSystem::kTorchtitan, {{key, value}}).find("; use "), std::string::npos) << key;
}

TEST(PretrainingImport, TheJsonOfALaterTorchtitanIsReadAsItsToml) {
  const Keys keys{{"model_spec.name", "llama3"},
                  {"model_spec.flavor", "8B"},
                  {"model_spec.model", JsonValue::Object{{"dim", 4096}}},
                  {"dump_folder", "out"},
                  {"optimizer.param_groups[0].pattern", ".*"},
                  {"optimizer.param_groups[0].optimizer_name", "AdamW"},
                  {"optimizer.param_groups[0].optimizer_kwargs.lr", 3e-4},
                  {"optimizer.param_groups[0].optimizer_kwargs.betas", JsonValue::Array{0.9, 0.98}},
                  {"parallelism.tensor_parallel_degree", 2},
                  {"parallelism.enable_sequence_parallel", false},
                  {"training.disable_cuda_graphs", true},
                  {"compile.enable_async_tensor_parallel", true},
                  {"validator.enable", true},
                  {"validator.freq", 50},
                  {"activation_checkpoint.preserve_rng_state", true}};
  const auto with = [&](Keys more) {
    more.insert(more.begin(), keys.begin(), keys.end());
    return more;
  };
  expect_values(import_of(ForeignSystem::kTorchtitan, keys), {{"model.preset", "\"llama3.1-8b\""},
                                                             {"run.dir", "\"out\""},
                                                             {"optimizer.lr", "0.0003"},
                                                             {"optimizer.betas", "[0.9,0.98]"},
                                                             {"parallel.sequence_parallel", "false"},
                                                             {"parallel.tensor_overlap", "\"chunked\""},
                                                             {"cuda.graphs", "false"},
                                                             {"eval.every", "50"},
                                                             {"recompute.policy", "\"full\""}});
  const auto policy_with = [&](const char* key, const JsonValue& value) {
    return value_at(import_of(ForeignSystem::kTorchtitan, with({{key, value}})), "recompute.policy");
  };
  EXPECT_EQ(policy_with("activation_checkpoint.force_recompute_mm_shapes_by_fqns", JsonValue::Array{"a"}), "\"selective\"");
  EXPECT_EQ(policy_with("activation_checkpoint", {}), "\"none\"");
  for (const auto& [key, part] : {std::pair{"activation_checkpoint.memory_budget", "no compiler weighs memory"},
                                  {"optimizer.param_groups[1].pattern", "all matrices have one rule"}})
    EXPECT_NE(refusal_of(ForeignSystem::kTorchtitan, with({{key, 0.5}})).find(part), std::string::npos) << key;
}

TEST(PretrainingImport, TheOneBillionModelOfOlmo) {
  ImportRules rules;
  rules.ranks = 64;
  const Import import = import_files({kInputs + "olmo_1b.yaml"}, rules);
  JsonValue model;
  for (const ImportedValue& value : import.values)
    if (value.path.starts_with("model.") && find_option(value.path) == nullptr) model.set(value.path.substr(6), value.value);
  EXPECT_EQ(model_config_from_hf(model, "model", 0.0), model_preset("olmo-1b", "model"));
  expect_values(import, {{"run.seed", "6198"},
                         {"run.steps", "739328"},
                         {"parallel.zero", "\"zero3\""},
                         {"parallel.data", "64"},
                         {"batch.global", "2048"},
                         {"batch.micro", "8"},
                         {"batch.sequence", "2048"},
                         {"precision.compute", "\"bf16\""},
                         {"recompute.policy", "\"none\""},
                         {"optimizer.type", "\"adamw\""},
                         {"optimizer.lr", "0.0004"},
                         {"optimizer.eps", "1e-05"},
                         {"optimizer.grad_clip", "1.0"},
                         {"lr_schedule.type", "\"cosine\""},
                         {"lr_schedule.warmup_steps", "2000"},
                         {"lr_schedule.min_lr", "4e-05"},
                         {"eval.every", "1000"},
                         {"checkpoint.every", "1000"},
                         {"checkpoint.keep_last", "9"}});
  const auto key = std::ranges::find(import.keys, "fsdp.wrapping_strategy", [](const ImportedKey& one) { return one.leaf.key; });
  ASSERT_NE(key, import.keys.end());
  EXPECT_EQ(key->verdict, Verdict::kDiffers);
  EXPECT_NE(key->note.find("the whole model is one unit there"), std::string::npos);
}

TEST(PretrainingImport, OlmosDropoutOfAttentionIsSaidWhereItIsLeftOut) {
  const auto dropout = [](const Keys& keys) { return value_at(import_of(ForeignSystem::kOlmo, keys), "model.attention_dropout"); };
  EXPECT_EQ(dropout({{"model.d_model", 64}}), "0");
  EXPECT_NE(dropout({{"model.d_model", 64}, {"model.attention_dropout", 0.0}}), "0");
}

TEST(PretrainingImport, OlmosLengthsFamiliesAndStrategies) {
  const auto olmo = [](const Keys& keys) { return import_of(ForeignSystem::kOlmo, keys); };
  expect_values(olmo({{"max_duration", "4e12T"}, {"global_train_batch_size", 512}, {"model.max_sequence_length", 4096},
                      {"scheduler.units", "tokens"}, {"scheduler.t_warmup", 8388608000}, {"scheduler.t_max", 5e12}}),
                {{"run.steps", "1907348"}, {"lr_schedule.warmup_steps", "4000"}, {"lr_schedule.decay_steps", "2384186"}});
  EXPECT_EQ(value_at(olmo({{"max_duration", "1ep"}}), "run.epochs"), "1.0");
  expect_values(olmo({{"max_duration", 1000}, {"stop_at", 100}}), {{"run.steps", "100"}, {"lr_schedule.decay_steps", "1000"}});
  const Keys tokens{{"max_duration", "2e9T"}, {"global_train_batch_size", 1024}, {"model.max_sequence_length", 2048}};
  expect_values(olmo(tokens), {{"run.steps", "953"}});
  Keys stopped = tokens;
  stopped.push_back({"stop_at", 900});
  expect_values(olmo(stopped), {{"run.steps", "900"}, {"lr_schedule.decay_steps", "953"}});
  EXPECT_NE(refusal_of(ForeignSystem::kOlmo, {{"max_duration", "5 days"}}).find("steps (1000), tokens (2e12T) or epochs (1ep)"),
            std::string::npos);
  EXPECT_EQ(refusal_of(ForeignSystem::kOlmo, {{"model.n_layers", 2.5}}),
            "f:1 model.n_layers: 2.5: model.num_hidden_layers = 2.5: must be an integer; correct it");
  EXPECT_EQ(value_at(olmo({{"model.rope_theta", 10000.5}}), "model.rope_theta"), "10000.5");
  const Keys second{{"model.layer_norm_type", "rms"},
                    {"model.norm_after", true},
                    {"model.attention_layer_norm", true},
                    {"model.layer_norm_eps", 1e-6}};
  expect_values(olmo(second), {{"model.model_type", "\"olmo2\""}, {"model.rms_norm_eps", "1e-06"}});
  EXPECT_EQ(value_at(olmo({{"model.layer_norm_type", "rms"}}), "model.model_type"), "\"llama\"");
  EXPECT_NE(refusal_of(ForeignSystem::kOlmo, {{"model.layer_norm_type", "default"}}).find("no family here has these norms"),
            std::string::npos);
  EXPECT_EQ(value_at(olmo({{"distributed_strategy", "ddp"}, {"ddp.grad_sync_mode", "batch"}}), "parallel.zero"), "\"ddp\"");
  EXPECT_EQ(value_at(olmo({{"fsdp.sharding_strategy", "SHARD_GRAD_OP"}}), "parallel.zero"), "\"shard_grad_op\"");
  EXPECT_EQ(value_at(olmo({{"fsdp.sharding_strategy", "HYBRID_SHARD"}}), "parallel.shard_group"), "\"node\"");
  EXPECT_EQ(value_at(olmo({{"fsdp.sharding_strategy", "HYBRID_SHARD"}, {"fsdp.hybrid_sharding_num_model_replicas", 2}}),
                     "parallel.shard_group"),
            "4");
  expect_values(olmo({{"scheduler.name", "constant"}}), {{"lr_schedule.type", "\"constant\""}, {"lr_schedule.warmup_steps", "0"}});
  EXPECT_EQ(value_at(olmo({{"save_interval", nullptr}}), "checkpoint.every"), "0");
  EXPECT_EQ(value_at(olmo({{"max_grad_norm", nullptr}}), "optimizer.grad_clip"), "0.0");
  EXPECT_EQ(value_at(olmo({{"activation_checkpointing", "whole_layer"}}), "recompute.policy"), "\"full\"");
  EXPECT_EQ(value_at(olmo({{"save_num_checkpoints_to_keep", -1}}), "checkpoint.keep_last"), "0");
}

}  // namespace
}  // namespace trident

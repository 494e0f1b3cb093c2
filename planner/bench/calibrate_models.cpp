#include "planner/bench/calibrate_models.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/cpu/multiply_rates.h"
#include "train/plan/machine.h"

namespace trident {
namespace {

struct Sizes {
  std::int64_t hidden = 0, layers = 2, heads = 4, ffn = 0, vocabulary = 0, sequence = 0, micro = 1, micro_batches = 2;
};

Sizes bounded(Sizes sizes, std::int64_t largest) {
  sizes.hidden = std::max(std::min(sizes.hidden, largest) / 32 * 32, std::int64_t{32});
  if (sizes.hidden % sizes.heads != 0) sizes.heads = 4;
  sizes.ffn = std::min(sizes.ffn, 3 * sizes.hidden);
  sizes.vocabulary = std::min(sizes.vocabulary, 32 * largest);
  sizes.sequence = std::min(sizes.sequence, largest);
  return sizes;
}

TrainedModel model_of(const std::string& family, const Sizes& s, const std::string& precision,
                      const std::vector<std::string>& settings) {
  const bool gpt = family == "gpt2";
  const std::string keys =
      gpt ? fmt::format(
                R"("model_type": "gpt2", "vocab_size": {}, "n_positions": {}, "n_embd": {}, "n_layer": {}, "n_head": {},
           "n_inner": {}, "embd_pdrop": 0.1, "resid_pdrop": 0.1, "attn_pdrop": 0.0)",
                s.vocabulary, s.sequence, s.hidden, s.layers, s.heads, s.ffn)
          : fmt::format(
                R"("model_type": "{}", "vocab_size": {}, "max_position_embeddings": {}, "hidden_size": {}, "num_hidden_layers": {},
           "num_attention_heads": {}, "num_key_value_heads": {}, "intermediate_size": {}, "tie_word_embeddings": {})",
                family, s.vocabulary, s.sequence, s.hidden, s.layers, s.heads, s.heads / 2, s.ffn,
                family == "olmo2" ? "false" : "true");
  const std::string text = fmt::format(
      R"({{"run": {{"dir": "unused", "steps": 1}}, "device": "cpu", "model": {{{}}},
      "batch": {{"global": {}, "micro": {}, "sequence": {}}}, "precision": {{"compute": "{}"}}, "optimizer": {{"lr": 1e-4}},
      "data": {{"train": "unused"}}}})",
      keys, s.micro * s.micro_batches, s.micro, s.sequence, precision);
  TrainedModel model{fmt::format("{} {} {}", family, s.hidden, precision), parse_train_config(text, "calibration", settings)};
  return model;
}

// Appends every such one, from the first on.
void take(const std::vector<TrainedModel>& all, int every, std::vector<TrainedModel>& taken) {
  for (std::size_t i = 0; i < all.size(); i += static_cast<std::size_t>(every)) taken.push_back(all[i]);
}

}  // namespace

std::vector<TrainedModel> models_on_one_rank(std::int64_t largest, int every) {
  const std::vector<Sizes> all{
      {.hidden = 64, .layers = 4, .heads = 4, .ffn = 160, .vocabulary = 512, .sequence = 32, .micro = 1, .micro_batches = 4},
      {.hidden = 96, .layers = 3, .heads = 2, .ffn = 288, .vocabulary = 1536, .sequence = 96, .micro = 2, .micro_batches = 2},
      {.hidden = 192, .layers = 2, .heads = 6, .ffn = 512, .vocabulary = 6144, .sequence = 160, .micro = 2, .micro_batches = 2},
      {.hidden = 320, .layers = 2, .heads = 10, .ffn = 896, .vocabulary = 3072, .sequence = 320, .micro = 2, .micro_batches = 1},
      {.hidden = 512, .layers = 2, .heads = 8, .ffn = 1408, .vocabulary = 12288, .sequence = 256, .micro = 1, .micro_batches = 2},
  };
  std::vector<TrainedModel> taken;
  for (const char* precision : {"fp32", "bf16"}) {
    std::vector<TrainedModel> models;
    for (const char* family : {"gpt2", "llama"})
      for (const Sizes& sizes : all) models.push_back(model_of(family, bounded(sizes, largest), precision, {}));
    for (const UpdateRule rule : std::span(kUpdateRules).subspan(1))  // so that a profile has the others' updates
      for (const std::size_t i : {0, 2})
        models.push_back(
            model_of("olmo", bounded(all[i], largest), precision,
                     {"model.clip_qkv=1.0", fmt::format("optimizer.type=\"{}\"", to_string(rule)), "optimizer.weight_decay=0.1"}));
    // Qwen 3 norms queries and keys: its alone are split, turned and merged, because attention reads others' as rows.
    for (const std::size_t i : {1, 3}) models.push_back(model_of("qwen3", bounded(all[i], largest), precision, {}));
    take(models, every, taken);
  }
  return taken;
}

std::vector<TrainedModel> models_on_ranks(std::int64_t largest, int every) {
  const Sizes small{
      .hidden = 64, .layers = 4, .heads = 4, .ffn = 160, .vocabulary = 512, .sequence = 32, .micro = 1, .micro_batches = 8};
  const Sizes middle{
      .hidden = 160, .layers = 4, .heads = 4, .ffn = 448, .vocabulary = 2048, .sequence = 96, .micro = 1, .micro_batches = 8};
  const Sizes wide{
      .hidden = 352, .layers = 3, .heads = 8, .ffn = 960, .vocabulary = 4096, .sequence = 224, .micro = 1, .micro_batches = 4};
  std::vector<TrainedModel> taken;
  for (const char* precision : {"fp32", "bf16"}) {
    std::vector<TrainedModel> models;
    for (const Sizes& sizes : {bounded(small, largest), bounded(middle, largest)}) {
      models.push_back(model_of("olmo2", sizes, precision, {"parallel.tensor=2"}));
      models.push_back(model_of("llama", sizes, precision, {"parallel.tensor=2", "parallel.sequence_parallel=true"}));
      models.push_back(model_of("gpt2", sizes, precision, {"parallel.data=2", "parallel.zero=\"zero2\""}));
      models.push_back(model_of("llama", sizes, precision, {"parallel.data=2", "parallel.zero=\"zero3\""}));
      models.push_back(model_of("llama", sizes, precision, {"parallel.pipeline=2"}));
    }
    for (const int tensor : {2, 4})
      models.push_back(model_of("llama", bounded(wide, largest), precision, {fmt::format("parallel.tensor={}", tensor)}));
    models.push_back(model_of("gpt2", bounded(small, largest), precision,
                              {"parallel.pipeline=2", "parallel.tensor=2", "recompute.head_chunk=16"}));
    models.push_back(model_of("gpt2", bounded(middle, largest), precision, {"parallel.tensor=4"}));
    models.push_back(model_of("llama", bounded(middle, largest), precision, {"parallel.data=4", "parallel.zero=\"zero3\""}));
    models.push_back(model_of("gpt2", bounded(small, largest), precision, {"parallel.pipeline=4"}));
    models.push_back(model_of("llama", bounded(middle, largest), precision, {"parallel.pipeline=2", "parallel.data=2"}));
    models.push_back(model_of("gpt2", bounded(wide, largest), precision, {"parallel.tensor=8"}));
    models.push_back(model_of("gpt2", bounded(small, largest), precision, {"parallel.data=8", "parallel.zero=\"zero2\""}));
    take(models, every, taken);
  }
  return taken;
}

std::vector<TrainedModel> models_for_memory(std::int64_t largest, const std::string& precision, int every) {
  const Sizes small{
      .hidden = 96, .layers = 8, .heads = 8, .ffn = 288, .vocabulary = 1536, .sequence = 96, .micro = 1, .micro_batches = 8};
  const Sizes middle{
      .hidden = 192, .layers = 8, .heads = 8, .ffn = 512, .vocabulary = 3072, .sequence = 160, .micro = 1, .micro_batches = 8};
  std::vector<TrainedModel> models, taken;
  for (const std::string family : {"gpt2", "llama"}) {
    const Sizes sizes = bounded(family == "gpt2" ? small : middle, largest);
    for (const std::vector<std::string>& ranks : std::vector<std::vector<std::string>>{
             {},
             {"parallel.data=2"},
             {"parallel.data=4"},
             {"parallel.tensor=2"},
             {"parallel.pipeline=2", "parallel.tensor=2", "parallel.data=2"},
             {"parallel.tensor=4"},
             {"parallel.pipeline=4"},
             {"parallel.data=8"}})
      models.push_back(model_of(family, sizes, precision, ranks));
  }
  take(models, every * every, taken);  // fewer, because each is a process of its own
  return taken;
}

RunPlan plan_of(const TrainedModel& model, int threads) {
  MachineFacts machine = kAnyMachine;
  machine.core_share.cores = threads;
  machine.bf16_over_fp32 = bf16_over_fp32();  // the models are trained here
  RunPlan plan = make_run_plan(model.config, resolve_model(model.config), 0, machine);
  plan.threads_per_rank = threads;
  return plan;
}

}  // namespace trident

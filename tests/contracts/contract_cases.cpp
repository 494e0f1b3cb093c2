#include "tests/contracts/contract_cases.h"

#include <fmt/core.h>

#include <ostream>

namespace trident::contracts {
namespace {

const ModelNumbers kLlama{.type = "llama"};
const ModelNumbers kQwen3{.type = "qwen3", .head_dim = 16};
const ModelNumbers kQwen3FiveLayers{.type = "qwen3", .layers = 5, .head_dim = 16};
const ModelNumbers kQwen2{.type = "qwen2", .tied = true};
const ModelNumbers kOlmo2{.type = "olmo2"};
const ModelNumbers kGpt2{.type = "gpt2", .vocabulary = 131, .kv_heads = 4, .ffn = 64, .tied = true};

std::string model_json(const ModelNumbers& m) {
  if (m.gpt2()) {
    return fmt::format(R"({{"model_type": "gpt2", "vocab_size": {}, "n_embd": {}, "n_layer": {}, "n_head": {}, "n_inner": {},
                         "n_positions": {}, "tie_word_embeddings": {}}})",
                       m.vocabulary, m.hidden, m.layers, m.heads, m.ffn, m.positions, m.tied);
  }
  return fmt::format(R"({{"model_type": "{}", "vocab_size": {}, "hidden_size": {}, "num_hidden_layers": {},
                       "num_attention_heads": {}, "num_key_value_heads": {},
                       "head_dim": {}, "intermediate_size": {}, "max_position_embeddings": {},
                       "tie_word_embeddings": {}}})",
                     m.type, m.vocabulary, m.hidden, m.layers, m.heads, m.kv_heads, m.head_dim, m.ffn, m.positions, m.tied);
}

}  // namespace

std::vector<ContractCase> contract_cases() {
  return {
      {.name = "one_rank", .model = kLlama},
      {.name = "one_rank_tied", .model = kGpt2},
      // Data parallelism under every preset.
      {.name = "dp2_ddp", .model = kLlama, .data = 2, .zero = "ddp"},
      {.name = "dp2_zero1", .model = kLlama, .data = 2},
      {.name = "dp2_zero2", .model = kLlama, .data = 2, .zero = "zero2"},
      {.name = "dp2_shard_grad_op", .model = kLlama, .data = 2, .zero = "shard_grad_op"},
      {.name = "dp2_zero3", .model = kLlama, .data = 2, .zero = "zero3"},
      {.name = "dp3_ddp_tied", .model = kGpt2, .data = 3, .zero = "ddp"},
      {.name = "dp3_zero1_tied", .model = kGpt2, .data = 3},
      {.name = "dp3_zero3_tied", .model = kGpt2, .data = 3, .zero = "zero3"},
      {.name = "dp4_zero2_small_buckets", .model = kLlama, .data = 4, .zero = "zero2", .bucket_mb = 0.012},
      {.name = "dp2_ddp_every2", .model = kLlama, .data = 2, .zero = "ddp", .sync_every = 2},
      {.name = "dp2_zero3_step", .model = kLlama, .data = 2, .zero = "zero3", .sync_every = 0},
      {.name = "dp2_zero2_every3_of_5", .model = kLlama, .data = 2, .zero = "zero2", .sync_every = 3, .micro_batches = 5},
      {.name = "dp2_zero1_gather_per_use", .model = kQwen2, .data = 2, .gather = "per_use"},
      {.name = "dp2_ddp_gather_per_micro_batch", .model = kLlama, .data = 2, .zero = "ddp", .gather = "per_micro_batch"},
      {.name = "dp2_zero3_no_overlap", .model = kLlama, .data = 2, .zero = "zero3", .overlap = false},
      // Tensor parallelism.
      {.name = "tp2", .model = kLlama, .tensor = 2},
      {.name = "tp2_sp_micro2", .model = kLlama, .tensor = 2, .sequence_parallel = true, .micro = 2},
      {.name = "tp4_over_2_kv_heads", .model = kQwen2, .tensor = 4},
      {.name = "tp4_sp_over_2_kv_heads", .model = kQwen3, .tensor = 4, .sequence_parallel = true},
      {.name = "tp2_sp_gpt2", .model = kGpt2, .tensor = 2, .sequence_parallel = true},
      {.name = "tp2_full_recompute", .model = kLlama, .tensor = 2, .recompute = "full"},
      {.name = "tp2_sp_full_recompute", .model = kGpt2, .tensor = 2, .sequence_parallel = true, .recompute = "full"},
      {.name = "tp2_sp_selective", .model = kLlama, .tensor = 2, .sequence_parallel = true, .recompute = "selective"},
      // Norms over all heads.
      {.name = "tp2_sp_olmo2", .model = kOlmo2, .tensor = 2, .sequence_parallel = true, .micro = 2},
      {.name = "tp4_over_2_kv_heads_olmo2", .model = kOlmo2, .tensor = 4},
      {.name = "tp2_full_recompute_olmo2", .model = kOlmo2, .tensor = 2, .recompute = "full"},
      {.name = "tp4_sp_dp2_zero3_full_recompute_olmo2_bf16", .model = kOlmo2, .tensor = 4, .data = 2, .sequence_parallel = true,
       .zero = "zero3", .recompute = "full", .compute_bytes = 2},
      // Logits in chunks.
      {.name = "tp2_head_chunk", .model = kLlama, .tensor = 2, .head_chunk = 3},
      {.name = "tp2_sp_dp2_head_chunk_tied", .model = kGpt2, .tensor = 2, .data = 2, .sequence_parallel = true, .head_chunk = 4},
      {.name = "tp2_sp_pp2_gpipe_head_chunk_bf16", .model = kLlama, .tensor = 2, .pipeline = 2, .sequence_parallel = true,
       .schedule = "gpipe", .head_chunk = 5, .compute_bytes = 2},
      // Pipelines.
      {.name = "pp2", .model = kLlama, .pipeline = 2},
      {.name = "pp4_gpipe_uneven", .model = kQwen3FiveLayers, .pipeline = 4, .schedule = "gpipe", .layers = {1, 2, 1, 1}},
      {.name = "pp2_interleaved_tied", .model = kGpt2, .pipeline = 2, .chunks = 2, .schedule = "interleaved"},
      {.name = "pp4_dp2_shard_grad_op", .model = kLlama, .pipeline = 4, .data = 2, .zero = "shard_grad_op", .micro_batches = 6},
      {.name = "pp2_dp2_shard_grad_op_interleaved", .model = kLlama, .pipeline = 2, .data = 2, .chunks = 2,
       .zero = "shard_grad_op", .schedule = "interleaved"},
      {.name = "pp2_dp2_zero2_gpipe_tied", .model = kGpt2, .pipeline = 2, .data = 2, .zero = "zero2", .schedule = "gpipe"},
      {.name = "pp2_dp2_ddp_tied", .model = kQwen2, .pipeline = 2, .data = 2, .zero = "ddp"},
      // All at once.
      {.name = "tp2_sp_pp2_dp2_zero1_bf16", .model = kLlama, .tensor = 2, .pipeline = 2, .data = 2, .sequence_parallel = true,
       .compute_bytes = 2},
      {.name = "tp2_pp2_dp2_zero3_bf16_tied", .model = kGpt2, .tensor = 2, .pipeline = 2, .data = 2, .zero = "zero3", .micro = 2,
       .compute_bytes = 2},
      {.name = "tp4_sp_pp2_dp2_zero3_interleaved_full", .model = kQwen2, .tensor = 4, .pipeline = 2, .data = 2, .chunks = 2,
       .sequence_parallel = true, .zero = "zero3", .schedule = "interleaved", .recompute = "full", .sync_every = 2},
  };
}

std::vector<ContractCase> tuned_contract_cases() {
  const std::string lora = R"("adapter": {"type": "lora", "r": 4)";
  return {
      {.name = "lora_bf16", .model = kLlama, .compute_bytes = 2, .tuning = lora + "}"},
      {.name = "lora_dropout_tp4_sp_over_2_kv_heads", .model = kQwen3, .tensor = 4, .sequence_parallel = true,
       .tuning = lora + R"(, "dropout": 0.1})"},
      {.name = "lora_dp3_zero3_full_recompute_tied", .model = kGpt2, .data = 3, .zero = "zero3", .recompute = "full",
       .tuning = lora + "}"},
      {.name = "lora_upper_layers_pp2_dp2_shard_grad_op", .model = kQwen2, .pipeline = 2, .data = 2, .zero = "shard_grad_op",
       .tuning = lora + R"(, "layers": [3]})"},
      {.name = "lora_query_value_tp2_sp_pp2_dp2_zero3_interleaved_selective", .model = kLlama, .tensor = 2, .pipeline = 2,
       .data = 2, .chunks = 2, .sequence_parallel = true, .zero = "zero3", .schedule = "interleaved", .recompute = "selective",
       .sync_every = 3, .tuning = lora + R"(, "target_modules": ["q_proj", "v_proj"]})"},
      {.name = "lora_lowest_layer_pp4_gpipe_uneven", .model = kQwen3FiveLayers, .pipeline = 4, .schedule = "gpipe",
       .layers = {1, 2, 1, 1}, .tuning = lora + R"(, "layers": [0]})"},
      {.name = "some_tp2_pp2_dp2_zero2_bf16", .model = kLlama, .tensor = 2, .pipeline = 2, .data = 2, .zero = "zero2",
       .compute_bytes = 2, .tuning = R"("train": {"only": ".*(up_proj|norm).*"})"},
  };
}

std::string config_of(const ContractCase& c) {
  std::string layers = "null";
  if (!c.layers.empty()) {
    layers = "[";
    for (const int n : c.layers) layers += fmt::format("{}{}", layers.size() > 1 ? ", " : "", n);
    layers += "]";
  } else if (c.pipeline * c.chunks > 1) {
    layers = fmt::format("[{}", c.model.layers / (c.pipeline * c.chunks));
    for (int s = 1; s < c.pipeline * c.chunks; ++s) layers += fmt::format(", {}", c.model.layers / (c.pipeline * c.chunks));
    layers += "]";
  }
  const std::string every = fmt::format(R"({{"every": {}}})", c.sync_every);
  const std::string sync = c.sync_every < 0 ? "null" : c.sync_every == 0 ? R"("step")" : every;
  return fmt::format(
      R"({{"model": {},
           "parallel": {{"data": {}, "pipeline": {}, "tensor": {}, "virtual_stages": {}, "sequence_parallel": {}, "zero": "{}",
                         "schedule": "{}", "grad_sync": {}, "param_gather": {}, "layers": {}, "bucket_mb": {}, "overlap": {}}},
           "batch": {{"global": {}, "micro": {}, "sequence": {}}}, "precision": {{"compute": "{}"}},
           "recompute": {{"policy": "{}", "head_chunk": {}}}, "optimizer": {{"lr": 1e-3}},
           "lr_schedule": {{"type": "constant", "warmup_steps": 0}}{}}})",
      model_json(c.model), c.data, c.pipeline, c.tensor, c.chunks, c.sequence_parallel, c.zero, c.schedule, sync,
      c.gather.empty() ? "null" : fmt::format("\"{}\"", c.gather), layers, c.bucket_mb, c.overlap,
      c.micro_batches * c.micro * c.data, c.micro, c.sequence, c.compute_bytes == 2 ? "bf16" : "fp32", c.recompute, c.head_chunk,
      c.tuning.empty() ? "" : ", " + c.tuning);
}

void PrintTo(const ContractCase& c, std::ostream* out) { *out << c.name; }

}  // namespace trident::contracts

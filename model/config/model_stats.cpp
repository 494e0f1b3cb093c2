#include "model/config/model_stats.h"

#include <string>

#include "core/name_pattern.h"
#include "model/config/hf_tensors.h"

namespace trident {

namespace {

std::int64_t norm_parameters(const ModelConfig& config) {
  switch (config.norm) {
    case NormKind::kLayerNorm: return 2 * config.hidden;
    case NormKind::kRmsNorm:
    case NormKind::kRmsNormRoundedOnce: return config.hidden;
    case NormKind::kPlainLayerNorm: return 0;
  }
  return 0;
}

std::int64_t bias_parameters(const ModelConfig& config) {
  std::int64_t n = 0;
  if (config.qkv_bias) n += config.query_width() + 2 * config.kv_width();
  if (config.output_bias) n += config.hidden;
  if (config.mlp_bias) n += (config.activation == Activation::kSwiGlu ? 2 : 1) * config.ffn + config.hidden;
  return n;
}

std::int64_t qk_norm_parameters(const ModelConfig& config) {
  switch (config.qk_norm) {
    case QkNorm::kNone: return 0;
    case QkNorm::kPerHead: return 2 * config.head_dim;
    case QkNorm::kFullWidth: return config.query_width() + config.kv_width();
  }
  return 0;
}

}  // namespace

std::int64_t embedding_parameters(const ModelConfig& config) {
  const std::int64_t positions = config.position == PositionKind::kLearned ? config.max_positions : 0;
  return (config.vocab_size + positions) * config.hidden;
}

std::int64_t block_matmul_parameters(const ModelConfig& config) {
  const std::int64_t attention = config.hidden * (2 * config.query_width() + 2 * config.kv_width());
  return attention + (config.activation == Activation::kSwiGlu ? 3 : 2) * config.hidden * config.ffn;
}

std::int64_t block_parameters(const ModelConfig& config) {
  return block_matmul_parameters(config) + bias_parameters(config) + 2 * norm_parameters(config) +
         qk_norm_parameters(config);
}

std::int64_t final_norm_parameters(const ModelConfig& config) { return norm_parameters(config); }

std::int64_t head_parameters(const ModelConfig& config) { return config.tie_embeddings ? 0 : config.vocab_size * config.hidden; }

std::int64_t num_parameters(const ModelConfig& config) {
  return embedding_parameters(config) + config.layers * block_parameters(config) + final_norm_parameters(config) +
         head_parameters(config);
}

std::int64_t matmul_parameters(const ModelConfig& config) {
  return config.layers * block_matmul_parameters(config) + config.vocab_size * config.hidden;
}

std::int64_t adapter_parameters(const ModelConfig& config, std::optional<std::int64_t> layer) {
  std::int64_t n = 0;
  if (config.tuning == nullptr || config.tuning->adapters.modules.empty()) return n;
  const std::string number = layer ? '.' + std::to_string(*layer) + '.' : ".";
  for (const HfTensor& tensor : hf_tensors(config)) {
    const AdaptedModule* const module = config.tuning->adapters.find(module_name(tensor.name));
    if (module != nullptr && tensor.shape.size() == 2 && tensor.name.find(number) != std::string::npos)
      n += module->rank * (tensor.shape[0] + tensor.shape[1]) +
           (config.tuning->adapters.dora ? tensor.shape[tensor.transposed ? 1 : 0] : 0);
  }
  return n;
}

PartFlops part_flops_per_token(const ModelConfig& config, std::int64_t sequence) {
  PartFlops flops;
  flops.embedding = 3.0 * static_cast<double>(config.hidden);
  flops.block = 6.0 * static_cast<double>(block_matmul_parameters(config)) +
                12.0 * static_cast<double>(sequence) * static_cast<double>(config.query_width()) +
                6.0 * static_cast<double>(adapter_parameters(config)) / static_cast<double>(config.layers);
  flops.head = 6.0 * static_cast<double>(config.vocab_size) * static_cast<double>(config.hidden);
  return flops;
}

double seen_share(const ModelConfig& config, std::int64_t layer, std::int64_t sequence) {
  if (!config.slides(layer) || config.sliding_window >= sequence) return 1;
  const auto s = static_cast<double>(sequence), w = static_cast<double>(config.sliding_window);
  return w * (2 * s - w + 1) / (s * (s + 1));
}

double block_flops_per_token(const ModelConfig& config, std::int64_t layer, std::int64_t sequence) {
  const double hidden_attention = 12.0 * static_cast<double>(sequence) * static_cast<double>(config.query_width()) *
                                  (1 - seen_share(config, layer, sequence));
  const double adapters = 6.0 * static_cast<double>(adapter_parameters(config, layer)) -
                          6.0 * static_cast<double>(adapter_parameters(config)) / static_cast<double>(config.layers);
  return part_flops_per_token(config, sequence).block - hidden_attention + adapters;
}

double least_flops_per_token(const ModelConfig& config, std::int64_t sequence) {
  double seen = 0;  // keys, on average, in all layers
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    seen += seen_share(config, layer, sequence) * static_cast<double>(sequence + 1) / 2;
  return 6.0 * static_cast<double>(matmul_parameters(config) + adapter_parameters(config)) +
         14.0 * static_cast<double>(config.query_width()) * seen;
}

double model_flops_per_token(const ModelConfig& config, std::int64_t sequence) {
  const PartFlops flops = part_flops_per_token(config, sequence);
  return static_cast<double>(config.layers) * flops.block + flops.head;
}

}  // namespace trident

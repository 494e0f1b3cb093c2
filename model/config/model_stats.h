// Counting: parameters and floating-point operations of a model, exactly, from its configuration.
//
// Letters: V vocabulary, H hidden, L layers, a heads, d head width, s sequence length.
#pragma once

#include <cstdint>
#include <optional>

#include "model/config/model_config.h"

namespace trident {

// Parameters of one part of the model. Padding is not counted.
std::int64_t embedding_parameters(const ModelConfig& config);  // token table, and positions where they are learned
std::int64_t block_parameters(const ModelConfig& config);      // one transformer block: matrices, biases, norms
std::int64_t final_norm_parameters(const ModelConfig& config);
std::int64_t head_parameters(const ModelConfig& config);  // the output matrix; 0 when it is the token table (tied)
// All of them; a tied matrix counts once. What "a 124M model" means, to the last parameter.
std::int64_t num_parameters(const ModelConfig& config);

// Parameters that are factors of a matrix product: the matrices of one block.
std::int64_t block_matmul_parameters(const ModelConfig& config);
// Counts them in all blocks, and the output layer's V H, tied or not (the embedding is a lookup).
std::int64_t matmul_parameters(const ModelConfig& config);

// Counts A, B and m of the adapters that the model's tuning puts beside its linear layers, in one layer or in all.
std::int64_t adapter_parameters(const ModelConfig& config, std::optional<std::int64_t> layer = std::nullopt);

// Model FLOPs of one token's forward and backward pass, a multiply-add counted as two: 6 * matmul_parameters + 12 L s a d,
// attention counted in full (not the causal half, no window), recomputation not counted (Narayanan et al. 2021, Korthikanti et al.
// 2022); here and below with 6 * adapter_parameters.
double model_flops_per_token(const ModelConfig& config, std::int64_t sequence);

// FLOPs of a token's forward and backward pass that nothing avoids: 6 * matmul_parameters, and 4 + 10 times d for each head and
// pair of a query and a key that it sees (a forward of two products, a backward of five, as probabilities are not kept).
// Recomputation is not counted.
double least_flops_per_token(const ModelConfig& config, std::int64_t sequence);

// model_flops_per_token() split by part, for balancing pipeline stages: blocks * L + head = model_flops_per_token. A lookup has no
// products; `embedding` counts its reads and writes as 3 H (Yeung et al. 2024, arXiv 2411.05288) and is not a model FLOP.
struct PartFlops {
  double embedding = 0;
  double block = 0;
  double head = 0;
};
PartFlops part_flops_per_token(const ModelConfig& config, std::int64_t sequence);
// The part of a token and those up to it that a layer's window lets it see, on average: 1 where it hides nothing.
double seen_share(const ModelConfig& config, std::int64_t layer, std::int64_t sequence);
// PartFlops::block of one layer, its attention times seen_share().
double block_flops_per_token(const ModelConfig& config, std::int64_t layer, std::int64_t sequence);

}  // namespace trident

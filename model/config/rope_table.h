// Cosines and sines of rotary position embedding, with the context-extending scalings, as transformers computes them
// (modeling_rope_utils.py): frequencies and angles are fp32 numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config/model_config.h"

namespace trident {

// Inverse frequencies f32 [dim/2] of the rotated `dim` (even) elements of a head, radians per position: theta^(-2i/dim), then
// linear: divided by factor; dynamic: with theta (factor positions/context - factor + 1)^(dim/(dim-2)) where `positions` exceed
// the trained context, as transformers does it; llama3 (Grattafiori et al. 2024): long wavelengths divided, short kept, a ramp
// between; yarn (Peng et al. 2023, arXiv 2309.00071, section 3.2): a ramp over dimensions between divided and kept; longrope (Ding
// et al. 2024, arXiv 2402.13753): each divided by a factor of its own, from the long list where sequences of `positions` exceed
// the trained context.
std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, std::int64_t dim, std::int64_t positions);

// Whether two lengths up to `positions` can have angles of their own: dynamic beyond the trained context.
bool turns_by_length(const RopeConfig& rope, std::int64_t positions);

// The factor of cos and sin: 1; for yarn and longrope attention_factor if given; else for yarn
// m(mscale)/m(mscale_all_dim) if both are given, or m(1), with m(k) = 0.1 k ln(factor) + 1, and for longrope
// sqrt(1 + ln(factor) / ln(trained context)); both 1 when factor <= 1.
double rope_attention_factor(const RopeConfig& rope);

// cos, sin: f32 [positions, pairs], row p for position p, pairs = dim/2. Element j of a head turns with element j + pairs.
struct RopeTable {
  std::int64_t positions = 0;
  std::int64_t pairs = 0;
  std::vector<float> cos, sin;
};

// `config` is validated and has PositionKind::kRope; `positions` >= 0, the length of sequences: with longrope and dynamic a table
// for longer ones does not begin with that for shorter ones.
RopeTable make_rope_table(const ModelConfig& config, std::int64_t positions);
// Row p as in the table of a sequence of p + 1 tokens: of sequences that grow token by token, each turned when it came.
RopeTable make_growing_rope_table(const ModelConfig& config, std::int64_t positions);

}  // namespace trident

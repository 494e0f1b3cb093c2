// Update rules and numbers of operations, in plain types that kernels can include: callers fill them, and kernels read them.
#pragma once

#include <cstdint>

namespace trident {

// The update rules: X(rule, its name in configurations and in lists of operations, how many f32 states it keeps of a weight).
// optimizer.inl computes them for weights p with gradient g; what an equation does not name is not read.
// - AdamW (Loshchilov and Hutter 2019, algorithm 2 with bias correction): m, v moments; p -= lr*(mhat/(sqrt(vhat)+eps) + decay*p).
// - Lion (Chen et al. 2023, algorithm 2): p -= lr*(sign(beta1*m + (1-beta1)*g) + decay*p), then m = beta2*m + (1-beta2)*g;
//   sign(0) = 0.
#define TRIDENT_UPDATE_RULES(X) X(kAdamW, "adamw", 2) X(kLion, "lion", 1)
inline constexpr int kMostUpdateStates = 2;

#define TRIDENT_RULE(rule, name, states) rule,
#define TRIDENT_OF_TYPE(rule, name, states) UpdateRule::rule,
#define TRIDENT_NAME(rule, name, states) name,
#define TRIDENT_STATES(rule, name, states) states,
enum class UpdateRule : std::uint8_t { TRIDENT_UPDATE_RULES(TRIDENT_RULE) };
inline constexpr UpdateRule kUpdateRules[] = {TRIDENT_UPDATE_RULES(TRIDENT_OF_TYPE)};
constexpr const char* to_string(UpdateRule rule) {
  constexpr const char* kNames[] = {TRIDENT_UPDATE_RULES(TRIDENT_NAME)};
  return kNames[static_cast<int>(rule)];
}
constexpr int num_states(UpdateRule rule) {
  constexpr int kStates[] = {TRIDENT_UPDATE_RULES(TRIDENT_STATES)};
  return kStates[static_cast<int>(rule)];
}
#undef TRIDENT_RULE
#undef TRIDENT_OF_TYPE
#undef TRIDENT_NAME
#undef TRIDENT_STATES

struct UpdateNumbers {
  float lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  float grad_scale = 1;                               // multiplies the gradient first: clipping and 1 / loss scale
  float bias_correction1 = 1, bias_correction2 = 1;   // 1/(1 - beta^t) of each beta in update t
  std::uint32_t update[2] = {0, 0};  // t, low word first; read where weights are rounded at random

  constexpr void set_update(std::uint64_t number) {
    update[0] = static_cast<std::uint32_t>(number);
    update[1] = static_cast<std::uint32_t>(number >> 32);
  }
  constexpr std::uint64_t update_number() const { return update[0] | std::uint64_t{update[1]} << 32; }
};

// Stochastic rounding of bf16 parameters: up or down, in proportion to how near the two neighbours are (docs/numerics.md).
//
// Element i of a call is element e of the whole tensor, in row-major order: with j = first_column + i, e = first_index +
// (j / columns) * stride + j % columns. So a call may work on any part of a rank's rows, which may be pieces of the tensor's rows.
// Its 16 random bits r are half e % 8 of the Philox block of counter {e / 8, update} (two 64-bit numbers, low words first), where
// half 2w is the low half of word w and half 2w + 1 the high one. The result's bits are (bits of the f32 + r) >> 16, but for
// magnitudes beyond the largest bf16, infinities and NaN: these go to the nearest.
struct RoundedElements {
  std::uint32_t key[2] = {0, 0};  // of the tensor: the same for every rank that holds some of it
  std::int64_t first_index = 0;   // in the tensor: column 0 of the row that element 0 of the call is in
  std::int64_t first_column = 0;  // of element 0 of the call, within its row; < columns
  std::int64_t columns = 1;       // of a row here; < 2^31
  std::int64_t stride = 1;        // from a row to the next in the tensor; >= columns
};

// Where an element of an activation [S,B,H] is in the layout-free numbering that dropout draws from: element (s, b, h) of the
// sample with global index i has index ((i * sequence) + position_offset + s) * H + h under `key` (made from seed, step, layer and
// place).
struct DropoutSpec {
  float probability = 0.0f;  // of being dropped; survivors are scaled by 1/(1-p)
  std::uint32_t key[2] = {0, 0};
  std::int64_t sequence = 0;         // global sequence length
  std::int64_t position_offset = 0;  // global position of row s = 0 (sequence parallelism)
  // Where x has some of the columns alone: how many there are, and the number of its first.
  std::int64_t all_columns = 0, first_column = 0;  // 0: x has all
};

}  // namespace trident

// An update rule (device/op_numbers.h) to training: its configuration, its states, and the numbers of an update.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/op_numbers.h"

namespace trident {

struct OptimizerConfig {
  UpdateRule type = UpdateRule::kAdamW;
  double lr = 0;
  std::array<double, 2> betas{};
  double eps = 0, weight_decay = 0;
  double grad_clip = 0;  // 0: no clipping
};

std::optional<UpdateRule> parse_update_rule(std::string_view text);  // "adamw", "lion"

// A tensor that a rule keeps of every element beside the master weight, f32.
struct UpdateState {
  std::string_view key;   // in checkpoints: "exp_avg"
  std::string_view name;  // in reports of memory: "first moments"
};
std::span<const UpdateState> update_states(UpdateRule rule);
// Their keys, in order.
std::vector<std::string> state_keys(UpdateRule rule);

// The numbers of update `update` (from 1) of elements that decay; `gradient_scale` is grad_scale.
UpdateNumbers update_numbers(const OptimizerConfig& config, std::int64_t update, double lr, double gradient_scale);

}  // namespace trident

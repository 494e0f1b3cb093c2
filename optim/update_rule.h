// What training knows of an update rule: the state that it keeps, how its tensors may be cut, and how it updates elements.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/ops.h"
#include "optim/update_rule_kind.h"

namespace trident {

struct UpdateRuleConfig {
  UpdateRuleKind kind = UpdateRuleKind::kAdamW;
  std::array<double, 2> betas{0.9, 0.95};
  double eps = 1e-8;  // AdamW's
  double weight_decay = 0.1;
};

// A tensor that a rule keeps of every element beside the master weight, f32.
struct UpdateState {
  std::string key;   // in checkpoints: "exp_avg"
  std::string name;  // in reports of memory: "first moments"
};

// What one call must see of a parameter: any elements of it, or the whole matrix.
enum class UpdateCut : std::uint8_t { kElement, kMatrix };

// Elements of a shard, all f32 [n] but for the parameter in use, T [n], which may be the master weight itself.
struct UpdateElements {
  TensorView param, master;
  std::span<const TensorView> states;  // in the order of UpdateRule::states()
  ConstTensorView grad;
};

struct UpdateStep {
  std::int64_t update = 0;    // its number, from 1
  double lr = 0;
  double gradient_scale = 1;  // multiplies the gradient first: clipping; 1 / loss scale
  bool decays = false;        // whether weight decay applies to these elements
  std::optional<StochasticRounding> rounding{};  // of param, but for the update; nothing: to nearest
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  virtual std::span<const UpdateState> states() const = 0;
  virtual UpdateCut cut() const = 0;
  // Master weights and states in place; param = master, rounded. May be repeated (Device::repeat).
  virtual void update(Ops& ops, Stream& stream, const UpdateElements& elements, const UpdateStep& step) const = 0;
};

// A rule that sees elements one by one; `states`: outlive it.
class ElementRule : public UpdateRule {
 public:
  ElementRule(const UpdateRuleConfig& config, std::span<const UpdateState> states) : config_(config), states_(states) {}
  std::span<const UpdateState> states() const final { return states_; }
  UpdateCut cut() const final { return UpdateCut::kElement; }

 protected:
  UpdateRuleConfig config_;

 private:
  std::span<const UpdateState> states_;
};

inline constexpr std::size_t kMostUpdateStates = 4;  // that a rule may have

std::unique_ptr<const UpdateRule> make_update_rule(const UpdateRuleConfig& config);

// What formulas of updates of elements have in common: everything but bias corrections.
UpdateParams update_params(const UpdateRuleConfig& config, const UpdateStep& step);

// The keys of its states, in order.
std::vector<std::string> state_keys(const UpdateRule& rule);

}  // namespace trident

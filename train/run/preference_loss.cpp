#include "train/run/preference_loss.h"

#include <algorithm>
#include <cmath>

namespace trident {
namespace {

constexpr double kRewardUnit = 0x1p-32;

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
double log_sigmoid(double x) { return x >= 0 ? -std::log1p(std::exp(-x)) : x - std::log1p(std::exp(x)); }

struct Value {
  double loss, slope;  // by h
};

Value value_at(const LossConfig& config, double h) {
  const double beta = config.beta, smoothing = config.label_smoothing;
  switch (config.variant) {
    case DpoVariant::kIpo: {
      const double off = h - 1 / (2 * beta);
      return {off * off, 2 * off};
    }
    case DpoVariant::kHinge: return {std::max(0.0, 1 - beta * h), beta * h < 1 ? -beta : 0.0};
    case DpoVariant::kSigmoid: break;
  }
  return {-(1 - smoothing) * log_sigmoid(beta * h) - smoothing * log_sigmoid(-beta * h),
          -beta * ((1 - smoothing) * sigmoid(-beta * h) - smoothing * sigmoid(beta * h))};
}

}  // namespace

PairLoss pair_loss(const LossConfig& config, const Answer& chosen, const Answer& rejected) {
  const auto ratio = [](const Answer& a) { return double{-static_cast<float>(a.nats)} - double{a.reference}; };
  const bool by_mean = config.length_normalized || config.variant == DpoVariant::kIpo;
  const double share_chosen = by_mean ? 1 / static_cast<double>(chosen.targets) : 1,
               share_rejected = by_mean ? 1 / static_cast<double>(rejected.targets) : 1;
  const Value value = value_at(config, share_chosen * ratio(chosen) - share_rejected * ratio(rejected));
  const double of_nll = config.nll_weight / static_cast<double>(chosen.targets);
  return {.loss = value.loss + of_nll * chosen.nats,
          .d_chosen = of_nll - value.slope * share_chosen,
          .d_rejected = value.slope * share_rejected,
          .reward_chosen = config.beta * ratio(chosen),
          .reward_rejected = config.beta * ratio(rejected)};
}

void RewardSums::add(const PairLoss& pair) {
  const auto in_units = [](double reward) { return std::llround(std::clamp(reward, -1e6, 1e6) / kRewardUnit); };
  ++pairs;
  wins += pair.reward_chosen > pair.reward_rejected ? 1 : 0;
  chosen += in_units(pair.reward_chosen);
  rejected += in_units(pair.reward_rejected);
}

PairRewards mean_of(const RewardSums& sums) {
  const auto pairs = static_cast<double>(std::max<std::int64_t>(1, sums.pairs));
  return {kRewardUnit * static_cast<double>(sums.chosen) / pairs, kRewardUnit * static_cast<double>(sums.rejected) / pairs,
          static_cast<double>(sums.wins) / pairs};
}

}  // namespace trident

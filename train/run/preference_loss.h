// Direct preference optimisation (Rafailov et al. 2023, arXiv 2305.18290): the loss of a pair of answers, from what the model and a
// frozen reference say of their tokens.
#pragma once

#include <cstdint>

#include "train/config/train_config.h"
#include "train/log/metrics.h"

namespace trident {

// The counted targets of one answer.
struct Answer {
  double nats = 0;           // sum of their losses by the model
  std::int64_t targets = 0;  // at least 1
  float reference = 0;       // log-probability of them all by the reference
};

struct PairLoss {
  double loss = 0;
  double d_chosen = 0, d_rejected = 0;            // the loss's derivative by the nats of each target of an answer
  double reward_chosen = 0, reward_rejected = 0;  // beta * (log-probability by the model - that by the reference)
};

// With h = (chosen - rejected)'s log-probability ratios of model and reference, in f64; the model's log-probability is rounded to
// f32 first, as the reference's was, so that equal weights have h = 0:
// sigmoid: -(1 - label_smoothing) log sigmoid(beta h) - label_smoothing log sigmoid(-beta h). hinge: max(0, 1 - beta h).
// ipo (Azar et al. 2023, arXiv 2310.12036): (h - 1 / (2 beta))^2, where log-probabilities are means of their targets, which
// length_normalized makes them in the others. nll_weight adds so much of the mean nats of the chosen answer's targets.
PairLoss pair_loss(const LossConfig& config, const Answer& chosen, const Answer& rejected);

// The sums add up some pairs; rewards are in 2^-32, so that the order of adding does not matter.
struct RewardSums {
  std::int64_t pairs = 0, wins = 0, chosen = 0, rejected = 0;
  void add(const PairLoss& pair);
};

PairRewards mean_of(const RewardSums& sums);

}  // namespace trident

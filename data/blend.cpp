#include "data/blend.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/check.h"

namespace trident {

Blend::Blend(std::vector<double> weights, BlendStart start)
    : weights_(std::move(weights)), start_(std::move(start)), counts_(weights_.size(), 0) {
  if (start_.taken.empty()) start_.taken.assign(weights_.size(), 0);
  TRIDENT_CHECK(start_.taken.size() == weights_.size(), "{} weights, {} counts", weights_.size(), start_.taken.size());
  TRIDENT_CHECK(!weights_.empty(), "a blend of nothing");
  const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  for (double& w : weights_) {
    TRIDENT_CHECK(std::isfinite(w) && w > 0 && std::isfinite(sum), "weight {} in a blend", w);
    w /= sum;
  }
}

BlendedSample Blend::at(std::int64_t position) {
  TRIDENT_CHECK(position >= start_.position, "position {}, the rule begins at {}", position, start_.position);
  position -= start_.position;
  if (weights_.size() == 1) return {0, start_.taken[0] + position};
  if (position < position_) {
    std::fill(counts_.begin(), counts_.end(), 0);
    position_ = -1;
  }
  while (position_ < position) last_ = next();
  return {last_.dataset, start_.taken[static_cast<std::size_t>(last_.dataset)] + last_.index};
}

std::vector<std::int64_t> Blend::taken_before(std::int64_t position) {
  std::vector<std::int64_t> taken = start_.taken;
  if (position <= start_.position) return taken;
  if (weights_.size() == 1) return {taken[0] + position - start_.position};
  at(position - 1);
  for (std::size_t d = 0; d < taken.size(); ++d) taken[d] += counts_[d];
  return taken;
}

BlendedSample Blend::next() {
  const auto scale = static_cast<double>(std::max<std::int64_t>(++position_, 1));
  std::size_t best = 0;
  double best_error = weights_[0] * scale - static_cast<double>(counts_[0]);
  for (std::size_t d = 1; d < weights_.size(); ++d) {
    const double error = weights_[d] * scale - static_cast<double>(counts_[d]);
    if (error > best_error) {
      best = d;
      best_error = error;
    }
  }
  return {static_cast<std::int64_t>(best), counts_[best]++};
}

}  // namespace trident

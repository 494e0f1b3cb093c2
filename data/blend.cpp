#include "data/blend.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>

#include "core/check.h"

namespace trident {

Blend::Blend(std::vector<double> weights) : weights_(std::move(weights)), counts_(weights_.size(), 0) {
  TRIDENT_CHECK(!weights_.empty(), "a blend of nothing");
  const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  for (double& w : weights_) {
    TRIDENT_CHECK(std::isfinite(w) && w > 0 && std::isfinite(sum), "weight {} in a blend", w);
    w /= sum;
  }
}

BlendedSample Blend::at(std::int64_t position) {
  TRIDENT_CHECK(position >= 0, "position {}", position);
  if (weights_.size() == 1) return {0, position};
  if (position < position_) {
    std::fill(counts_.begin(), counts_.end(), 0);
    position_ = -1;
  }
  while (position_ < position) last_ = next();
  return last_;
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

// The operations of CpuOps that are row kernels from end to end.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/exact_sum.h"
#include "device/cpu/cpu_ops.h"
#include "device/cpu/team.h"

namespace trident {

void CpuOps::Kernels::cross_entropy_rescale(float* sum_exp, float* target_logit, const float* shard_max, const float* row_max,
                                            const std::int32_t* targets, std::int64_t rows, const VocabularyShard& shard) {
  const std::int64_t end = std::min(shard.first_column + shard.columns, shard.vocabulary);
  for (std::int64_t r = 0; r < rows; ++r) {
    // In f64: the difference's rounding would be an error of the whole sum.
    const double below = double{shard_max[r]} - double{row_max[r]};
    sum_exp[r] = static_cast<float>(double{sum_exp[r]} * std::exp(below));
    if (targets[r] >= shard.first_column && targets[r] < end)
      target_logit[r] = static_cast<float>(double{target_logit[r]} + below);
    else if (targets[r] >= end && below == 0)
      target_logit[r] -= std::numeric_limits<float>::min();  // relative_logit() says why
  }
}

void CpuOps::Kernels::cross_entropy_loss(double* loss, float* row_losses, const float* sum_exp, const float* target_logit,
                                         const std::int32_t* targets, std::int64_t rows, const float* weights) {
  double sum = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const double term = targets[r] >= 0 ? std::log(double{sum_exp[r]}) - double{target_logit[r]} : 0.0;
    if (targets[r] >= 0) sum += weights == nullptr ? term : double{weights[r]} * term;
    if (row_losses != nullptr) row_losses[r] = static_cast<float>(term);
  }
  *loss = sum;
}

void CpuOps::Kernels::add_exact(std::int64_t* limbs, const double* x, std::int64_t count) {
  constexpr std::int64_t kMostParts = 16, kWorthPart = 4096;
  std::array<ExactSum, kMostParts> sums;
  const std::int64_t parts = std::clamp<std::int64_t>(count / kWorthPart, 1, kMostParts);
  on_team(parts, [&](std::int64_t i, std::int64_t) {
    const std::int64_t first = i * count / parts;
    sums[static_cast<std::size_t>(i)].add({x + first, static_cast<std::size_t>((i + 1) * count / parts - first)});
  });
  ExactSum& sum = sums[0];
  for (std::int64_t i = 1; i < parts; ++i) sum.merge(sums[static_cast<std::size_t>(i)]);
  sum.normalise();
  for (std::size_t i = 0; i < ExactSum::kLimbs; ++i) limbs[i] += sum.limbs()[i];
}

void CpuOps::run(Stream& stream, OperationRef operation) { check_and_execute(*this, stream, operation); }

}  // namespace trident

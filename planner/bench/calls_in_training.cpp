#include "planner/bench/calls_in_training.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "core/check.h"

namespace trident {
namespace {

using Points = std::vector<std::pair<double, double>>;

// As Work counts them: gradients of weights are added up in f32.
double product_bytes(const ProductTimes& t, double m, double n, double k) {
  const bool gradient = t.transpose_a == Transpose::kYes;
  const double in = size_of(t.in), out = gradient ? (t.accumulate == Accumulate::kYes ? 2 : 1) * size_of(DType::kF32) : in;
  return in * (m * k + k * n) + out * m * n;
}

double attention_size(double length, double head_dim) { return length * head_dim; }

// By size.
LogTable ratios(Points points) {
  std::ranges::sort(points);
  auto [sizes, values] = merged(points);
  return {{std::move(sizes)}, std::move(values), {0}};
}

void scale(LogTable& table, std::vector<double> beyond, const LogTable& ratio, const auto& size_at) {
  std::vector<double> values = table.values();
  const std::vector<std::vector<double>>& axes = table.axes();
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::array<double, 3> sizes{};
    std::size_t rest = i;
    for (std::size_t a = axes.size(); a-- > 0; rest /= axes[a].size()) sizes[a] = axes[a][rest % axes[a].size()];
    values[i] *= ratio.at(size_at(sizes));
  }
  fall_to_larger(axes, values);
  table = LogTable(axes, std::move(values), std::move(beyond));
}

}  // namespace

double typical_seconds(std::vector<double> seconds, int threads) {
  TRIDENT_CHECK(!seconds.empty(), "no call was measured");
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::ranges::nth_element(seconds, middle);
  if (threads > 1) return *middle;
  const double most = 3 * *middle;
  double sum = 0;
  for (const double one : seconds) sum += std::min(one, most);
  return sum / static_cast<double>(seconds.size());
}

void CallMeter::add(const CallTimes& calls) {
  std::vector<CallTimes>& alike = calls_[{calls.operation, calls.bytes}];
  const auto same = std::ranges::find(alike, calls.shape, &CallTimes::shape);
  if (same == alike.end())
    alike.push_back(calls);
  else
    same->seconds.insert(same->seconds.end(), calls.seconds.begin(), calls.seconds.end());
}

std::vector<CallTimes> CallMeter::calls() const {
  std::vector<CallTimes> all;
  for (const auto& [key, alike] : calls_) all.insert(all.end(), alike.begin(), alike.end());
  return all;
}

std::vector<CallTimes> calls_beside(std::span<const CallTimes> alone, std::span<const CallTimes> of_divided, int threads) {
  std::vector<CallTimes> beside;
  for (const CallTimes& one : of_divided)
    if (threads == 1 || std::ranges::find(alone, one.operation, &CallTimes::operation) == alone.end()) beside.push_back(one);
  return beside;
}

std::pair<std::vector<double>, std::vector<double>> merged(std::span<const std::pair<double, double>> points) {
  std::vector<double> sizes, values;
  for (std::size_t i = 0; i < points.size();) {
    double size = 0, value = 0;
    std::size_t end = i;
    for (; end < points.size() && points[end].first < 1.35 * points[i].first; ++end) {
      size += std::log(points[end].first);
      value += std::log(points[end].second);
    }
    const auto count = static_cast<double>(end - i);
    sizes.push_back(std::exp(size / count));
    values.push_back(std::exp(value / count));
    i = end;
  }
  return {std::move(sizes), std::move(values)};
}

void fit_to_training(std::span<const CallTimes> calls, double clock, int threads, DType compute, CpuRates& rates) {
  const auto took = [&](const CallTimes& one) { return std::max(typical_seconds(one.seconds, threads) - clock, 1e-8); };
  for (ProductTimes& t : rates.products) {
    if (t.threads != threads || t.in != compute) continue;
    Points points;
    for (const CallTimes& one : calls) {
      const auto* const m = std::get_if<MatmulShape>(&one.shape);
      if (m == nullptr || m->transpose_a != t.transpose_a || m->transpose_b != t.transpose_b || one.bytes <= 0) continue;
      if (t.transpose_a == Transpose::kYes && m->accumulate != t.accumulate) continue;  // others have one table
      const std::array sizes{static_cast<double>(m->m), static_cast<double>(m->n), static_cast<double>(m->k)};
      points.emplace_back(one.bytes, took(one) / t.seconds.at(sizes));
    }
    if (points.empty()) continue;
    scale(t.seconds, {1, 1, 1}, ratios(points), [&](const auto& s) { return product_bytes(t, s[0], s[1], s[2]); });
  }
  for (OperationTimes& t : rates.attention) {
    if (t.threads != threads || t.compute != compute) continue;
    Points points;
    for (const CallTimes& one : calls) {
      const auto* const a = std::get_if<AttentionShape>(&one.shape);
      if (a == nullptr || one.operation != t.operation || one.bytes <= 0) continue;
      const std::array sizes{std::sqrt(static_cast<double>(a->query_length) * static_cast<double>(a->key_length)),
                             priced_head_dim(a->head_dim)};
      const double heads = static_cast<double>(a->batch) * static_cast<double>(a->query_heads);
      points.emplace_back(attention_size(sizes[0], sizes[1]), took(one) / (heads * t.seconds.at(sizes)));
    }
    if (points.empty()) continue;
    scale(t.seconds, {2, 1}, ratios(points), [&](const auto& s) { return attention_size(s[0], s[1]); });
  }
}

}  // namespace trident

#include "model/config/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"

namespace trident {

namespace {

// theta^(2i/dim). The exponent is rounded to fp32 first, as in the original; the power itself is computed in double and rounded
// once, so that every machine gets the same table (fp32 libraries differ in the last bit).
float wavelength_base(double theta, std::int64_t i, std::int64_t dim) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
  return static_cast<float>(std::pow(static_cast<double>(static_cast<float>(theta)), static_cast<double>(exponent)));
}

void scale_llama3(const RopeConfig& rope, std::vector<float>& frequencies) {
  const auto factor = static_cast<float>(rope.factor);
  const auto context = static_cast<float>(rope.original_max_positions);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto range = static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  const auto longest = static_cast<float>(static_cast<double>(rope.original_max_positions) / rope.low_freq_factor);
  const auto shortest = static_cast<float>(static_cast<double>(rope.original_max_positions) / rope.high_freq_factor);
  for (float& f : frequencies) {
    const float wavelength = static_cast<float>(2.0 * std::numbers::pi) / f;
    if (wavelength > longest) {
      f /= factor;
    } else if (!(wavelength < shortest)) {
      const float smooth = (context / wavelength - low) / range;
      f = (1.0f - smooth) * f / factor + smooth * f;
    }
  }
}

// The dimension whose wave turns `rotations` times within the original context.
double dimension_of_rotations(const RopeConfig& rope, double rotations, std::int64_t dim) {
  return static_cast<double>(dim) *
         std::log(static_cast<double>(rope.original_max_positions) / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(rope.theta));
}

void scale_yarn(const RopeConfig& rope, std::int64_t dim, std::vector<float>& frequencies) {
  double low = dimension_of_rotations(rope, rope.beta_fast, dim);
  double high = dimension_of_rotations(rope, rope.beta_slow, dim);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float ramp = std::clamp((static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f, 1.0f);
    const float kept = 1.0f - ramp;
    const float base = wavelength_base(rope.theta, static_cast<std::int64_t>(i), dim);
    frequencies[i] = 1.0f / (static_cast<float>(rope.factor) * base) * (1.0f - kept) + frequencies[i] * kept;
  }
}

void scale_longrope(const RopeConfig& rope, std::int64_t dim, std::int64_t positions, std::vector<float>& frequencies) {
  const std::vector<double>& factors = positions > rope.original_max_positions ? rope.long_factors : rope.short_factors;
  for (std::size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = 1.0f / (static_cast<float>(factors.at(i)) * wavelength_base(rope.theta, static_cast<std::int64_t>(i), dim));
}

// In fp32, as the original computes it from a tensor.
double theta_for(const RopeConfig& rope, std::int64_t dim, std::int64_t positions) {
  if (!turns_by_length(rope, positions)) return rope.theta;
  const auto factor = static_cast<float>(rope.factor), context = static_cast<float>(rope.original_max_positions);
  const float stretched = factor * static_cast<float>(positions) / context - static_cast<float>(rope.factor - 1.0);
  const double exponent = static_cast<double>(dim) / static_cast<double>(dim - 2);
  const double growth = std::pow(static_cast<double>(stretched), exponent);
  return static_cast<double>(static_cast<float>(rope.theta) * static_cast<float>(growth));
}

void append_row(RopeTable& table, std::int64_t position, const std::vector<float>& frequencies, float factor) {
  for (const float f : frequencies) {
    const auto angle = static_cast<double>(static_cast<float>(position) * f);  // rounded to fp32, as the original's angles are
    table.cos.push_back(static_cast<float>(std::cos(angle)) * factor);
    table.sin.push_back(static_cast<float>(std::sin(angle)) * factor);
  }
}

}  // namespace

bool turns_by_length(const RopeConfig& rope, std::int64_t positions) {
  return rope.scaling == RopeScaling::kDynamic && positions > rope.original_max_positions;
}

std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, std::int64_t dim, std::int64_t positions) {
  TRIDENT_CHECK(dim >= 2 && dim % 2 == 0, "{} rotated elements", dim);
  const double theta = theta_for(rope, dim, positions);
  std::vector<float> frequencies(static_cast<std::size_t>(dim / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = 1.0f / wavelength_base(theta, static_cast<std::int64_t>(i), dim);
  switch (rope.scaling) {
    case RopeScaling::kNone:
    case RopeScaling::kDynamic: break;
    case RopeScaling::kLinear:
      for (float& f : frequencies) f /= static_cast<float>(rope.factor);
      break;
    case RopeScaling::kLlama3: scale_llama3(rope, frequencies); break;
    case RopeScaling::kYarn: scale_yarn(rope, dim, frequencies); break;
    case RopeScaling::kLongRope: scale_longrope(rope, dim, positions, frequencies); break;
  }
  return frequencies;
}

double rope_attention_factor(const RopeConfig& rope) {
  if (rope.scaling != RopeScaling::kYarn && rope.scaling != RopeScaling::kLongRope) return 1.0;
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.scaling == RopeScaling::kLongRope)
    return rope.factor <= 1.0 ? 1.0
                              : std::sqrt(1.0 + std::log(rope.factor) / std::log(static_cast<double>(rope.original_max_positions)));
  const auto m = [&](double k) { return rope.factor <= 1.0 ? 1.0 : 0.1 * k * std::log(rope.factor) + 1.0; };
  // As in the original, 0 counts as not given.
  if (rope.mscale.value_or(0.0) != 0.0 && rope.mscale_all_dim.value_or(0.0) != 0.0)
    return m(*rope.mscale) / m(*rope.mscale_all_dim);
  return m(1.0);
}

RopeTable make_rope_table(const ModelConfig& config, std::int64_t positions) {
  TRIDENT_CHECK(config.position == PositionKind::kRope && positions >= 0, "{} positions", positions);
  const std::vector<float> frequencies = rope_inverse_frequencies(config.rope, config.rotary_dim(), positions);
  const auto factor = static_cast<float>(rope_attention_factor(config.rope));
  RopeTable table;
  table.positions = positions;
  table.pairs = static_cast<std::int64_t>(frequencies.size());
  table.cos.reserve(static_cast<std::size_t>(positions) * frequencies.size());
  table.sin.reserve(static_cast<std::size_t>(positions) * frequencies.size());
  for (std::int64_t p = 0; p < positions; ++p) append_row(table, p, frequencies, factor);
  return table;
}

RopeTable make_growing_rope_table(const ModelConfig& config, std::int64_t positions) {
  RopeTable table{positions, config.rotary_dim() / 2, {}, {}};
  const auto factor = static_cast<float>(rope_attention_factor(config.rope));
  for (std::int64_t p = 0; p < positions; ++p)
    append_row(table, p, rope_inverse_frequencies(config.rope, config.rotary_dim(), p + 1), factor);
  return table;
}

}  // namespace trident

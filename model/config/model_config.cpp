#include "model/config/model_config.h"

#include <cmath>

#include "core/check.h"

namespace trident {
namespace {

// Token ids, positions and row numbers are 32-bit in the kernels.
constexpr std::int64_t kMaxIndex = (std::int64_t{1} << 31) - 1;

}  // namespace

std::int64_t ModelConfig::rotary_dim() const {
  return static_cast<std::int64_t>(static_cast<double>(head_dim) * rope.partial_rotary_factor);
}

std::int64_t ModelConfig::longest_sequence() const {
  return position == PositionKind::kRope && rope.scaling == RopeScaling::kDynamic ? kMaxIndex : max_positions;
}

namespace {

// Widths and depth are bounded so that no count overflows.
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 20;

void require_size(std::int64_t value, std::string_view name, std::string_view where, std::int64_t largest = kMaxWidth) {
  if (value < 1 || value > largest)
    throw ConfigError(fmt::format("{}: {} = {}: must be between 1 and {}", where, name, value, largest));
}

void require_probability(double value, std::string_view name, std::string_view where) {
  if (!(value >= 0.0 && value < 1.0))
    throw ConfigError(fmt::format("{}: {} = {}: a dropout probability must be at least 0 and below 1", where, name, value));
}

void require_positive_number(double value, std::string_view name, std::string_view where) {
  if (!(value > 0.0 && std::isfinite(value)))
    throw ConfigError(fmt::format("{}: {} = {}: must be a number above 0", where, name, value));
}

void require_pair_factors(const std::vector<double>& factors, std::string_view name, std::int64_t pairs, std::string_view where) {
  if (std::ssize(factors) != pairs)
    throw ConfigError(
        fmt::format("{}: {} has {} numbers: must have one for each of the {} rotated pairs of a head; take the list of "
                    "the model's own file",
                    where, name, factors.size(), pairs));
  for (const double factor : factors) require_positive_number(factor, name, where);
}

void validate_rope(const ModelConfig& config, std::string_view where) {
  const RopeConfig& rope = config.rope;
  require_positive_number(rope.theta, "rope theta", where);
  if (rope.theta <= 1.0) throw ConfigError(fmt::format("{}: rope theta = {}: must be above 1", where, rope.theta));
  if (!(rope.partial_rotary_factor > 0.0 && rope.partial_rotary_factor <= 1.0))
    throw ConfigError(
        fmt::format("{}: partial_rotary_factor = {}: must be above 0 and at most 1", where, rope.partial_rotary_factor));
  if (config.rotary_dim() < 2 || config.rotary_dim() % 2 != 0)
    throw ConfigError(
        fmt::format("{}: head_dim = {}: the rotated part of a head ({} elements) must be an even number, at least 2, "
                    "because rotary embeddings rotate pairs; change head_dim or partial_rotary_factor",
                    where, config.head_dim, config.rotary_dim()));
  require_positive_number(rope.factor, "rope factor", where);
  if (rope.scaling != RopeScaling::kNone && rope.scaling != RopeScaling::kLinear)
    require_size(rope.original_max_positions, "original_max_position_embeddings", where, kMaxIndex);
  if (rope.attention_factor) require_positive_number(*rope.attention_factor, "attention_factor", where);
  if (rope.scaling == RopeScaling::kLongRope) {
    require_pair_factors(rope.short_factors, "short_factor", config.rotary_dim() / 2, where);
    require_pair_factors(rope.long_factors, "long_factor", config.rotary_dim() / 2, where);
    if (rope.original_max_positions < 2)
      throw ConfigError(
          fmt::format("{}: original_max_position_embeddings = {}: must be at least 2", where, rope.original_max_positions));
  }
  if (rope.scaling == RopeScaling::kDynamic && config.rotary_dim() < 4)
    throw ConfigError(fmt::format("{}: head_dim = {}: dynamic rope scaling needs at least 4 rotated elements of a head, not {}; "
                                  "use wider heads or another scaling",
                                  where, config.head_dim, config.rotary_dim()));
  if (rope.scaling == RopeScaling::kLlama3) {
    require_positive_number(rope.low_freq_factor, "low_freq_factor", where);
    if (!(rope.high_freq_factor > rope.low_freq_factor && std::isfinite(rope.high_freq_factor)))
      throw ConfigError(fmt::format("{}: high_freq_factor = {}: must be above low_freq_factor = {}", where, rope.high_freq_factor,
                                    rope.low_freq_factor));
  }
  if (rope.scaling == RopeScaling::kYarn) {
    require_positive_number(rope.beta_slow, "beta_slow", where);
    if (!(rope.beta_fast >= rope.beta_slow && std::isfinite(rope.beta_fast)))
      throw ConfigError(fmt::format("{}: beta_fast = {}: must be at least beta_slow = {}", where, rope.beta_fast, rope.beta_slow));
  }
}

}  // namespace

void validate(const ModelConfig& config, std::string_view where) {
  require_size(config.vocab_size, "vocab_size", where, kMaxIndex);
  require_size(config.hidden, "hidden size", where);
  require_size(config.layers, "number of layers", where, kMaxLayers);
  require_size(config.heads, "number of attention heads", where);
  require_size(config.kv_heads, "number of key/value heads", where);
  require_size(config.head_dim, "head_dim", where);
  require_size(config.ffn, "feed-forward width", where);
  require_size(config.max_positions, "max_position_embeddings", where, kMaxIndex);
  require_size(config.query_width(), "attention heads times head_dim", where);
  if (config.heads % config.kv_heads != 0)
    throw ConfigError(
        fmt::format("{}: {} attention heads are not divisible by {} key/value heads; each key/value head serves the same "
                    "number of query heads",
                    where, config.heads, config.kv_heads));
  require_positive_number(config.norm_eps, "norm epsilon", where);
  require_positive_number(config.init_std, "initializer_range", where);
  if (config.clip_qkv != 0) require_positive_number(config.clip_qkv, "clip_qkv", where);
  require_probability(config.residual_dropout, "residual dropout", where);
  require_probability(config.embedding_dropout, "embedding dropout", where);
  if (config.position == PositionKind::kRope) validate_rope(config, where);
}

}  // namespace trident

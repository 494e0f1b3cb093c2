#include "model/gpt.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "core/check.h"
#include "model/embedding.h"
#include "model/head.h"
#include "model/transformer_block.h"

namespace trident {
namespace {

// Whether the degree splits the model's heads and feed-forward width.
bool splits_kv(const ModelConfig& config, std::int64_t degree) {
  return config.kv_heads % degree == 0 || degree % config.kv_heads == 0;  // else ranks share the heads
}
bool splits(const ModelConfig& config, std::int64_t degree) {
  return config.heads % degree == 0 && splits_kv(config, degree) && config.ffn % degree == 0;
}

std::string legal_degrees(const ModelConfig& config) {
  std::string text;
  for (std::int64_t degree = 1; degree <= config.heads; ++degree)
    if (splits(config, degree)) text += fmt::format("{}{}", text.empty() ? "" : ", ", degree);
  return text;
}

}  // namespace

void check_layout(const ModelConfig& config, const TensorLayout& layout, std::int64_t sequence) {
  if (!splits(config, layout.degree)) {
    const std::string legal = legal_degrees(config);
    std::string undivided;
    const auto add = [&](bool is_wrong, std::int64_t size, std::string_view of) {
      if (is_wrong) undivided += fmt::format("{}{} {}", undivided.empty() ? "" : ", nor its ", size, of);
    };
    add(config.heads % layout.degree != 0, config.heads, "attention heads");
    add(!splits_kv(config, layout.degree), config.kv_heads, "key/value heads");
    add(config.ffn % layout.degree != 0, config.ffn, "feed-forward columns");
    throw ConfigError(fmt::format("parallel.tensor = {}: does not divide the model's {}; use {}{}", layout.degree, undivided,
                                  legal.find(',') == std::string::npos ? "" : "one of ", legal));
  }
  if (sequence > config.longest_sequence()) {
    throw ConfigError(
        fmt::format("batch.sequence = {}: the model has {} positions; use at most that", sequence, config.max_positions));
  }
  if (layout.shards_sequence() && sequence % layout.degree != 0) {
    throw ConfigError(fmt::format(
        "batch.sequence = {}: sequence parallelism splits it over parallel.tensor = {}; use a multiple, such as {}, or set "
        "parallel.sequence_parallel to false",
        sequence, layout.degree, (sequence / layout.degree + 1) * layout.degree));
  }
}

std::unique_ptr<Layer> make_unit(const ModelConfig& config, int unit) {
  TRIDENT_CHECK(unit >= 0 && unit < num_units(config), "unit {} of {}", unit, num_units(config));
  if (unit == 0) return std::make_unique<Embedding>(config);
  if (unit == head_unit(config)) return std::make_unique<Head>(config);
  return std::make_unique<TransformerBlock>(config, unit - 1);
}

std::vector<ParamSpec> unit_params(const ModelConfig& config, const TensorLayout& layout, int unit) {
  ParamList list(layout);
  make_unit(config, unit)->declare(list);
  return list.specs();
}

std::vector<SubAxis> partial_axes(const ModelConfig& config, const TensorLayout& layout) {
  std::vector<SubAxis> axes;
  for (int unit = 0; unit < num_units(config); ++unit) {
    const bool is_like_the_first = unit > 1 && unit < head_unit(config) && config.tuning == nullptr;  // of blocks
    if (is_like_the_first) continue;
    for (const ParamSpec& spec : unit_params(config, layout, unit))
      for (const SubAxis& axis : spec.grad_partial_over)
        if (std::ranges::find(axes, axis) == axes.end()) axes.push_back(axis);
  }
  return axes;
}

}  // namespace trident

#include "planner/search/search_refusals.h"

#include <fmt/ranges.h>

#include <cstddef>
#include <ranges>
#include <set>
#include <utility>

#include "core/check.h"
#include "planner/search/layout_costs.h"

namespace trident {

SearchSpace space_of(const SearchRequest& request, int gpus) {
  const BatchConfig& batch = request.config.batch;
  SearchSpace space{.gpus = gpus, .global_batch = batch.global, .sequence = batch.sequence};
  space.micro = micro_batches_of(batch.global, batch.sequence, batch.micro);
  return space;
}

std::string value_at(const JsonValue& config, const std::string& key) {
  const std::size_t dot = key.find('.');
  const JsonValue& value = *config.find(key.substr(0, dot))->find(key.substr(dot + 1));
  return value.is_string() ? value.as_string() : to_json_text(value);
}

namespace {

// Refuses a value of --set that no layout has, where there are layouts with other values.
void refuse_held(const SearchRequest& request, const ModelConfig& model, const std::vector<int>& ranks) {
  Rejections unused;
  std::vector<std::set<std::pair<std::size_t, std::string>>> values(request.held.size());  // numbers ascend
  for (const int number : ranks)
    for (const SearchLayout& layout : enumerate_layouts(space_of(request, number), model, unused)) {
      const JsonValue config = to_json(with_layout(request.config, layout));
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::string value = value_at(config, request.held[i]);
        values[i].emplace(value.size(), value);
      }
    }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string value = value_at(to_json(request.config), request.held[i]);
    if (values[i].empty() || values[i].contains({value.size(), value})) continue;
    throw ConfigError(fmt::format("{} = {}: no layout of this model and batch.global = {} on {} {} has it; use {}", request.held[i],
                                  value, request.config.batch.global, fmt::join(ranks, ", "),
                                  request.processors ? "ranks" : "GPUs", fmt::join(values[i] | std::views::values, ", ")));
  }
  if (!values.empty() && !values.front().empty())
    throw ConfigError(fmt::format("--set: no layout of this model has all of {}; leave one of them out",
                                  fmt::join(request.held, ", ")));
}

}  // namespace

void refuse_batch(const SearchRequest& request, const ModelConfig& model, const std::vector<int>& ranks,
                  const Rejections& rejections) {
  refuse_held(request, model, ranks);
  std::string why;
  for (std::size_t r = 0; r < kNumRejections; ++r) {
    const Rejected& rejected = rejections[r];
    if (rejected.layouts > 0)
      why += fmt::format("{}{} ({})", why.empty() ? "" : ", ", to_string(static_cast<Rejection>(r)), rejected.example);
  }
  const std::string where = request.gpus > 0 ? fmt::format("--gpus = {}", request.gpus) : "--cluster";
  throw ConfigError(
      fmt::format("{}: there is no layout of this model and batch.global = {}: {}", where, request.config.batch.global, why));
}

}  // namespace trident

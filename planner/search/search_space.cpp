#include "planner/search/search_space.h"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>

#include "core/at.h"
#include "core/check.h"
#include "core/counted.h"
#include "pipeline/schedule/step_program.h"

namespace trident {
namespace {

std::vector<int> divisors(int n) {
  std::vector<int> list;
  for (int d = 1; d <= n; ++d)
    if (n % d == 0) list.push_back(d);
  return list;
}

void reject(Rejections& rejections, Rejection reason, std::int64_t layouts, const std::string& example) {
  Rejected& rejected = at(rejections, reason);
  if (rejected.layouts == 0) rejected.example = example;
  rejected.layouts += layouts;
}

class Enumeration {
 public:
  Enumeration(const SearchSpace& space, const ModelConfig& model, Rejections& rejections)
      : space_(space), model_(model), rejections_(rejections) {}

  std::vector<SearchLayout> run() {
    for (const int tensor : divisors(space_.gpus)) {
      if (!splits(tensor)) {
        count(Rejection::kHeads, below_tensor(tensor),
              fmt::format("tensor {}: {} attention heads, {} key/value heads, feed-forward width {}", tensor, model_.heads,
                          model_.kv_heads, model_.ffn));
        continue;
      }
      for (const int pipeline : divisors(space_.gpus / tensor)) with_degrees(tensor, pipeline);
    }
    return std::move(layouts_);
  }

 private:
  // Heads, key/value heads and feed-forward width, as check_layout (model/gpt.h) wants them.
  bool splits(int degree) const {
    const bool kv = model_.kv_heads % degree == 0 || degree % model_.kv_heads == 0;
    return model_.heads % degree == 0 && kv && model_.ffn % degree == 0;
  }

  void count(Rejection reason, std::int64_t layouts, const std::string& example) { reject(rejections_, reason, layouts, example); }

  std::int64_t sizes(const auto& list) const { return static_cast<std::int64_t>(list.size()); }
  // Layouts that have degrees and schedule, and differ in what is left.
  std::int64_t per_micro(int tensor, int data) const {
    const std::int64_t policies = data == 1 ? 1 : sizes(space_.zero) + has_zero3();
    return (tensor > 1 ? 2 : 1) * policies * sizes(space_.recompute);
  }
  std::int64_t has_zero3() const { return std::count(space_.zero.begin(), space_.zero.end(), ZeroPreset::kZero3); }
  std::int64_t below_degrees(int tensor, int pipeline) const {
    const int data = space_.gpus / tensor / pipeline;
    return per_micro(tensor, data) * sizes(space_.micro) * (pipeline == 1 ? 1 : 1 + sizes(space_.virtual_stages));
  }
  std::int64_t below_tensor(int tensor) const {
    std::int64_t sum = 0;
    for (const int pipeline : divisors(space_.gpus / tensor)) sum += below_degrees(tensor, pipeline);
    return sum;
  }

  void with_degrees(int tensor, int pipeline) {
    if (pipeline > model_.layers) {
      count(Rejection::kTooFewBlocks, below_degrees(tensor, pipeline),
            fmt::format("pipeline {}: the model has {}", pipeline, counted(model_.layers, "block")));
      return;
    }
    SearchLayout layout;
    layout.tensor = tensor;
    layout.pipeline = pipeline;
    layout.data = space_.gpus / tensor / pipeline;
    const int schedules = pipeline == 1 ? 1 : 1 + static_cast<int>(space_.virtual_stages.size());
    for (const std::int64_t micro : space_.micro) {
      layout.micro = micro;
      const std::int64_t at_once = micro * layout.data, rest = per_micro(tensor, layout.data) * schedules;
      if (space_.global_batch % at_once != 0) {
        count(Rejection::kBatch, rest,
              fmt::format("batch {} is no multiple of micro {} x data {} (pipeline {}, tensor {})", space_.global_batch, micro,
                          layout.data, pipeline, tensor));
        continue;
      }
      if (space_.global_batch / at_once > most_micro_batches(model_.layers + 2)) {
        count(Rejection::kTooManyMicroBatches, rest, fmt::format("{} micro-batches a step", space_.global_batch / at_once));
        continue;
      }
      with_schedules(layout, static_cast<int>(space_.global_batch / at_once));
    }
  }

  void with_schedules(SearchLayout layout, int micro_batches) {
    with_rest(layout);
    if (layout.pipeline == 1) return;
    layout.schedule = ScheduleKind::kGpipe;
    with_rest(layout);
    layout.schedule = ScheduleKind::kInterleaved;
    const std::int64_t rest = per_micro(layout.tensor, layout.data);
    for (const int chunks : space_.virtual_stages) {
      if (chunks == 1) continue;
      layout.virtual_stages = chunks;
      if (std::int64_t{layout.pipeline} * chunks > model_.layers) {
        count(Rejection::kTooFewBlocks, rest,
              fmt::format("pipeline {} x {} chunks: the model has {}", layout.pipeline, chunks, counted(model_.layers, "block")));
      } else if (micro_batches % layout.pipeline != 0) {
        count(Rejection::kInterleaving, rest,
              fmt::format("{} a step: no multiple of pipeline {}", counted(micro_batches, "micro-batch", "micro-batches"),
                          layout.pipeline));
      } else {
        with_rest(layout);
      }
    }
  }

  void with_rest(SearchLayout layout) {
    for (const bool sequence_parallel : {false, true}) {
      if (sequence_parallel && layout.tensor == 1) continue;
      layout.sequence_parallel = sequence_parallel;
      if (sequence_parallel && space_.sequence % layout.tensor != 0) {
        count(Rejection::kSequence, per_micro(layout.tensor, layout.data) / 2,
              fmt::format("sequences of {} over tensor {}", space_.sequence, layout.tensor));
        continue;
      }
      for (const RecomputePolicy recompute : space_.recompute) {
        layout.recompute = recompute;
        with_policies(layout);
      }
    }
  }

  void with_policies(SearchLayout layout) {
    for (const ZeroPreset zero : space_.zero) {
      if (layout.data == 1 && zero != space_.zero.front()) continue;  // nothing to shard: all are the same
      layout.zero = layout.data == 1 ? ZeroPreset::kZero1 : zero;
      layout.reduces_once = false;
      layouts_.push_back(layout);
      if (layout.zero != ZeroPreset::kZero3) continue;
      layout.reduces_once = true;
      layouts_.push_back(layout);
    }
  }

  const SearchSpace& space_;
  const ModelConfig& model_;
  Rejections& rejections_;
  std::vector<SearchLayout> layouts_;
};

}  // namespace

ZeroPolicy SearchLayout::policy() const {
  ZeroPolicy policy = policy_of(zero);
  if (reduces_once) policy.grad_sync_every = 0;
  return policy;
}

std::string zero_text(const SearchLayout& layout) {
  return fmt::format("{}{}", to_string(layout.zero), layout.reduces_once ? " reducing once" : "");
}

bool are_variations(const SearchLayout& a, const SearchLayout& b) {
  const auto places = [](const SearchLayout& it) { return std::tie(it.data, it.context, it.pipeline, it.tensor, it.shard_ranks); };
  return places(a) == places(b);
}

std::string to_string(const SearchLayout& layout) {
  std::string text = fmt::format("{}DP x {}PP x {}TP", layout.data, layout.pipeline, layout.tensor);
  if (layout.context > 1) text += fmt::format(" x {}CP", layout.context);
  if (layout.sequence_parallel) text += ", sequence parallel";
  if (layout.pipeline > 1) text += fmt::format(", {}", to_string(layout.schedule));
  if (layout.virtual_stages > 1) text += fmt::format(" of {} chunks", layout.virtual_stages);
  text += fmt::format(", micro-batches of {}", layout.micro);
  text += ", " + zero_text(layout);
  if (layout.shard_ranks > 0) text += fmt::format(" within groups of {}", layout.shard_ranks);
  if (layout.recompute != RecomputePolicy::kNone) text += fmt::format(", recompute {}", to_string(layout.recompute));
  return text;
}

std::vector<std::int64_t> micro_batches_of(std::int64_t global_batch, std::int64_t sequence, std::int64_t asked) {
  const std::int64_t most = std::min(global_batch, std::max<std::int64_t>(16, kMicroBatchTokens / sequence));
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size <= most; ++size)
    if (global_batch % size == 0 || size == asked) sizes.push_back(size);
  if (asked > most) sizes.push_back(asked);
  return sizes;
}

std::vector<SearchLayout> enumerate_layouts(const SearchSpace& space, const ModelConfig& model, Rejections& rejections) {
  if (space.gpus < 1) throw ConfigError(fmt::format("--gpus = {}: at least 1", space.gpus));
  if (space.global_batch < 1) throw ConfigError(fmt::format("batch.global = {}: at least 1", space.global_batch));
  return Enumeration(space, model, rejections).run();
}

}  // namespace trident

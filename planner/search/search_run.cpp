#include "planner/search/search_run.h"

#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>

#include "core/at.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/for_each_index.h"
#include "core/number_text.h"
#include "model/config/model_stats.h"
#include "planner/search/layout_costs.h"
#include "planner/search/search_refusals.h"
#include "planner/search/search_text.h"
#include "train/run/dry_run.h"

namespace trident {
namespace {

// Layouts whose bound is this much above the last kept one's time are timed, too, because the table of choices compares them.
constexpr double kBeyond = 0.02;
// A cluster that is too small is compared with ones up to so many times as large.
constexpr int kMostGrowth = 64;
constexpr double kSameAsAnother = -1;

MemoryUse largest_part(const ArenaMemory& memory) {
  return *std::max_element(kMemoryUses.begin(), kMemoryUses.end(),
                           [&](MemoryUse a, MemoryUse b) { return memory[a] < memory[b]; });
}

// "87.2 of 84.9 GB on pipeline rank 0, most of it activations 60.1 GB".
std::string need(const LayoutCosts::Worst& worst, std::int64_t needed, std::int64_t there) {
  const MemoryUse part = largest_part(worst.memory);
  AmountUnit unit = byte_unit(std::max(needed, there));
  while (unit.decimals < 9 && unit.number(needed) == unit.number(there)) ++unit.decimals;  // the difference is seen
  return fmt::format("{} of {} {} on pipeline rank {}, most of it {} {}", unit.number(needed), unit.number(there), unit.name,
                     worst.rank, to_string(part), byte_unit(worst.memory[part]).text(worst.memory[part]));
}

// The layouts that have the held values; the others are counted.
std::vector<SearchLayout> layouts_of(const SearchRequest& request, int gpus, const ModelConfig& model, Rejections& rejections) {
  std::vector<SearchLayout> layouts = enumerate_layouts(space_of(request, gpus), model, rejections);
  std::erase_if(layouts, [&](const SearchLayout& layout) {
    const std::string key = first_other_key(request.config, request.held, layout);
    if (key.empty()) return false;
    Rejected& rejected = at(rejections, Rejection::kHeld);
    if (rejected.layouts++ == 0) rejected.example = fmt::format("{}: {}", to_string(layout), key);
    return true;
  });
  return layouts;
}

RunKind kind_of(const SearchLayout& layout) {
  return {.gathers = layout.policy().param_gather != ParamGather::kResident,
          .splits_model = layout.tensor > 1 || layout.pipeline > 1,
          .gpus = layout.gpus()};
}

bool holds_preset(const SearchRequest& request) { return std::ranges::count(request.held, "parallel.zero") > 0; }

SearchResult heading_of(const SearchRequest& request, const ModelConfig& model) {
  SearchResult result;
  const std::string parameters = parameters_text(static_cast<double>(num_parameters(model)));
  result.model = fmt::format("{} of {} parameters, {} layers, hidden {}, {} heads", to_string(model.family), parameters,
                             model.layers, model.hidden, model.heads);
  result.parameters = num_parameters(model);
  result.global_batch = request.config.batch.global;
  result.sequence = request.config.batch.sequence;
  const JsonValue config = to_json(request.config);
  for (const std::string& key : request.held) result.held.push_back(fmt::format("{}={}", key, value_at(config, key)));
  return result;
}

// zero3 where gathering on use would take no less memory is zero2, and with one reduction zero1.
void reject_same(Rejections& rejections, const SearchLayout& layout) {
  Rejected& same = at(rejections, Rejection::kSame);
  if (same.layouts++ > 0) return;
  same.example = fmt::format("{}: every rank keeps its parameters, because gathering them on use takes no less memory",
                             to_string(layout));
}

// The fastest of some variations is found, and the others are told beside it.
std::vector<FoundLayout> without_variations(const std::vector<TimedLayout>& ranked, std::size_t most) {
  std::vector<FoundLayout> best;
  for (const TimedLayout& timed : ranked) {
    const auto same = [&](const FoundLayout& found) {
      return found.tight == timed.tight && are_variations(found.layout, timed.layout);
    };
    const auto found = std::find_if(best.begin(), best.end(), same);
    if (found != best.end()) {
      found->variations.push_back(timed);
    } else if (best.size() < most) {
      FoundLayout& added = best.emplace_back();
      added.layout = timed.layout;
      added.tight = timed.tight;
    }
  }
  return best;
}

// CPU time of this thread while it lives, added to `seconds`.
class CpuTimer {
 public:
  explicit CpuTimer(std::atomic<double>& seconds) : seconds_(seconds) {}
  ~CpuTimer() { seconds_ += thread_cpu_seconds() - start_; }
  CpuTimer(const CpuTimer&) = delete;
  CpuTimer& operator=(const CpuTimer&) = delete;

 private:
  std::atomic<double>& seconds_;
  const double start_ = thread_cpu_seconds();
};

class Search {
 public:
  explicit Search(const SearchRequest& request)
      : request_(request),
        model_(resolve_model(request.config)),
        oracle_(any_gpu(request.config.cuda.deterministic)),
        hardware_(hardware_of(request.cluster)),
        costs_(request.config, model_, hardware_.machine, oracle_.get(), *hardware_.prices),
        choices_(request.cluster.links.gpus_per_node) {}

  SearchResult run() {
    refuse_tuning();
    check_cluster_size(request_.cluster, request_.gpus, 1);
    result_ = heading_of(request_, model_);
    result_.gpus = request_.gpus;
    result_.cluster = request_.cluster.name;
    result_.device_bytes = static_cast<std::int64_t>(hardware_.device_bytes);
    const std::vector<SearchLayout> layouts = layouts_of(request_, request_.gpus, model_, result_.rejections);
    result_.layouts = layouts.size();
    if (layouts.empty()) refuse_batch(request_, model_, {request_.gpus}, result_.rejections);
    const std::vector<SearchLayout> fitting = fitting_of(layouts);
    result_.fitting = fitting.size();
    if (fitting.empty()) refuse_memory();
    rank(fitting);
    estimate_others();
    result_.dry_runs = costs_.dry_runs();
    return std::move(result_);
  }

 private:
  void refuse_tuning() const {
    const auto& parts = request_.config.train;
    const bool adapts = request_.config.adapter.type.has_value();
    if (!adapts && parts.only.empty() && parts.freeze.empty()) return;
    throw ConfigError(
        fmt::format("{}: the search prices full training; leave the key out, or ask trident plan about one layout",
                    adapts ? "adapter.type" : parts.only.empty() ? "train.freeze" : "train.only"));
  }

  void begin(std::string_view what, std::size_t all) {
    what_ = what, all_ = static_cast<std::int64_t>(all), done_ = 0;
    if (request_.progress) request_.progress(what_, 0, all_);
  }
  // Called from the threads that work. They count under the lock, so that nobody hears of 64 layouts before 32.
  void one_done() {
    constexpr std::int64_t kSome = 32;
    const std::scoped_lock lock(mutex_);
    if (++done_ % kSome == 0 && request_.progress) request_.progress(what_, done_, all_);
  }

  std::int64_t usable(const SearchLayout& layout) const { return usable_bytes(request_.cluster.gpu, model_, layout); }
  std::int64_t needed_bytes(const SearchLayout& layout) {
    return costs_.worst_memory(layout).memory.total() + result_.device_bytes - usable(layout);
  }
  bool is_tight(const SearchLayout& layout) {
    const auto tensors = static_cast<double>(costs_.worst_memory(layout).memory.total());
    return tensors + tensors_off(tensors) > static_cast<double>(usable(layout));
  }

  std::vector<SearchLayout> fitting_of(const std::vector<SearchLayout>& layouts) {
    std::vector<std::int64_t> over(layouts.size());  // bytes beyond what there is
    begin("layouts planned", layouts.size());
    for_each_index(layouts.size(), request_.threads, [&](std::size_t i) {
      over[i] = costs_.worst_memory(layouts[i]).memory.total() - usable(layouts[i]);
      one_done();
    });
    std::vector<SearchLayout> fitting;
    Rejected& rejected = at(result_.rejections, Rejection::kMemory);
    std::optional<std::size_t> closest;
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      if (over[i] <= 0) {
        fitting.push_back(layouts[i]);
        continue;
      }
      ++rejected.layouts;
      if (!closest || over[i] < over[*closest]) closest = i;
    }
    if (closest) {
      const SearchLayout& layout = layouts[*closest];
      const std::int64_t there = result_.device_bytes;
      rejected.example =
          fmt::format("{}: needs {}", to_string(layout), need(costs_.worst_memory(layout), there + over[*closest], there));
    }
    return fitting;
  }

  [[noreturn]] void refuse_memory() {
    const std::string& closest = at(result_.rejections, Rejection::kMemory).example;
    std::string more;
    for (int growth = 2; growth <= kMostGrowth && more.empty(); growth *= 2) {
      Rejections unused;
      for (const SearchLayout& layout : layouts_of(request_, request_.gpus * growth, model_, unused)) {
        if (costs_.worst_memory(layout).memory.total() > usable(layout)) continue;
        more = fmt::format("; on {} GPUs {} fits", layout.gpus(), to_string(layout));
        break;
      }
    }
    throw ConfigError(fmt::format("--gpus = {}: no layout of this model fits GPUs of {}; the closest, {}{}", request_.gpus,
                                  request_.cluster.name, closest, more));
  }

  double seconds_of(const SearchLayout& layout) {
    const CpuTimer timer(simulation_seconds_);
    const double seconds = price_step(costs_.looped_step(layout), *hardware_.prices).seconds;
    one_done();
    const std::scoped_lock lock(mutex_);
    choices_.add(layout, seconds);
    return seconds;
  }

  void rank(const std::vector<SearchLayout>& fitting) {
    std::vector<TimedLayout> candidates(fitting.size());
    begin("layouts bounded", fitting.size());
    for_each_index(fitting.size(), request_.threads, [&](std::size_t i) {
      one_done();
      const CpuTimer timer(bound_seconds_);
      candidates[i] = {fitting[i], keeps_parameters(fitting[i]) ? kSameAsAnother : costs_.least_seconds(fitting[i]),
                       is_tight(fitting[i]), needed_bytes(fitting[i])};
    });
    drop_same(candidates);
    result_.tight = static_cast<std::size_t>(std::ranges::count_if(candidates, &TimedLayout::tight));
    result_.bound_seconds = bound_seconds_ / static_cast<double>(fitting.size());
    begin("layouts timed", 0);
    const std::vector<TimedLayout> ranked = fastest_layouts(
        candidates, request_.keep, kBeyond, request_.threads, [this](const SearchLayout& layout) { return seconds_of(layout); });
    result_.best = without_variations(ranked, request_.keep);
    if (!result_.best.empty()) result_.less_sure = width_note(hardware_, model_.hidden / result_.best.front().layout.tensor);
    result_.simulation_seconds = simulation_seconds_ / static_cast<double>(ranked.size());
    result_.timed = ranked.size();
    for_each_index(result_.best.size(), request_.threads, [&](std::size_t i) { describe(result_.best[i]); });
    result_.best_by_choice = choices_.times();
  }

  // Layouts beside the best that this program does not train yet: estimates of what they add to recorded steps.
  void estimate_others() {
    constexpr std::size_t kMost = 3;
    std::vector<SearchLayout> layouts;
    const auto offer = [&](const SearchLayout& layout) {
      const bool is_new = std::find(layouts.begin(), layouts.end(), layout) == layouts.end();
      if (is_new && first_other_key(request_.config, request_.held, layout).empty()) layouts.push_back(layout);
    };
    for (const FoundLayout& found : result_.best) {
      for (const int context : {2, 4, 8}) {
        SearchLayout layout = found.layout;
        layout.context = context;
        layout.data /= context;
        if (found.layout.data % context == 0 && request_.config.batch.sequence % (context * layout.tensor) == 0) offer(layout);
      }
      const int group = request_.cluster.gpus_per_node / found.layout.tensor;
      for (const ZeroPreset zero : {ZeroPreset::kZero1, ZeroPreset::kZero3}) {
        SearchLayout layout = found.layout;
        layout.shard_ranks = group;
        layout.zero = zero;
        layout.reduces_once = false;
        if (group > 1 && layout.data > group && layout.data % group == 0) offer(layout);
      }
    }
    for (const SearchLayout& layout : layouts) {
      if (costs_.worst_memory(layout).memory.total() > usable(layout)) continue;
      FoundLayout& found = result_.not_trainable.emplace_back();
      found.layout = layout;
      found.trainable = false;
      describe(found);
    }
    std::stable_sort(result_.not_trainable.begin(), result_.not_trainable.end(),
                     [](const FoundLayout& a, const FoundLayout& b) { return a.seconds < b.seconds; });
    const std::size_t kept = std::min({kMost, request_.keep, result_.not_trainable.size()});
    result_.more_not_trainable = result_.not_trainable.size() - kept;
    result_.not_trainable.resize(kept);
  }

  // Whether zero3 gathers nothing on use.
  bool keeps_parameters(const SearchLayout& layout) {
    return layout.zero == ZeroPreset::kZero3 && !holds_preset(request_) &&
           std::ranges::none_of(costs_.memory(layout), [](const ArenaMemory& rank) { return rank.gathers_on_use; });
  }

  void drop_same(std::vector<TimedLayout>& candidates) {
    for (const TimedLayout& candidate : candidates)
      if (candidate.seconds == kSameAsAnother) reject_same(result_.rejections, candidate.layout);
    std::erase_if(candidates, [](const TimedLayout& candidate) { return candidate.seconds == kSameAsAnother; });
  }

  void describe(FoundLayout& found) {
    const StepPrice price = price_step(costs_.looped_step(found.layout), *hardware_.prices);
    found.seconds = price.seconds;
    found.busiest = static_cast<int>(price.busiest());
    found.parts = price.ranks[price.busiest()];
    const LayoutCosts::Worst worst = costs_.worst_memory(found.layout);
    found.fullest = worst.rank;
    found.memory = worst.memory;
    found.needed_bytes = needed_bytes(found.layout);
    found.bytes_off = tensors_off(static_cast<double>(worst.memory.total()));
    if (found.trainable && request_.config.precision.compute != ComputeFormat::kFp32)
      found.band = error_band(hardware_.file, kind_of(found.layout));
    const auto tokens = static_cast<double>(request_.config.batch.global * request_.config.batch.sequence);
    found.tokens_per_second = tokens / found.seconds;
    RunPlan counted;  // as far as FLOPs go by it
    counted.config = request_.config, counted.model = model_;
    found.mfu = counted.predicted_flops_per_token() * found.tokens_per_second /
                (static_cast<double>(request_.gpus) * request_.cluster.gpu.peak_16bit);
    found.next_limit = next_limit(found);
    if (found.trainable) found.settings = changed_settings(request_.config, found.layout);
  }

  // The largest part of the time that is not computing, and how full memory is.
  std::string next_limit(const FoundLayout& found) const {
    const double full = static_cast<double>(found.needed_bytes) / static_cast<double>(result_.device_bytes);
    TimePart most = TimePart::kRecompute;
    for (std::size_t p = 0; p < kNumTimeParts; ++p) {
      const auto part = static_cast<TimePart>(p);
      if (part != TimePart::kCompute && found.parts[part] > found.parts[most]) most = part;
    }
    const MemoryUse use = largest_part(found.memory);
    return fmt::format("{} {:.1f} % of the step; memory {:.0f} % full, most of it {}", to_string(most),
                       100 * found.parts[most] / found.seconds, 100 * full, to_string(use));
  }

  const SearchRequest& request_;
  ModelConfig model_;
  std::unique_ptr<Ops> oracle_;
  PlanHardware hardware_;
  LayoutCosts costs_;
  std::atomic<double> bound_seconds_{0}, simulation_seconds_{0};
  std::mutex mutex_;
  std::string_view what_;  // is being done with layouts
  std::int64_t all_ = 0, done_ = 0;
  ChoiceTimes choices_;
  SearchResult result_;
};

// On processors a layout is planned in milliseconds: each is planned whole, and nothing is estimated.
class ProcessorSearch {
 public:
  explicit ProcessorSearch(const SearchRequest& request) : request_(request), hardware_(*request.processors) {}

  SearchResult run() {
    const ModelConfig model = resolve_model(request_.config);
    result_ = heading_of(request_, model);
    result_.cluster = hardware_.name;
    result_.device_bytes = static_cast<std::int64_t>(hardware_.device_bytes);
    const int first = std::max(1, request_.gpus), last = request_.gpus > 0 ? request_.gpus : hardware_.processors->cores;
    std::vector<SearchLayout> layouts;
    for (int ranks = first; ranks <= last; ranks *= 2) {
      result_.ranks.push_back(ranks);
      std::ranges::copy(layouts_of(request_, ranks, model, result_.rejections), std::back_inserter(layouts));
    }
    result_.layouts = layouts.size();
    if (layouts.empty()) refuse_batch(request_, model, result_.ranks, result_.rejections);
    const std::vector<TimedLayout> ranked = in_order(layouts);
    result_.fitting = result_.timed = ranked.size();
    if (ranked.empty())
      throw ConfigError(fmt::format("--cluster: no layout of this model fits {} ({}); take a smaller model or batch.sequence",
                                    hardware_.name, at(result_.rejections, Rejection::kMemory).example));
    result_.best = without_variations(ranked, request_.keep);
    for_each_index(result_.best.size(), request_.threads, [&](std::size_t i) { describe(result_.best[i]); });
    return std::move(result_);
  }

 private:
  struct Planned {
    double seconds = 0;
    std::int64_t bytes = 0;
    bool fits = false, gathers = false, tight = false;
  };

  ClusterForecast plan(const SearchLayout& layout) const { return plan_on(hardware_, with_layout(request_.config, layout), 0); }

  // Layouts that can be taken, the fastest first.
  std::vector<TimedLayout> in_order(const std::vector<SearchLayout>& layouts) {
    std::vector<Planned> planned(layouts.size());
    std::mutex mutex;
    std::int64_t done = 0;
    for_each_index(layouts.size(), request_.threads, [&](std::size_t i) {
      const ClusterForecast forecast = plan(layouts[i]);
      planned[i] = {forecast.seconds(), forecast.needed_bytes(), forecast.fits,
                    std::ranges::any_of(forecast.plan.step_programs, &StepProgram::gathers_on_use),
                    forecast.is_tight(hardware_)};
      const std::scoped_lock lock(mutex);
      if (++done % 32 == 0 && request_.progress) request_.progress("layouts timed", done, std::ssize(layouts));
    });
    std::vector<TimedLayout> ranked;
    ChoiceTimes choices(std::numeric_limits<int>::max());  // ranks are on one node
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      if (layouts[i].zero == ZeroPreset::kZero3 && !planned[i].gathers && !holds_preset(request_)) {
        reject_same(result_.rejections, layouts[i]);
      } else if (!planned[i].fits) {
        Rejected& rejected = at(result_.rejections, Rejection::kMemory);
        if (rejected.layouts++ == 0)
          rejected.example = fmt::format("{}: the process takes {} of {}", to_string(layouts[i]), bytes_text(planned[i].bytes),
                                         bytes_text(result_.device_bytes));
      } else {
        choices.add(layouts[i], planned[i].seconds);
        ranked.push_back({layouts[i], planned[i].seconds, planned[i].tight, planned[i].bytes});
        result_.tight += planned[i].tight ? 1 : 0;
      }
    }
    std::ranges::stable_sort(ranked, {}, &TimedLayout::rank);
    result_.best_by_choice = choices.times();
    return ranked;
  }

  void describe(FoundLayout& found) const {
    const ClusterForecast forecast = plan(found.layout);
    found.seconds = forecast.seconds();
    found.busiest = static_cast<int>(forecast.busiest);
    found.parts = forecast.parts;
    found.fullest = static_cast<int>(forecast.fullest);
    found.memory = ArenaMemory(forecast.forecast.stages[forecast.fullest].arena);
    found.memory.gathers_on_use = forecast.plan.step_programs[forecast.fullest].gathers_on_use;
    found.needed_bytes = forecast.needed_bytes();
    found.bytes_off = forecast.bytes_off(hardware_);
    found.band = hardware_.band;
    found.tokens_per_second = forecast.tokens_per_second();
    found.mfu = forecast.mfu;
    found.next_limit = forecast.limit.why;
    found.settings = changed_settings(request_.config, found.layout);
  }

  const SearchRequest& request_;
  const PlanHardware& hardware_;
  SearchResult result_;
};

}  // namespace

std::int64_t usable_bytes(const GpuRates& gpu, const ModelConfig& model, const SearchLayout& layout) {
  const int further = (layout.context > 1 ? 1 : 0) + (layout.shard_ranks > 0 ? 1 : 0);  // the ring, and sums over groups
  const int groups = further + num_communicators(model, {layout.tensor, layout.sequence_parallel}, layout.data * layout.context,
                                                 layout.pipeline, layout.policy().shard_optimizer);
  return static_cast<std::int64_t>(gpu.device_bytes) - static_cast<std::int64_t>(gpu.context_bytes) -
         static_cast<std::int64_t>(groups * gpu.communicator_bytes);
}

SearchResult search_layouts(const SearchRequest& request) {
  return request.processors ? ProcessorSearch(request).run() : Search(request).run();
}

}  // namespace trident

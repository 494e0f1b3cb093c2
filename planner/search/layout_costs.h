// A layout's memory, its step as a record, and the least that this takes, put together from single units.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "pipeline/kv_cache_shape.h"
#include "planner/price/step_price.h"
#include "planner/search/layout_memory.h"
#include "planner/search/schedule_facts.h"
#include "planner/search/search_space.h"
#include "planner/search/unit_costs.h"
#include "train/config/option_values.h"

namespace trident {

// The keys that make a configuration one of this layout, as --set takes them: "parallel.tensor=8". `grad_sync` of presets is null.
std::vector<std::string> layout_settings(const SearchLayout& layout);
// The settings among them whose keys have another value in `config`.
std::vector<std::string> changed_settings(const TrainConfig& config, const SearchLayout& layout);
// The configuration that complete values stand for, whose layout contradicts nothing: every layout of a search has its own.
TrainConfig config_to_search(OptionValues values);
// The keys of a layout that --set gives: a search keeps them. A key of "auto" or null gives nothing.
std::vector<std::string> held_keys(const OptionValues& values);
// The first of `held` that has another value in the layout than in `config`; "": none.
std::string first_other_key(const TrainConfig& config, const std::vector<std::string>& held, const SearchLayout& layout);
// `config` with those keys.
TrainConfig with_layout(const TrainConfig& config, const SearchLayout& layout);

class LayoutCosts {
 public:
  // As UnitCosts. `prices` outlives it.
  LayoutCosts(const TrainConfig& config, const ModelConfig& model, const MachineFacts& machine, Ops* oracle,
              const WorkPrices& prices);

  // By pipeline rank: to the byte what a dry run of its rank with tp 0 and dp 0 books.
  std::vector<ArenaMemory> memory(const SearchLayout& layout);
  // The rank that books most.
  struct Worst {
    int rank = 0;
    ArenaMemory memory;
  };
  Worst worst_memory(const SearchLayout& layout);

  // The layout's programs with `micro_batches` (0: all that the batch has) and what they call.
  RecordedStep step(const SearchLayout& layout, int micro_batches = 0);
  // The same step with as few micro-batches written out as show what the others repeat.
  LoopedStep looped_step(const SearchLayout& layout);
  // Never more than a simulated step takes: what the busiest rank computes, behind the first forwards and before the last backwards
  // of those before it.
  double least_seconds(const SearchLayout& layout);

  const UnitPasses& passes(const SearchLayout& layout);
  const StorePasses& stores(const SearchLayout& layout, bool on_use);
  // Ranks that share sequences share parameters, too: they are one axis with the data-parallel ones.
  ProcessGrid grid(const SearchLayout& layout) const;
  int micro_batches(const SearchLayout& layout) const;
  int dry_runs() const { return units_.dry_runs(); }

 private:
  struct Stages {
    UnitsOfStage of_stage;
    std::vector<RankUnits> of_rank;
  };
  using BuildPrograms = std::vector<StepProgram> (*)(const StepProgramSpec&);
  RecordedStep step(const SearchLayout& layout, int micro_batches, BuildPrograms build);
  const Stages& stages(const SearchLayout& layout);
  StoreKey store_key(const SearchLayout& layout, bool on_use) const;
  LayoutMemory memory_inputs(const SearchLayout& layout);
  ArenaMemory memory_of_rank(const SearchLayout& layout, const LayoutMemory& in, int rank);
  ArenaMemory memory_of_samples(const SearchLayout& layout, int rank);

  const WorkPrices& prices_;
  Ops* oracle_;
  UnitCosts units_;
  ScheduleBook schedules_;
  std::mutex mutex_;
  std::map<std::tuple<int, int, std::int64_t>, Stages> stages_;
  std::optional<KvCacheShape> samples_;                               // of eval.samples
  std::map<std::pair<int, UnitsOfStage>, ArenaMemory> sample_memory_;  // by tensor degree and the chunks of a pipeline rank
};

}  // namespace trident

// A layout's memory, its step as a record, and what a closed form needs of it, put together from single units.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "planner/price/step_price.h"
#include "planner/search/closed_form.h"
#include "planner/search/layout_memory.h"
#include "planner/search/schedule_facts.h"
#include "planner/search/search_space.h"
#include "planner/search/unit_costs.h"

namespace trident {

// The keys that make a configuration one of this layout, as --set takes them: "parallel.tensor=8". `grad_sync` of presets is null.
std::vector<std::string> layout_settings(const SearchLayout& layout);
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

  // Of a trainable layout: its programs with `micro_batches` (0: all that the batch has) and what they call.
  RecordedStep step(const SearchLayout& layout, int micro_batches = 0);
  // Likewise, with receives where step_program_views.h has them.
  RecordedStep looked_at_step(const SearchLayout& layout, int micro_batches);
  ClosedFormInputs closed_form(const SearchLayout& layout);

  int micro_batches(const SearchLayout& layout) const;
  ProcessGrid grid(const SearchLayout& layout) const;
  const std::vector<RankUnits>& units(const SearchLayout& layout);
  UnitCosts& units() { return units_; }

 private:
  struct Stages {
    UnitsOfStage of_stage;
    std::vector<RankUnits> of_rank;
  };
  struct PricedPasses {
    ByUnitKind<PassWork> forward, first_backward, backward;
    PassWork copy;
    double outside = 0;
  };
  struct PricedUnit {
    double gather = 0, reduce = 0;
    PassWork gaps, first_finish, finish, partial, norm, update;
  };
  struct PricedStores {
    ByUnitKind<PricedUnit> units;
    PassWork tie_embedding, tie_head, norm;
  };
  struct RankPlaces {  // what parameters and gradients that come and go make of a rank
    bool gathers_on_use = false;
    std::int64_t gradient_region = 0;
    bool operator==(const RankPlaces&) const = default;
  };
  using BuildPrograms = std::vector<StepProgram> (*)(const StepProgramSpec&);
  RecordedStep step(const SearchLayout& layout, int micro_batches, BuildPrograms build);
  const Stages& stages(const SearchLayout& layout);
  StoreKey store_key(const SearchLayout& layout, bool on_use) const;
  const PricedPasses& priced_passes(const SearchLayout& layout, const ProcessGrid& grid);
  const PricedStores& priced_stores(const SearchLayout& layout, bool on_use);
  std::int64_t ring_bytes(const SearchLayout& layout) const;
  void share_attention(const SearchLayout& layout, const ProcessGrid& grid, PricedPasses& priced);
  double between_groups(const SearchLayout& layout, const ProcessGrid& grid, const std::vector<BucketSize>& buckets) const;
  LayoutMemoryInputs memory_inputs(const SearchLayout& layout);
  static RankPlaces rank_places(const LayoutMemoryInputs& memory, const RankUnits& units, int rank);
  RankTimes rank_times(const SearchLayout& layout, const ProcessGrid& grid, const PricedPasses& passes,
                       const LayoutMemoryInputs& memory, const RankUnits& units, const RankPlaces& places, int rank);

  const WorkPrices& prices_;
  UnitCosts units_;
  ScheduleBook schedules_;
  std::mutex mutex_;
  std::map<std::tuple<int, int, std::int64_t>, Stages> stages_;
  std::map<std::tuple<PassKey, int, int>, PricedPasses> priced_passes_;
  std::map<std::tuple<StoreKey, int, int, int>, PricedStores> priced_stores_;
};

}  // namespace trident

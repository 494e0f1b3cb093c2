// The search for layouts of a configuration's model on a cluster or on processors: `trident plan search`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/predict/cluster_forecast.h"
#include "planner/price/cluster.h"
#include "planner/price/step_price.h"
#include "planner/search/layout_memory.h"
#include "planner/search/layout_search.h"
#include "planner/search/search_space.h"
#include "train/config/train_config.h"

namespace trident {

struct SearchRequest {
  TrainConfig config;  // its model, precision, global batch and sequence; parallel.overlap, order and bucket_mb; optimizer
  std::vector<std::string> held = {};  // keys of a layout, whose values every layout has (held_keys())
  Cluster cluster = {};
  std::optional<PlanHardware> processors = {};  // in place of the cluster
  int gpus = 0;  // of processors: ranks; 0: 1, 2, 4 and so on, to as many as there are cores
  std::size_t keep = 10;        // layouts to report
  int threads = 2;
  // "layouts planned", of all; "layouts bounded", of those that fit; "layouts timed", of a number that is not known: 0.
  std::function<void(std::string_view what, std::int64_t done, std::int64_t all)> progress = {};
};

// The prediction for a layout of the search.
struct FoundLayout {
  SearchLayout layout;
  // Slower layouts, ascending, with the same degrees.
  std::vector<TimedLayout> variations;
  double seconds = 0;  // of a step
  TimeParts parts;     // of the busiest pipeline rank; they add up to `seconds`
  int busiest = 0, fullest = 0;  // pipeline ranks: that of the parts, that of the memory
  ArenaMemory memory;
  std::int64_t needed_bytes = 0;  // of the device's: the arena, driver and communicators; on processors the process
  double bytes_off = 0;           // by which they may be too few
  bool tight = false;             // less than that stays free
  std::optional<ErrorBand> band = {};  // of times; nothing: none is known
  double tokens_per_second = 0, mfu = 0;
  std::string next_limit;  // what would stop it from being faster or larger
  std::vector<std::string> settings;  // changed_settings()
  bool trainable = true;
};

struct SearchResult {
  std::string model, cluster;
  std::vector<std::string> held;  // "parallel.tensor=8"
  int gpus = 0;            // of the cluster
  std::vector<int> ranks;  // numbers of ranks that were tried on processors; none: GPUs
  std::int64_t global_batch = 0, sequence = 0, parameters = 0;
  std::int64_t device_bytes = 0;  // of a GPU; of the machine whose processors they are, 0: not known
  std::vector<FoundLayout> best;  // tight ones last; none a variation of another that is as tight
  std::vector<FoundLayout> not_trainable;  // context parallel and hybrid sharded: scored by estimates
  std::string less_sure;                   // width_note() of the best
  std::size_t more_not_trainable = 0;      // slower ones, which are counted alone
  Rejections rejections;
  std::size_t layouts = 0, fitting = 0, timed = 0, tight = 0;  // tight ones are among the fitting
  int dry_runs = 0;
  // CPU time of one layout on average: of the `fitting` to bound it, of the `timed` to simulate it. All else is the same whenever
  // the same is searched.
  double bound_seconds = 0, simulation_seconds = 0;
  std::vector<ChoiceTime> best_by_choice;  // by dimension, then ascending

  bool on_processors() const { return !ranks.empty(); }
};

// Throws ConfigError: a cluster with fewer GPUs than one replica takes in any layout (what it would take), a batch that no layout
// divides, what check_cluster_size refuses, ranks that a machine's processors cannot be.
SearchResult search_layouts(const SearchRequest& request);

// Bytes of a GPU that arenas may take: without the driver's context and communicators.
std::int64_t usable_bytes(const GpuRates& gpu, const ModelConfig& model, const SearchLayout& layout);

}  // namespace trident

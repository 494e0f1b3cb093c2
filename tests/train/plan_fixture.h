// Layouts of the demo that plans are tried with.
#pragma once

#include <string>
#include <vector>

#include "planner/predict/cluster_forecast.h"
#include "planner/price/cluster.h"
#include "train/config/option_values.h"
#include "train/config/train_config.h"

namespace trident::testing {

using Settings = std::vector<std::string>;

inline TrainConfig demo(const Settings& settings = {}, const std::string& file = "demo_2dp_4pp_4tp.json") {
  OptionValues values;
  return load_train_config(TRIDENT_SOURCE_DIR "/configs/" + file, settings, values);
}

inline const std::vector<Settings>& layouts() {
  static const std::vector<Settings> all{{},
                                         {"recompute.policy=full"},
                                         {"recompute.policy=selective", "parallel.zero=zero3"},
                                         {"parallel.schedule=interleaved", "parallel.virtual_stages=2"},
                                         {"parallel=8DP x 1PP x 4TP", "parallel.zero=shard_grad_op", "batch.global=64"},
                                         {"parallel=1DP", "parallel.sequence_parallel=false"}};
  return all;
}

inline PlanHardware h100() { return hardware_of(find_cluster(shipped_price_book(), "h100_sxm_ndr")); }

inline ClusterForecast planned(const Settings& settings = {}, const std::string& file = "demo_2dp_4pp_4tp.json") {
  return plan_on(h100(), demo(settings, file), 0);
}

}  // namespace trident::testing

// The hardware profiles, clusters and stacks that prices are looked up in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/price/cluster.h"
#include "planner/price/gpu_rates.h"
#include "planner/published/stack.h"

namespace trident {

struct PriceBook {
  std::vector<GpuRates> hardware;
  std::vector<Cluster> clusters;
  std::vector<TrainingStack> stacks;
};

// Those of configs/hardware, configs/clusters and configs/stacks, which the program carries within itself.
PriceBook shipped_price_book();

// Those of the .json files in `folder`/hardware, `folder`/stacks and, if there is one, `folder`/clusters. Throws ConfigError: a
// folder that is missing or empty, a bad file.
PriceBook read_price_book(const std::string& folder);

// A shipped file's text by its name in the repository, "configs/hardware/h100_sxm.json".
struct ShippedText {
  std::string_view name;
  std::string_view text;
};
std::vector<ShippedText> shipped_hardware_texts();
std::vector<ShippedText> shipped_cluster_texts();
std::vector<ShippedText> shipped_stack_texts();

}  // namespace trident

// The hardware profiles and clusters that prices are looked up in.
#pragma once

#include <string_view>
#include <vector>

#include "planner/price/cluster.h"
#include "planner/price/gpu_rates.h"

namespace trident {

struct PriceBook {
  std::vector<GpuRates> hardware;
  std::vector<Cluster> clusters;
};

// Has the texts of configs/hardware and configs/clusters, which the program carries within itself.
PriceBook shipped_price_book();

// A shipped file's text by its name in the repository, "configs/hardware/h100_sxm.json".
struct ShippedText {
  std::string_view name;
  std::string_view text;
};
std::vector<ShippedText> shipped_hardware_texts();
std::vector<ShippedText> shipped_cluster_texts();

}  // namespace trident

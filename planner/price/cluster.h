// GPUs in nodes, and the network between these: what a layout is priced on.
//
// A cluster is a JSON file: `name`, `hardware` (the GPU's file in configs/hardware without .json, or the path of a file, seen from
// this one), `gpus_per_node`, and what differs from the hardware file: `device_gb` (10^9 bytes that the device has in all), members
// of `nvlink` and of `network` under that file's names. Numbers are {"value": ..., "source": ...} as there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "parallel/grid/process_grid.h"
#include "planner/price/collective_cost.h"
#include "planner/price/gpu_rates.h"

namespace trident {

struct PriceBook;

inline constexpr int kMostGpus = kMaxWorldSize;  // of a job that is planned, and as many ranks

struct Cluster {
  std::string file;  // "h100_sxm_ndr": how a user names it
  std::string name;
  GpuRates gpu;      // with what the cluster's file changes; of other memory than the GPU has "48 GB at rates of A10-24GB"
  int gpus_per_node = 8;
  ClusterLinks links;  // those of `gpu`; its gpus_per_node are those that one NVLink fabric joins
};

// A cluster of the book by its file's name without .json, or the file at a path (with a '/' or .json in it). Throws ConfigError: an
// unknown name (the message lists those that there are), a bad file.
Cluster find_cluster(const PriceBook& book, std::string_view name_or_path);

// `hardware` is looked for in `book`; `path` is the file's, and begins messages. Throws ConfigError: a key unknown, missing or out
// of range, a number without source, hardware that is not there.
Cluster cluster_from_json(const PriceBook& book, const JsonValue& object, const std::string& path);

// Throws ConfigError: GPUs that are no whole nodes, unless they are a part of one, or fewer than one replica of the model takes.
void check_cluster_size(const Cluster& cluster, int gpus, int gpus_of_a_replica);

// The hardware profiles and clusters that prices are looked up in.
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

#include "planner/price/cluster.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "core/check.h"
#include "core/nearest_name.h"
#include "planner/price/kept_profile.h"
#include "planner/price/sourced_object.h"

namespace trident {
namespace {

constexpr std::string_view kExtension = ".json";

bool is_path(std::string_view name) { return name.find('/') != name.npos || name.ends_with(kExtension); }

// `names`: those besides `entries`, which have a `file`.
template <class Entry>
[[noreturn]] void refuse_name(std::string_view what, std::string_view name, const std::vector<Entry>& entries,
                              std::vector<std::string_view> names = {}) {
  for (const Entry& entry : entries) names.push_back(entry.file);
  const std::string wrong = name.empty() ? fmt::format("{}: missing", what)
                                         : fmt::format("{} = {}: there is no such one", what, in_quotes(name));
  throw ConfigError(fmt::format("{}; write the path of a file, or one of {}{}", wrong, fmt::join(names, ", "),
                                name_hint(name, names)));
}

GpuRates find_hardware(const PriceBook& book, const std::string& name, const std::string& path) {
  if (is_path(name)) {
    const std::filesystem::path file = std::filesystem::path(path).parent_path() / name;
    return gpu_rates_from_json(read_json_file(file.string()), file.string());
  }
  for (const GpuRates& gpu : book.hardware)
    if (gpu.file == name) return gpu;
  if (const GpuRates* gpu = find_profile(book.hardware, name)) return *gpu;
  refuse_name(path + ".hardware", name, book.hardware);
}

}  // namespace

Cluster cluster_from_json(const PriceBook& book, const JsonValue& value, const std::string& path) {
  SourcedObject object(value, path);
  Cluster cluster;
  cluster.file = std::filesystem::path(path).stem().string();
  cluster.name = object.text("name");
  cluster.gpu = find_hardware(book, object.text("hardware"), path);
  cluster.gpus_per_node = object.whole_number("gpus_per_node", 1, 1024);
  if (object.has("device_gb")) {  // no such GPU is sold: its name says what is known of it
    const double gigabytes = object.number("device_gb", 1, 1e4);
    cluster.gpu.name = fmt::format("{:g} GB at rates of {}", gigabytes, cluster.gpu.name);
    cluster.gpu.device_bytes = 1e9 * gigabytes;
  }
  if (object.has("nvlink")) change_link(object.object("nvlink"), cluster.gpu.nvlink);
  if (object.has("network")) change_link(object.object("network"), cluster.gpu.network);
  object.finish();
  cluster.links = {std::max(cluster.gpus_per_node, cluster.gpu.nvlink_domain), cluster.gpu.nvlink, cluster.gpu.network};
  return cluster;
}

Cluster find_cluster(const PriceBook& book, std::string_view name_or_path) {
  for (const Cluster& cluster : book.clusters)
    if (cluster.file == name_or_path) return cluster;
  if (!is_path(name_or_path)) refuse_name("cluster", name_or_path, book.clusters, {"cpu", kThisMachine});
  const std::string path(name_or_path);
  return cluster_from_json(book, read_json_file(path), path);
}

void check_cluster_size(const Cluster& cluster, int gpus, int gpus_of_a_replica) {
  if (gpus < 1 || (gpus > cluster.gpus_per_node && gpus % cluster.gpus_per_node != 0))
    throw ConfigError(fmt::format("{} GPUs: nodes of {} have {} each; ask for whole nodes, or for a part of one", gpus,
                                  cluster.name, cluster.gpus_per_node));
  if (gpus < gpus_of_a_replica)
    throw ConfigError(
        fmt::format("{} GPUs: one replica of the model takes {} (tensor x context x pipeline); ask for more, or lower a "
                    "degree",
                    gpus, gpus_of_a_replica));
}

PriceBook shipped_price_book() {
  PriceBook book;
  for (const ShippedText& file : shipped_hardware_texts())
    book.hardware.push_back(gpu_rates_from_json(parse_json(file.text, file.name), file.name));
  for (const ShippedText& file : shipped_cluster_texts())
    book.clusters.push_back(cluster_from_json(book, parse_json(file.text, file.name), std::string(file.name)));
  return book;
}

}  // namespace trident

#include "plan/hardware_profile.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>

#include "core/check.h"
#include "core/json_reader.h"
#include "core/nearest_name.h"

namespace trident {
namespace {

// Groups have a constant for each data type.
constexpr std::array<std::string_view, 2> kGroups{"peak_tflops", "best_matmul_tflops"};
constexpr std::array<std::string_view, 4> kDataTypes{"fp32", "bf16", "fp16", "fp8"};
constexpr std::array<std::string_view, 5> kConstants{"memory_gb", "memory_tb_s", "nvlink_gb_s", "all_reduce_bus_gb_s",
                                                     "context_gb"};

JsonValue read_object(const std::string& path) {
  JsonValue object = read_json_file(path, {.comments = JsonComments::kAllowed, .max_depth = 8});
  if (!object.is_object()) throw ConfigError(fmt::format("{}: this is {}; write an object", path, describe(object.kind())));
  return object;
}

template <std::size_t N>
void require_known(const std::string& key, const std::array<std::string_view, N>& known, const std::string& path) {
  if (std::find(known.begin(), known.end(), key) != known.end()) return;
  const std::string_view near = likely_name(key, {known.begin(), known.end()});
  throw ConfigError(fmt::format("{}: {}: unknown key; {}", path, in_quotes(key),
                                near.empty() ? "remove it" : fmt::format("did you mean {}?", near)));
}

std::string name_of(const JsonValue& object, std::string_view key, const std::string& path) {
  const JsonValue* name = object.find(key);
  if (!name || !name->is_string() || name->as_string().empty())
    throw ConfigError(fmt::format("{}: {}: missing; write a name", path, key));
  return name->as_string();
}

SourcedNumber sourced_number(const JsonValue& value, std::string_view key, const std::string& path) {
  if (!value.is_object()) throw ConfigError(fmt::format("{}: {}: must be {{\"value\": ..., \"source\": ...}}", path, key));
  for (const JsonMember& member : value.members())
    require_known(member.key, std::array<std::string_view, 2>{"value", "source"}, fmt::format("{}: {}", path, key));
  const JsonValue* number = value.find("value");
  if (!number || !number->is_number() || !(number->as_number() > 0))
    throw ConfigError(fmt::format("{}: {}.value: must be a number above 0", path, key));
  const JsonValue* source = value.find("source");
  if (!source || !source->is_string() || source->as_string().empty())
    throw ConfigError(fmt::format("{}: {}.source: missing; say where {} comes from", path, key, number->as_number()));
  return {number->as_number(), source->as_string()};
}

}  // namespace

const SourcedNumber& HardwareProfile::at(std::string_view key) const {
  const auto found = constants_.find(std::string(key));
  if (found == constants_.end())
    throw ConfigError(fmt::format("profile {} has no {}; add it with its source to {}", name_, key, path_));
  return found->second;
}

HardwareProfile read_hardware_profile(const std::string& path) {
  const JsonValue object = read_object(path);
  HardwareProfile profile;
  profile.path_ = path;
  profile.name_ = name_of(object, "name", path);
  for (const auto& [key, value] : object.members()) {
    if (key == "name") continue;
    if (std::find(kGroups.begin(), kGroups.end(), key) == kGroups.end()) {
      require_known(key, kConstants, path);
      profile.constants_[key] = sourced_number(value, key, path);
      continue;
    }
    if (!value.is_object()) throw ConfigError(fmt::format("{}: {}: must be an object with a constant by data type", path, key));
    for (const auto& [type, constant] : value.members()) {
      const std::string whole = key + '.' + type;
      require_known(type, kDataTypes, fmt::format("{}: {}", path, key));
      profile.constants_[whole] = sourced_number(constant, whole, path);
    }
  }
  profile.at("memory_gb");
  return profile;
}

Cluster read_cluster(const std::string& path) {
  const JsonValue object = read_object(path);
  for (const auto& [key, value] : object.members())
    require_known(key, std::array<std::string_view, 4>{"name", "profile", "gpus_per_node", "nic_gb_s_per_gpu"}, path);
  Cluster cluster;
  cluster.name = name_of(object, "name", path);
  const std::string profile = name_of(object, "profile", path);
  if (profile.find('/') != profile.npos)
    throw ConfigError(fmt::format("{}: profile = {}: the name of a file of profiles/; write it without folder and .json", path,
                                  in_quotes(profile)));
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  cluster.gpu = read_hardware_profile((folder / ".." / "profiles" / (profile + ".json")).lexically_normal().string());
  constexpr std::int64_t kMostGpus = 1024;
  const JsonValue* gpus = object.find("gpus_per_node");
  if (!gpus || !gpus->is_integer() || gpus->as_integer() < 1 || gpus->as_integer() > kMostGpus)
    throw ConfigError(fmt::format("{}: gpus_per_node: must be a whole number from 1 to {}", path, kMostGpus));
  cluster.gpus_per_node = static_cast<int>(gpus->as_integer());
  const JsonValue* nic = object.find("nic_gb_s_per_gpu");
  if (!nic) throw ConfigError(fmt::format("{}: nic_gb_s_per_gpu: missing; write it with its source", path));
  cluster.nic_gb_s_per_gpu = sourced_number(*nic, "nic_gb_s_per_gpu", path);
  return cluster;
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

}  // namespace trident

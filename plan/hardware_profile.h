// What a GPU can do and how GPUs are connected: constants from files, each with where it comes from.
//
// configs/profiles/NAME.json is a GPU, configs/clusters/NAME.json nodes of such GPUs. A constant is {"value": NUMBER, "source":
// TEXT}. A constant that a file does not have is not guessed: who asks for it is refused with its name.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace trident {

struct SourcedNumber {
  double value = 0;    // above 0
  std::string source;  // not empty
};

// Units are those of the files' keys: 10^12 operations/s, 10^9 bytes, 10^12 and 10^9 bytes/s.
class HardwareProfile {
 public:
  const std::string& name() const { return name_; }

  // "peak_tflops.bf16": dense rate by data type; "best_matmul_tflops.bf16": of the best product measured; "memory_gb";
  // "memory_tb_s"; "nvlink_gb_s": one way; "all_reduce_bus_gb_s": of a node, in nccl-tests' convention; "context_gb": outside the
  // allocator. Throws ConfigError naming profile, file and key.
  const SourcedNumber& at(std::string_view key) const;
  bool has(std::string_view key) const { return constants_.contains(std::string(key)); }
  const std::map<std::string, SourcedNumber>& constants() const { return constants_; }

 private:
  friend HardwareProfile read_hardware_profile(const std::string& path);
  std::string name_, path_;
  std::map<std::string, SourcedNumber> constants_;
};

// Throws ConfigError naming file and member: no JSON, an unknown key, a value that is no number above 0, no source, no name, no
// memory.
HardwareProfile read_hardware_profile(const std::string& path);

struct Cluster {
  std::string name;
  HardwareProfile gpu;
  int gpus_per_node = 0;
  SourcedNumber nic_gb_s_per_gpu;  // one way
};

// `profile` names a file of the folder profiles/ beside that of `path`. Throws ConfigError likewise.
Cluster read_cluster(const std::string& path);

// Refuses (ConfigError) GPUs that are no whole nodes, unless they are a part of one, and fewer than one model replica takes.
void check_cluster_size(const Cluster& cluster, int gpus, int gpus_of_a_replica);

}  // namespace trident

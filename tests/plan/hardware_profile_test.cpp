// Profiles and clusters: the shipped files, and what is refused.
#include "plan/hardware_profile.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/check.h"
#include "core/file_io.h"
#include "tests/data/temporary_folder.h"

namespace trident {
namespace {

const std::filesystem::path kConfigs = TRIDENT_SOURCE_DIR "/configs";

TEST(HardwareProfiles, ShippedOnesNameTheirSources) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kConfigs / "profiles")) {
    SCOPED_TRACE(entry.path().string());
    const HardwareProfile profile = read_hardware_profile(entry.path().string());
    for (const auto& [key, constant] : profile.constants()) EXPECT_GE(constant.source.size(), 10u) << key;
    // What is achieved is below what is possible.
    for (const char* type : {"bf16", "fp8"})
      if (profile.has(std::string("best_matmul_tflops.") + type)) {
        EXPECT_LT(profile.at(std::string("best_matmul_tflops.") + type).value,
                  profile.at(std::string("peak_tflops.") + type).value);
      }
    ++files;
  }
  EXPECT_EQ(files, 4);
}

TEST(HardwareProfiles, ShippedClustersHaveTheirGpus) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kConfigs / "clusters")) {
    const Cluster cluster = read_cluster(entry.path().string());
    EXPECT_EQ(cluster.gpus_per_node, 8) << entry.path();
    EXPECT_GT(cluster.gpu.at("nvlink_gb_s").value, cluster.nic_gb_s_per_gpu.value) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 4);
  const Cluster h100 = read_cluster((kConfigs / "clusters/h100_sxm_ndr.json").string());
  EXPECT_EQ(h100.gpu.name(), "H100-SXM5-80GB");
  EXPECT_EQ(h100.gpu.at("peak_tflops.bf16").value, 989);
  EXPECT_EQ(h100.nic_gb_s_per_gpu.value, 50);
}

class Refusals : public testing::Test {
 protected:
  Refusals() {
    create_folder(folder_ / "profiles");
    create_folder(folder_ / "clusters");
  }
  template <class Read>
  std::string refusal(Read&& read) const {
    try {
      read();
    } catch (const ConfigError& error) {
      const std::string what = error.what();
      return what.substr(what.rfind('/') + 1);
    }
    return "none";
  }
  std::string profile(const std::string& text) const {
    write_file(folder_ / "profiles/p.json", text);
    return refusal([&] { read_hardware_profile(folder_ / "profiles/p.json"); });
  }
  std::string cluster(const std::string& text) const {
    write_file(folder_ / "profiles/p.json", R"({"name": "P", "memory_gb": {"value": 1, "source": "s"}})");
    write_file(folder_ / "clusters/c.json", text);
    return refusal([&] { read_cluster(folder_ / "clusters/c.json"); });
  }
  TemporaryFolder folder_;
};

TEST_F(Refusals, OfProfiles) {
  EXPECT_EQ(profile(R"({"name": "P", "memory_gb": {"value": 1, "source": "s"}})"), "none");
  EXPECT_EQ(profile("[]"), "p.json: this is a list; write an object");
  EXPECT_EQ(profile("{}"), "p.json: name: missing; write a name");
  EXPECT_EQ(profile(R"({"name": "P"})"),
            "p.json");  // behind the last '/' of "profile P has no memory_gb; add it ... to .../p.json"
  EXPECT_EQ(profile(R"({"name": "P", "memory_gb": 80})"), R"(p.json: memory_gb: must be {"value": ..., "source": ...})");
  EXPECT_EQ(profile(R"({"name": "P", "memory_gb": {"value": 80}})"), "p.json: memory_gb.source: missing; say where 80 comes from");
  EXPECT_EQ(profile(R"({"name": "P", "memory_gb": {"value": -80, "source": "s"}})"),
            "p.json: memory_gb.value: must be a number above 0");
  EXPECT_EQ(profile(R"({"name": "P", "memory_gb": {"value": 80, "source": "s", "from": 1}})"),
            "p.json: memory_gb: \"from\": unknown key; remove it");
  EXPECT_EQ(profile(R"({"name": "P", "memory_bg": {"value": 80, "source": "s"}})"),
            "p.json: \"memory_bg\": unknown key; did you mean memory_gb?");
  EXPECT_EQ(profile(R"({"name": "P", "peak_tflops": 3})"), "p.json: peak_tflops: must be an object with a constant by data type");
  EXPECT_EQ(profile(R"({"name": "P", "peak_tflops": {"bf61": {"value": 80, "source": "s"}}})"),
            "p.json: peak_tflops: \"bf61\": unknown key; did you mean bf16?");
  const HardwareProfile a100 = read_hardware_profile((kConfigs / "profiles/a100_sxm_80gb.json").string());
  try {
    a100.at("peak_tflops.fp8");
    ADD_FAILURE() << "an A100 has no fp8 products";
  } catch (const ConfigError& error) {
    EXPECT_TRUE(
        std::string(error.what()).starts_with("profile A100-SXM4-80GB has no peak_tflops.fp8; add it with its source to /"));
  }
}

TEST_F(Refusals, OfClusters) {
  const std::string nic = R"("nic_gb_s_per_gpu": {"value": 50, "source": "s"})";
  EXPECT_EQ(cluster(R"({"name": "C", "profile": "p", "gpus_per_node": 8, )" + nic + "}"), "none");
  EXPECT_EQ(cluster(R"({"name": "C", "gpus_per_node": 8, )" + nic + "}"), "c.json: profile: missing; write a name");
  EXPECT_EQ(cluster(R"({"name": "C", "profile": "p", "gpus_per_node": 0, )" + nic + "}"),
            "c.json: gpus_per_node: must be a whole number from 1 to 1024");
  EXPECT_EQ(cluster(R"({"name": "C", "profile": "p", "gpus_per_node": 8})"),
            "c.json: nic_gb_s_per_gpu: missing; write it with its source");
  EXPECT_EQ(cluster(R"({"name": "C", "profile": "p", "gpu_per_node": 8})"),
            "c.json: \"gpu_per_node\": unknown key; did you mean gpus_per_node?");
  EXPECT_NE(cluster(R"({"name": "C", "profile": "../p", "gpus_per_node": 8, )" + nic + "}"), "none");
  EXPECT_NE(cluster(R"({"name": "C", "profile": "q", "gpus_per_node": 8, )" + nic + "}"), "none") << "there is no profile q";
}

TEST_F(Refusals, OfSizes) {
  const Cluster h100 = read_cluster((kConfigs / "clusters/h100_sxm_ndr.json").string());
  for (const int gpus : {1, 4, 8, 16, 1024}) check_cluster_size(h100, gpus, 1);
  EXPECT_EQ(refusal([&] { check_cluster_size(h100, 12, 1); }),
            "12 GPUs: nodes of H100 nodes with NDR have 8 each; ask for whole nodes, or for a part of one");
  EXPECT_EQ(refusal([&] { check_cluster_size(h100, 0, 1); }).substr(0, 7), "0 GPUs:");
  EXPECT_EQ(refusal([&] { check_cluster_size(h100, 16, 32); }),
            "16 GPUs: one replica of the model takes 32 (tensor x context x pipeline); ask for more, or lower a degree");
}

}  // namespace
}  // namespace trident

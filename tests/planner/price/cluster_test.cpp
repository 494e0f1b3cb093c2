// Clusters: the shipped files, those that users write, and what is refused.
#include "planner/price/cluster.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

#include "core/check.h"
#include "core/file_io.h"
#include "planner/price/collective_cost.h"
#include "planner/price/kernel_cost.h"
#include "planner/price/log_table.h"
#include "planner/published/published_book.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

const PriceBook& book() {
  static const PriceBook shipped = shipped_price_book();
  return shipped;
}

TEST(Clusters, ShippedOnesAreFoundByName) {
  std::set<std::string> names;
  for (const Cluster& cluster : book().clusters) {
    SCOPED_TRACE(cluster.file);
    EXPECT_TRUE(names.insert(cluster.file).second);
    EXPECT_EQ(find_cluster(book(), cluster.file).name, cluster.name);
    EXPECT_GT(cluster.links.nvlink.bytes_per_s, cluster.links.network.bytes_per_s);
    EXPECT_GE(cluster.links.gpus_per_node, cluster.gpus_per_node);
  }
  EXPECT_GE(names.size(), 7u);
  const Cluster h100 = find_cluster(book(), "h100_sxm_ndr");
  EXPECT_EQ(h100.gpu.name, "H100-SXM5-80GB");
  EXPECT_DOUBLE_EQ(h100.links.network.bytes_per_s, 50e9);
  EXPECT_DOUBLE_EQ(h100.links.nvlink.bytes_per_s, 450e9);
  EXPECT_EQ(h100.links.gpus_per_node, 8);
  EXPECT_EQ(find_cluster(book(), "gb200_nvl72").gpus_per_node, 4);
  EXPECT_EQ(find_cluster(book(), "gb200_nvl72").links.gpus_per_node, 72) << "one fabric joins 18 nodes";
}

// GPUs of 24, 40 and 80 GB: a device has somewhat less than its name says in GiB.
TEST(Clusters, HaveGpusOfEverySize) {
  const auto gib = [](const char* name) { return find_cluster(book(), name).gpu.device_bytes / 0x1p30; };
  EXPECT_NEAR(gib("a10_pcie"), 23, 1);
  EXPECT_NEAR(gib("a100_sxm_40gb_hdr"), 39.5, 0.5);
  EXPECT_NEAR(gib("a100_sxm_hdr"), 79.5, 0.5);
}

class ClusterFiles : public ::testing::Test {
 protected:
  std::string file(const std::string& text, const std::string& name = "c.json") const {
    write_file(folder_ / name, text);
    return folder_ / name;
  }
  Cluster read(const std::string& text) const { return find_cluster(book(), file(text)); }
  // The message behind the folder's name.
  std::string refusal(const std::string& text) const {
    try {
      read(text);
    } catch (const ConfigError& error) {
      const std::string what = error.what();
      return what.starts_with(folder_.path()) ? what.substr(folder_.path().size() + 1) : what;
    }
    return "none";
  }
  TemporaryFolder folder_;
  const std::string nodes_ = R"("gpus_per_node": {"value": 4, "source": "s"})";
};

TEST_F(ClusterFiles, ChangeTheirHardware) {
  const Cluster plain = read(R"({"name": "C", "hardware": "h100_sxm", )" + nodes_ + "}");
  EXPECT_EQ(plain.file, "c");
  EXPECT_EQ(plain.gpus_per_node, 4);
  EXPECT_EQ(plain.links.gpus_per_node, 4);
  EXPECT_DOUBLE_EQ(plain.links.network.bytes_per_s, 50e9);
  const Cluster slow = read(R"({"name": "C", "hardware": "A100-SXM4-80GB", "device_gb": {"value": 24, "source": "s"}, )" + nodes_ +
                            R"(, "nvlink": {"gb_per_s": {"value": 2.6, "source": "s"}, "fraction": {"value": 1, "source": "s"}},
                            "network": {"hop_us": {"value": 7, "source": "s"}}})");
  EXPECT_DOUBLE_EQ(slow.gpu.device_bytes, 24e9);
  EXPECT_EQ(slow.gpu.name, "24 GB at rates of A100-SXM4-80GB");
  EXPECT_EQ(plain.gpu.name, "H100-SXM5-80GB");
  EXPECT_DOUBLE_EQ(slow.links.nvlink.bytes_per_s, 2.6e9);
  EXPECT_DOUBLE_EQ(slow.gpu.nvlink.bytes_per_s, 2.6e9);
  EXPECT_DOUBLE_EQ(slow.links.nvlink.fraction, 1);
  EXPECT_DOUBLE_EQ(slow.links.nvlink.hop_s, 3.4e-6) << "the hardware's";
  EXPECT_DOUBLE_EQ(slow.links.network.hop_s, 7e-6);
  EXPECT_DOUBLE_EQ(slow.links.network.bytes_per_s, 25e9) << "the hardware's";
  // An all-reduce of 4 GB among four at 2.6 GB/s sends 3/4 of it twice.
  EXPECT_NEAR(all_reduce_seconds(slow.links, {4, 1}, 4e9), 6 / 2.6, 1e-3);
}

TEST_F(ClusterFiles, NameHardwareBesideThem) {
  std::string gpu(shipped_hardware_texts().front().text);
  const std::size_t at = gpu.find("\"name\": \"");
  ASSERT_NE(at, std::string::npos);
  gpu.insert(at + 9, "My ");
  file(gpu, "mine.json");
  EXPECT_TRUE(read(R"({"name": "C", "hardware": "mine.json", )" + nodes_ + "}").gpu.name.starts_with("My "));
  EXPECT_NE(refusal(R"({"name": "C", "hardware": "other.json", )" + nodes_ + "}"), "none") << "there is no such file";
}

TEST_F(ClusterFiles, BadOnesAreRefused) {
  EXPECT_EQ(refusal(R"({"name": "C", "hardware": "h100_sxm", )" + nodes_ + "}"), "none");
  EXPECT_EQ(refusal("[]"), "c.json: expected an object, got a list; write an object");
  EXPECT_EQ(refusal(R"({"name": "C", )" + nodes_ + "}"), "c.json.hardware: is missing; no key of these files has a default");
  EXPECT_EQ(refusal(R"({"name": "C", "hardware": "h100_sxm"})"),
            "c.json.gpus_per_node: is missing; no key of these files has a default");
  EXPECT_EQ(refusal(R"({"name": "C", "hardware": "h100_sxm", "gpu_per_node": {"value": 4, "source": "s"}})"),
            "c.json.gpus_per_node: is missing (gpu_per_node, which is there, may be a misspelling of it); no key of these files "
            "has a default");
  EXPECT_EQ(refusal(R"({"name": "C", "hardware": "h100_sxm", "gpus_per_node": 4})"),
            R"(c.json.gpus_per_node: is an integer; write {"value": 4, "source": "where it is from"})");
  EXPECT_EQ(refusal(R"({"name": "C", "hardware": "h100_sxm", "gpus_per_node": {"value": 2.5, "source": "s"}})"),
            "c.json.gpus_per_node: 2.5 is no whole number; write one");
  EXPECT_EQ(refusal(R"({"name": "C", "hardware": "h100_sxm", "gpus_per_node": {"value": 0, "source": "s"}})"),
            "c.json.gpus_per_node: 0 is not in [1, 1024]; write a value of that range, in the unit that the key names");
  EXPECT_EQ(refusal(R"({"name": "C", "hardware": "h100_sxm", "gpus_per_node": {"value": 8}})"),
            "c.json.gpus_per_node.source: is missing; no key of these files has a default");
  EXPECT_EQ(refusal(R"({"name": "C", "hardware": "h100_sxm", "nic": 1, )" + nodes_ + "}"),
            "c.json.nic: is not a key of this object; remove it");
  EXPECT_EQ(refusal(R"({"name": "C", "hardware": "h100_sxm", "network": {"gbps": {"value": 8, "source": "s"}}, )" + nodes_ + "}"),
            "c.json.network.gbps: is not a key of this object; remove it");
  EXPECT_TRUE(refusal(R"({"name": "C", "hardware": "h100_sxn", )" + nodes_ + "}")
                  .starts_with("c.json.hardware = \"h100_sxn\": there is no such one; write the path of a "
                               "file, or one of a100_sxm_40gb, "));
}

TEST_F(ClusterFiles, UnknownNamesListThoseThatThereAre) {
  const std::string what = error_of<ConfigError>([&] { find_cluster(book(), "h200"); });
  expect_parts(what, {"cluster = \"h200\": there is no such one; ", " one of cpu, this-machine, a100_sxm_40gb_hdr, ",
                      "; did you mean \"h200_sxm_ndr\"?"});
  for (const Cluster& cluster : book().clusters) expect_parts(what, {cluster.file});
  EXPECT_THROW(find_cluster(book(), folder_ / "none.json"), ConfigError);
  // A book that a user made has its own, or none.
  PriceBook few;
  few.hardware = book().hardware;
  EXPECT_THROW(find_cluster(few, "h100_sxm_ndr"), ConfigError);
}

TEST(Clusters, OfWrongSizesAreRefused) {
  const Cluster h100 = find_cluster(book(), "h100_sxm_ndr");
  for (const int gpus : {1, 4, 8, 16, 1024}) check_cluster_size(h100, gpus, 1);
  const auto refusal = [&](int gpus, int replica) {
    return error_of<ConfigError>([&] { check_cluster_size(h100, gpus, replica); });
  };
  EXPECT_EQ(refusal(12, 1), "12 GPUs: nodes of H100 nodes with NDR have 8 each; ask for whole nodes, or for a part of one");
  EXPECT_EQ(refusal(0, 1).substr(0, 7), "0 GPUs:");
  EXPECT_EQ(refusal(16, 32),
            "16 GPUs: one replica of the model takes 32 (tensor x context x pipeline); ask for more, or lower a degree");
}

// Profiles and stacks: the shipped ones are whole, and a constant without its source, an unknown or missing key is refused by name.

std::string rates_text() { return std::string(shipped_hardware_texts().front().text); }

std::string refusal_of_profile(const std::string& text) {
  return error_of<ConfigError>([&] { gpu_rates_from_json(parse_json(text, "p.json"), "p.json"); });
}

TEST(GpuRates, ShippedOnesAreReadAndFoundByName) {
  const PublishedBook book = shipped_published_book();
  std::set<std::string> names;
  for (const GpuRates& gpu : book.hardware) EXPECT_TRUE(names.insert(gpu.name).second) << gpu.name;
  for (const char* name : {"A100-SXM4-80GB", "A100-SXM4-40GB", "H100-SXM5-80GB", "H200-SXM-141GB", "B200", "B300", "GB200",
                           "GB300", "V100-16GB", "V100-SXM2/3-32GB", "V100-32GB"})
    ASSERT_NE(find_profile(book.hardware, name), nullptr) << name;
  EXPECT_EQ(find_profile(book.hardware, "A100"), nullptr);
  EXPECT_DOUBLE_EQ(find_profile(book.hardware, "A100-SXM4-80GB")->peak_16bit, 312e12);
  EXPECT_DOUBLE_EQ(find_profile(book.hardware, "H100-SXM5-80GB")->memory_bytes_per_s, 3350e9);
  EXPECT_DOUBLE_EQ(find_profile(book.hardware, "H100-SXM5-80GB")->nvlink.bytes_per_s, 450e9);
}

// The folder of the source tree is what the program carries; each number counts.
TEST(PriceBook, IsReadFromAFolder) {
  const PublishedBook shipped = shipped_published_book(), read = read_published_book(TRIDENT_SOURCE_DIR "/configs");
  ASSERT_EQ(read.hardware.size(), shipped.hardware.size());
  ASSERT_EQ(read.stacks.size(), shipped.stacks.size());
  for (std::size_t i = 0; i < read.hardware.size(); ++i) EXPECT_EQ(read.hardware[i].name, shipped.hardware[i].name);
  for (std::size_t i = 0; i < read.stacks.size(); ++i) EXPECT_EQ(read.stacks[i].issue_s, shipped.stacks[i].issue_s);
  EXPECT_THROW(read_published_book(TRIDENT_SOURCE_DIR "/planner"), ConfigError);
}

TEST(GpuRates, EveryConstantNamesItsSource) {
  std::size_t sources = 0;
  for (const ShippedText& file : shipped_hardware_texts()) {
    std::string text(file.text);
    for (std::size_t at = 0; (at = text.find("\"source\": \"", at)) != std::string::npos; ++at, ++sources)
      EXPECT_GT(text.find('"', at + 11) - (at + 11), 6u) << file.name;
  }
  EXPECT_GT(sources, 200u);
  EXPECT_EQ(refusal_of_profile(replaced(rates_text(), "\"source\": \"NVIDIA A100 data sheet, dense\"", "\"source\": \"\"")),
            "p.json.peak_16bit_tflops: names no source; every constant says where it is from");
}

TEST(GpuRates, BadOnesAreRefusedByKey) {
  EXPECT_EQ(refusal_of_profile(rates_text()), "no error");
  EXPECT_EQ(refusal_of_profile(replaced(rates_text(), "\"row_fraction\"", "\"row_fractions\"")),
            "p.json.row_fraction: is missing (row_fractions, which is there, may be a misspelling of it); no key of these files "
            "has a default");
  EXPECT_EQ(refusal_of_profile(replaced(rates_text(), "\"aliases\"", "\"colour\": 1, \"aliases\"")),
            "p.json.colour: is not a key of this object; remove it");
  EXPECT_EQ(refusal_of_profile(replaced(rates_text(), "\"value\": 312", "\"value\": -312")),
            "p.json.peak_16bit_tflops: -312 is not in [1, 100000]; write a value of that range, in the unit that the key names");
  EXPECT_EQ(refusal_of_profile(replaced(rates_text(), "\"value\": 312", "\"value\": \"fast\"")),
            "p.json.peak_16bit_tflops: its value must be a number; write one");
  EXPECT_EQ(refusal_of_profile("[]"), "p.json: expected an object, got a list; write an object");
}

TEST(Stack, IsFoundByFrameworkAndYear) {
  const PublishedBook book = shipped_published_book();
  ASSERT_NE(find_stack(book.stacks, "megatron_lm", 2023), nullptr);
  EXPECT_EQ(find_stack(book.stacks, "megatron_lm", 2023), find_stack(book.stacks, "megatron_lm", 0));
  EXPECT_NE(find_stack(book.stacks, "megatron_core_te", 2025), find_stack(book.stacks, "megatron_lm", 2023));
  EXPECT_EQ(find_stack(book.stacks, "mesh", 2023), nullptr);
  std::vector<TrainingStack> two{*find_stack(book.stacks, "megatron_lm", 2023), *find_stack(book.stacks, "megatron_lm", 2023)};
  two[0].first_year = 2019, two[0].last_year = 2021, two[1].first_year = 2022, two[1].last_year = 2024;
  EXPECT_EQ(find_stack(two, "megatron_lm", 2020), &two[0]);
  EXPECT_EQ(find_stack(two, "megatron_lm", 2024), &two[1]);
  EXPECT_EQ(find_stack(two, "megatron_lm", 2030), &two[1]) << "a year beyond them is the latest's";
}

TEST(Stack, GptKeptItsScoresByDefault) {
  const PublishedBook book = shipped_published_book();
  const TrainingStack& megatron = *find_stack(book.stacks, "megatron_lm", 2023);
  const auto ran = [&](const char* named, bool plain_block, int year) {
    return attention_that_ran(megatron, named, plain_block, year);
  };
  EXPECT_EQ(ran("flash2", true, 2023), "megatron_fused_softmax");
  EXPECT_EQ(ran("flash2", true, 2024), "flash2");
  EXPECT_EQ(ran("flash2", true, 0), "flash2") << "nobody knows when";
  EXPECT_EQ(ran("flash2", false, 2023), "flash2") << "no GPT";
  EXPECT_EQ(ran("unfused", true, 2023), "unfused") << "keeps them anyway";
  EXPECT_EQ(attention_that_ran(*find_stack(book.stacks, "pytorch_fsdp1", 2023), "flash2", true, 2023), "flash2");
}

TEST(Stack, BadOnesAreRefusedByKey) {
  const std::string text(shipped_stack_texts().front().text);
  const auto refusal = [](const std::string& changed) {
    return error_of<ConfigError>([&] { stack_from_json(parse_json(changed, "s.json"), "s.json"); });
  };
  EXPECT_EQ(refusal(text), "no error");
  EXPECT_EQ(refusal(replaced(text, "\"issue_us\"", "\"issue\"")),
            "s.json.host.issue_us: is missing; no key of these files has a default");
  EXPECT_EQ(refusal(R"({"name": "S", "frameworks": []})"), "s.json.frameworks: is empty; write the names that tables have for it");
  EXPECT_EQ(refusal(replaced(text, "\"overlap_reduce\": {\n      \"value\": true", "\"overlap_reduce\": {\n      \"value\": 1")),
            "s.json.communication.overlap_reduce: its value must be true or false; write one of them");
}

// Kernels and collectives against numbers worked out by hand.

GpuRates round_gpu() {
  GpuRates gpu;
  gpu.name = "round";
  gpu.peak_16bit = 100e12;
  gpu.peak_fp8 = 200e12;
  gpu.memory_bytes_per_s = 1e12;
  gpu.multiprocessors = 100;
  gpu.row_fraction = 0.5;
  gpu.score_fraction = 0.5;
  gpu.kernel_start_s = 1e-6;
  gpu.gemm.sustained = 0.5;
  gpu.attention = {{"flash2", 0.25, 0.2}};
  return gpu;
}

TEST(KernelCost, AGemmTakesWavesOfTiles) {
  GpuRates gpu = round_gpu();
  gpu.memory_bytes_per_s = 1e13;  // operands are never what it waits for
  // 256 x 128 tiles: 10 x 10 = one wave of 100; each multiprocessor does 2 x 256 x 128 x 4096 at 0.5e12.
  const double wave = 2.0 * 256 * 128 * 4096 / 0.5e12;
  EXPECT_DOUBLE_EQ(gemm_seconds(gpu, 2560, 1280, 4096), wave + 1e-6);
  // One row of tiles more is a second wave, unless smaller tiles fill it better; never less than the work at the full rate.
  const double more = gemm_seconds(gpu, 2561, 1280, 4096) - 1e-6;
  EXPECT_GT(more, wave);
  EXPECT_LE(more, 2 * wave);
  // 300 x 12800: 3 x 100 tiles of 128 x 128 are three waves of half tiles at 0.94 of the rate; other shapes take longer.
  EXPECT_NEAR(gemm_seconds(gpu, 300, 12800, 4096) - 1e-6, 3 * wave / 2 / 0.94, 1e-9 * wave);
  EXPECT_NEAR(gemm_seconds(gpu, 25600, 12800, 4096) - 1e-6, 100 * wave, 1e-9 * wave);
  // `batch` products fill the waves together.
  EXPECT_DOUBLE_EQ(gemm_seconds(gpu, 256, 128, 4096, 100), wave + 1e-6);
}

TEST(KernelCost, AGemmIsNoFasterThanItsOperands) {
  const GpuRates gpu = round_gpu();
  const double bytes = 2.0 * (1e6 * 8 + 8 * 128 + 1e6 * 128);
  EXPECT_DOUBLE_EQ(gemm_seconds(gpu, 1e6, 128, 8), bytes / 0.5e12 + 1e-6);
}

// A tile takes no longer besides its inner loop where products are slower; operands are twice as large.
TEST(KernelCost, Fp32AndTf32HaveTheirOwnPeaks) {
  GpuRates gpu = round_gpu();
  gpu.memory_bytes_per_s = 1e13;
  gpu.gemm.inner_overhead = 512;
  const auto seconds = [&](double k, MathFormat format) { return gemm_seconds(gpu, 25600, 12800, k, 1, 1, format) - 1e-6; };
  const double fixed = seconds(0, MathFormat::k16Bit), inner = seconds(4096, MathFormat::k16Bit) - fixed;
  EXPECT_NEAR(seconds(4096, MathFormat::kFp32), fixed + 16 * inner, 1e-9) << "no word of fp32: a 16th";
  EXPECT_EQ(seconds(4096, MathFormat::kTf32), seconds(4096, MathFormat::kFp32)) << "no word of tf32";
  gpu.peak_fp32 = 10e12;
  EXPECT_NEAR(seconds(4096, MathFormat::kFp32), fixed + 10 * inner, 1e-9);
  gpu.peak_tf32 = 50e12;
  EXPECT_NEAR(seconds(4096, MathFormat::kTf32), fixed + 2 * inner, 1e-9);
  gpu.gemm.inner_overhead = 0;
  gpu.memory_bytes_per_s = 1e12;
  const double bytes = 4.0 * (1e6 * 8 + 8 * 128 + 1e6 * 128);
  EXPECT_DOUBLE_EQ(gemm_seconds(gpu, 1e6, 128, 8, 1, 1, MathFormat::kTf32), bytes / 0.5e12 + 1e-6);
}

TEST(KernelCost, ShortInnerDimensionsAndRatesCost) {
  GpuRates gpu = round_gpu();
  const double plain = gemm_seconds(gpu, 25600, 12800, 512) - 1e-6;
  gpu.gemm.inner_overhead = 512;
  EXPECT_NEAR(gemm_seconds(gpu, 25600, 12800, 512) - 1e-6, 2 * plain, 1e-12);
  gpu.gemm.inner_overhead = 0;
  EXPECT_NEAR(gemm_seconds(gpu, 25600, 12800, 512, 1, 0.5) - 1e-6, 2 * plain, 1e-12);
  EXPECT_NEAR(gemm_seconds(gpu, 25600, 12800, 4096, 1, 1, MathFormat::kFp8) - 1e-6,
              (gemm_seconds(gpu, 25600, 12800, 4096) - 1e-6) / 2, 1e-9);
}

TEST(KernelCost, FusedAttentionDoesTheCausalHalf) {
  const GpuRates gpu = round_gpu();
  EXPECT_DOUBLE_EQ(fused_attention_seconds(gpu, "flash2", 1e12, false), 0.5e12 / 25e12 + 1e-6);
  EXPECT_DOUBLE_EQ(fused_attention_seconds(gpu, "flash2", 1e12, true), 1.25e12 / 20e12 + 1e-6);
  EXPECT_THROW(fused_attention_seconds(gpu, "flash9", 1e12, false), ConfigError);
}

ClusterLinks round_links() {
  ClusterLinks links;
  links.gpus_per_node = 8;
  links.nvlink = {.bytes_per_s = 200e9, .fraction = 0.5, .message_fraction = 0.8, .hop_s = 1e-6, .start_s = 5e-6};
  links.network = {.bytes_per_s = 20e9, .fraction = 0.5, .message_fraction = 0.8, .hop_s = 10e-6, .start_s = 50e-6};
  return links;
}

TEST(CollectiveCost, RingsStayWithinANode) {
  const ClusterLinks links = round_links();
  EXPECT_DOUBLE_EQ(all_reduce_seconds(links, {8, 1}, 8e9), 5e-6 + 14 * 1e-6 + 14e9 / 100e9);
  EXPECT_DOUBLE_EQ(gather_seconds(links, {8, 1}, 8e9), 5e-6 + 7 * 1e-6 + 7e9 / 100e9);
  EXPECT_EQ(all_reduce_seconds(links, {1, 1}, 8e9), 0);
  EXPECT_EQ(gather_seconds(links, {8, 1}, 0), 0);
}

TEST(CollectiveCost, RingsBetweenNodesShareTheGpusOfTheirRanks) {
  const ClusterLinks links = round_links();
  // 16 ranks on 2 nodes: 8 GPUs of 10 GB/s carry it; 14 hops within, one between.
  EXPECT_DOUBLE_EQ(gather_seconds(links, {16, 1}, 16e9), 50e-6 + 14 * 1e-6 + 10e-6 + 15e9 / 80e9);
  // 4 ranks, one in a node each: one GPU.
  EXPECT_DOUBLE_EQ(gather_seconds(links, {4, 8}, 4e9), 50e-6 + 3 * 10e-6 + 3e9 / 10e9);
  // 4 ranks of 12 on nodes of 6: the second group has two in a node and two in the other, which the first 6 ranks alone have not.
  ClusterLinks six = links;
  six.gpus_per_node = 6;
  EXPECT_DOUBLE_EQ(gather_seconds(six, {4, 1, 12}, 4e9), 50e-6 + 2 * 1e-6 + 10e-6 + 3e9 / 20e9);
  EXPECT_DOUBLE_EQ(gather_seconds(six, {3, 1, 12}, 4e9), gather_seconds(six, {3, 1}, 4e9));
  EXPECT_DOUBLE_EQ(gather_seconds(six, {2, 2, 12}, 4e9), 50e-6 + 10e-6 + 2e9 / 10e9);
  EXPECT_DOUBLE_EQ(gather_seconds(six, {4, 1, 6}, 4e9), gather_seconds(six, {4, 1}, 4e9));
  // tp 8 across two nodes of 4 is far slower than within one.
  ClusterLinks small = links;
  small.gpus_per_node = 4;
  EXPECT_GT(all_reduce_seconds(small, {8, 1}, 1e9), 2 * all_reduce_seconds(links, {8, 1}, 1e9));
}

TEST(CollectiveCost, MessagesCostTheirBytes) {
  const ClusterLinks links = round_links();
  EXPECT_DOUBLE_EQ(message_seconds(links, {4, 1}, 16e6), 1e-6 + 16e6 / 160e9);
  EXPECT_DOUBLE_EQ(message_seconds(links, {4, 8}, 16e6), 10e-6 + 16e6 / 16e9);
  EXPECT_EQ(message_seconds(links, {1, 8}, 16e6), 0);
}

TEST(CollectiveCost, OverlapSlowsBothSidesWhileBothRun) {
  EXPECT_DOUBLE_EQ(overlapped_seconds(10, 0, 1.2, 1.5), 10);
  EXPECT_DOUBLE_EQ(overlapped_seconds(0, 10, 1.2, 1.5), 10);
  // 2 s of traffic take 3 s beside compute, which does 3 / 1.2 = 2.5 s of its own meanwhile; 7.5 s remain.
  EXPECT_DOUBLE_EQ(overlapped_seconds(10, 2, 1.2, 1.5), 10.5);
  // Compute ends first, after 1.2 s, in which 0.8 s of traffic passed.
  EXPECT_DOUBLE_EQ(overlapped_seconds(1, 10, 1.2, 1.5), 1.2 + 9.2);
}

// Tables of measured times: powers are met between points, small sizes cost what the smallest does, and nothing gets cheaper by
// growing.

LogTable power_law() {  // 3 x^2 y
  const std::vector<double> x{1, 4, 10}, y{2, 8};
  std::vector<double> values;
  for (const double a : x)
    for (const double b : y) values.push_back(3 * a * a * b);
  return {{x, y}, values, {2, 1}};
}

TEST(LogTable, MeetsAPowerLawBetweenItsPointsAndBeyondThem) {
  const LogTable table = power_law();
  for (const double x : {1.0, 1.7, 4.0, 9.0, 10.0, 35.0})
    for (const double y : {2.0, 3.3, 8.0, 50.0})
      EXPECT_NEAR(table.at(std::array{x, y}) / (3 * x * x * y), 1, 1e-12) << x << ' ' << y;
}

TEST(LogTable, StaysWhatItIsBelowTheFirstPoint) {
  const LogTable table = power_law();
  EXPECT_DOUBLE_EQ(table.at(std::array{0.01, 2.0}), table.at(std::array{1.0, 2.0}));
  EXPECT_DOUBLE_EQ(table.at(std::array{4.0, 0.5}), table.at(std::array{4.0, 2.0}));
}

TEST(LogTable, OnePointGrowsFromThere) {
  const LogTable table({{64}}, {1e-6}, {1});
  EXPECT_DOUBLE_EQ(table.at(8), 1e-6);
  EXPECT_NEAR(table.at(640), 1e-5, 1e-18);
}

TEST(LogTable, ADisturbedPointGetsTheLargerSizesValue) {
  const std::vector<std::vector<double>> axes{{1, 2}, {1, 2, 3}};
  std::vector<double> values{5, 2, 9,  //
                             4, 7, 8};
  fall_to_larger(axes, values);
  EXPECT_EQ(values, (std::vector<double>{2, 2, 8, 4, 7, 8}));
  const LogTable table(axes, values, {1, 1});
  for (double x = 0.5; x < 5; x += 0.13)
    for (double y = 0.5; y < 7; y += 0.17) {
      EXPECT_LE(table.at(std::array{x, y}), table.at(std::array{x + 0.1, y}) * (1 + 1e-12));
      EXPECT_LE(table.at(std::array{x, y}), table.at(std::array{x, y + 0.1}) * (1 + 1e-12));
    }
}

TEST(LogTable, RefusesWhatIsNone) {
  EXPECT_THROW(LogTable({{1, 1}}, {1, 2}, {1}), InternalError);
  EXPECT_THROW(LogTable({{1, 2}}, {1}, {1}), InternalError);
  EXPECT_THROW(LogTable({{1, 2}}, {1, 0}, {1}), InternalError);
  EXPECT_THROW(LogTable({{0, 2}}, {1, 1}, {1}), InternalError);
  EXPECT_THROW(power_law().at(3), InternalError);
}

}  // namespace
}  // namespace trident

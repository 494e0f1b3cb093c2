// Rates count on processors of the name that they were measured on, so the name must tell processors apart; and the peak that steps
// are measured by.
#include "train/plan/machine.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "core/file_io.h"
#include "device/cpu/cpu_device.h"
#include "planner/price/cpu_rates.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/meeting.h"
#include "train/config/stored_config.h"
#include "train/launch/start_up.h"
#include "train/plan/core_share.h"
#include "train/run/adopt.h"
#include "train/run/peak_flops.h"

namespace trident {
namespace {

constexpr CpuFeatures kZen3{IsaLevel::kAvx2, false, false}, kPlainAvx512{IsaLevel::kAvx512, false, false};

class Processors : public ::testing::Test {
 protected:
  std::string name(const std::string& cpuinfo, const CpuFeatures& features) {
    write_file(folder_ / "cpuinfo", cpuinfo);
    return processor_name(folder_ / "cpuinfo", features);
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(Processors, AreToldApartByFamilyAndInstructions) {
  const std::string zen3 = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC\n";
  EXPECT_EQ(name(zen3, kZen3), "AMD EPYC (family 25, avx2)");
  EXPECT_EQ(name(zen3, kPlainAvx512), "AMD EPYC (family 25, avx512)");
  // A second processor does not count, nor does what follows it.
  EXPECT_EQ(name(zen3 + "\nprocessor\t: 1\ncpu family\t: 26\nmodel name\t: another\n", kZen3), "AMD EPYC (family 25, avx2)");
}

TEST_F(Processors, WithoutANameOrFamilyAreUnknown) {
  EXPECT_EQ(name("", kZen3), "unknown processor (avx2)");
  EXPECT_EQ(name("BogoMIPS\t: 50.00\nmodel name\t:\n", CpuFeatures()), "unknown processor (baseline)");
  EXPECT_EQ(processor_name("/nowhere/cpuinfo", kZen3), "unknown processor (avx2)");
}

TEST_F(Processors, OfAnotherGenerationHaveOtherRates) {
  const std::string shipped = shipped_cpu_rates().processor;
  const std::string said = shipped.substr(0, shipped.find(" ("));
  EXPECT_EQ(said, "AMD EPYC");
  for (const char* family : {"23", "25"})
    EXPECT_NE(name("cpu family\t: " + std::string(family) + "\nmodel name\t: " + said + "\n", kZen3), shipped);
  if (has_bf16_products({IsaLevel::kAvx512, true, false}, IsaLevel::kAvx512)) {
    EXPECT_EQ(name("cpu family\t: 26\nmodel name\t: " + said + "\n", {IsaLevel::kAvx512, true, false}), shipped);
  }
}

TrainConfig with_precision(const std::string& compute) {
  return parse_train_config(R"({
    "run": {"dir": "unused", "steps": 1}, "device": "cpu",
    "model": {"model_type": "llama", "vocab_size": 61, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
              "intermediate_size": 8, "max_position_embeddings": 16},
    "batch": {"global": 2, "micro": 1, "sequence": 8}, "optimizer": {"lr": 1e-3}, "data": {"train": "unused", "tokenizer": null}})",
                            "test", {"precision.compute=" + compute});
}

RunPlan planned_at(double bf16_over_fp32, const TrainConfig& config) {
  return make_run_plan(config, resolve_model(config), 0, cpu_machine_facts(1, bf16_over_fp32));
}

// Processors that have no such instruction, one that takes twice as long as two fp32 multiply-adds, half as long, and matrix units.
TEST(Precision, GoesByTheRateOfBf16OverFp32) {
  struct Case {
    double ratio;
    const char* compute;
    DType stored, multiplied;
    const char* reason;
  };
  const DType f32 = DType::kF32, bf16 = DType::kBF16;
  for (const Case& c :
       {Case{0, "auto", f32, f32, "precision.compute = auto: the processor has no bf16 products"},
        Case{0.49, "auto", f32, f32, "precision.compute = auto: the processor multiplies bf16 0.49 times as fast as fp32"},
        Case{1.97, "auto", bf16, bf16, "precision.compute = auto: the processor multiplies bf16 1.97 times as fast as fp32"},
        Case{kMatrixUnitsOverFp32, "auto", bf16, bf16, "precision.compute = auto: the processor has bf16 products"},
        Case{0.49, "bf16", bf16, f32,
             "precision.compute = bf16; this processor multiplies bf16 0.49 times as fast as fp32: values are stored in "
             "bf16 and multiplied in fp32"},
        Case{1.97, "bf16", bf16, bf16, "precision.compute = bf16"}, Case{1.97, "fp32", f32, f32, "precision.compute = fp32"}}) {
    const RunPlan plan = planned_at(c.ratio, with_precision(c.compute));
    EXPECT_EQ(plan.compute, c.stored) << c.reason;
    EXPECT_EQ(plan.multiplied, c.multiplied) << c.reason;
    EXPECT_EQ(plan.compute_reason, c.reason);
    EXPECT_EQ(plan.notes, std::vector<std::string>()) << c.reason;
  }
  EXPECT_EQ(planned_at(1.97, with_precision("fp16")).multiplied, f32);
}

// A checkpoint holds the ratio of the machines where its run began.
TEST(Precision, StaysWhatItWasWhereTheRunBegan) {
  Resume resume;
  resume.manifest.config = to_stored(planned_at(1.97, with_precision("auto")).config);
  TrainConfig config = with_precision("auto");
  adopt(config, resume);
  for (const double here : {0.49, 1.96}) {
    const RunPlan plan = planned_at(here, config);
    EXPECT_EQ(plan.compute, DType::kBF16);
    EXPECT_EQ(plan.multiplied, here > 1 ? DType::kBF16 : DType::kF32) << "which is as this machine is faster";
    EXPECT_EQ(plan.config.precision.bf16_over_fp32, 1.97) << "for the next start";
    EXPECT_EQ(plan.notes.size(), here > 1 ? 0u : 1u);
    if (here < 1) {
      EXPECT_EQ(
          plan.notes.at(0),
          "precision.compute = auto stays bf16, as it was at the first start, on a processor that multiplies bf16 1.97 times as "
          "fast as fp32; this processor multiplies bf16 0.49 times as fast as fp32, and auto would be fp32 here; to change it "
          "give the key");
    }
  }
  config.precision.compute = ComputeFormat::kFp32;
  EXPECT_EQ(planned_at(1.97, config).compute, DType::kF32) << "the key was given";
}

// A peak that was measured too low is raised for all steps from then on, by a second measurement or by the step that shows it.
TEST(PeakFlops, IsOneValueThatAFasterStepRaises) {
  struct Case {
    std::optional<double> first, second;
    double raised;  // by a step of 3
  };
  for (const Case& c : {Case{2, 4, 4}, Case{2, 2.5, 3}, Case{2, std::nullopt, 3}}) {
    int measured = 0, said = 0;
    const Say say = [&](const std::string&) { ++said; };
    PeakFlops peak([&] { return measured++ == 0 ? c.first : c.second; }, say);
    EXPECT_EQ(peak.share(1, 1, say), 0.5);
    EXPECT_EQ(peak.share(2, 2, say), 1);
    EXPECT_EQ(said, 0);
    EXPECT_EQ(peak.share(3, 3, say), 3 / c.raised);
    EXPECT_EQ(said, 1);
    EXPECT_EQ(peak.share(4, 1, say), 1 / c.raised) << "the old peak is gone";
    EXPECT_EQ(peak.share(5, 8, say), 1);
    EXPECT_EQ(peak.share(6, 4, say), 0.5);
    EXPECT_EQ(peak.share(7, 16, say, 0.25), 2) << "attention that sees a quarter raises no peak";
    EXPECT_EQ(peak.share(8, 4, say), 0.5);
    EXPECT_EQ(measured, 2) << "a third time it is not measured";
  }
  std::string said;
  const Say say = [&](const std::string& line) { said += line; };
  PeakFlops unknown([]() -> std::optional<double> { return std::nullopt; }, say, "the sun shone");
  EXPECT_EQ(unknown.share(1, 1, say), std::nullopt);
  EXPECT_EQ(said, "mfu is not shown: its peak could not be measured, as the sun shone");
}

// How many compute threads a rank gets: cores of a node, shared by its ranks, within what control groups allow.

void put(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST(CoreShare, ListsOfNumbers) {
  const std::vector<int> some{0, 1, 2, 7, 9, 10};
  EXPECT_EQ(number_ranges(some), "0-2,7,9-10");
  EXPECT_EQ(numbers_in("0-2,7,9-10"), some);
  EXPECT_EQ(number_ranges({}), "");
  EXPECT_TRUE(numbers_in("").empty());
  for (const char* bad : {"x", "1,", "1-", "-1", "1 2"}) EXPECT_THROW(numbers_in(bad), InternalError) << bad;
}

TEST(CoreShare, ThisProcessRunsOnItsAffinity) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const std::vector<int> all = usable_cores_of_this_process().ids;
  EXPECT_EQ(static_cast<int>(all.size()), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(all.back()), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const std::vector<int> now = usable_cores_of_this_process().ids;
  sched_setaffinity(0, sizeof before, &before);
  EXPECT_EQ(now, std::vector<int>{all.back()});
}

// The group itself, those above it, "max", and no files at all.
TEST(CoreShare, AQuotaOfVersion2IsRead) {
  const TemporaryFolder root;
  EXPECT_EQ(usable_cores_of_this_process(root.path()).quota, std::nullopt);
  put(root / "proc/self/cgroup", "0::/a/b\n");
  EXPECT_EQ(usable_cores_of_this_process(root.path()).quota, std::nullopt);
  put(root / "sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(usable_cores_of_this_process(root.path()).quota, std::nullopt);
  put(root / "sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  EXPECT_EQ(usable_cores_of_this_process(root.path()).quota, 2.5);
  put(root / "sys/fs/cgroup/a/b/cpu.max", "800000 100000\n");
  EXPECT_EQ(usable_cores_of_this_process(root.path()).quota, 2.5) << "the group above binds, too";
  put(root / "proc/self/cgroup", "0::/\n");
  put(root / "sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(usable_cores_of_this_process(root.path()).quota, 0.5) << "a container's root";
}

TEST(CoreShare, AQuotaOfVersion1IsRead) {
  const TemporaryFolder root;
  put(root / "proc/self/cgroup", "5:memory:/job\n4:cpu,cpuacct:/job/step\n0::/\n");
  put(root / "sys/fs/cgroup/cpu,cpuacct/job/step/cpu.cfs_quota_us", "-1\n");
  put(root / "sys/fs/cgroup/cpu,cpuacct/job/step/cpu.cfs_period_us", "100000\n");
  put(root / "sys/fs/cgroup/memory/job/cpu.cfs_quota_us", "100000\n");
  put(root / "sys/fs/cgroup/memory/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(usable_cores_of_this_process(root.path()).quota, std::nullopt);
  put(root / "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "400000\n");
  put(root / "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(usable_cores_of_this_process(root.path()).quota, 4.0);
}

TEST(CoreShare, TheUnionOfMasksIsSharedByTheRanks) {
  const std::vector<UsableCores> pinned{{{0, 1}, {}}, {{2, 3}, {}}, {{4, 5}, {}}, {{6, 7}, {}}};
  EXPECT_EQ(share_cores(pinned, 4).threads(), 2);
  EXPECT_EQ(threads_line(share_cores(pinned, 4)), "2 threads per rank: 8 cores of this node for 4 ranks");
  const std::vector<UsableCores> free(4, UsableCores{{0, 1, 2, 3, 4, 5, 6, 7}, {}});
  EXPECT_EQ(share_cores(free, 4).threads(), 2);
  EXPECT_EQ(share_cores({free.data(), 1}, 3).threads(), 2) << "the rest of a division stays idle";
  EXPECT_EQ(share_cores({free.data(), 1}, 32).threads(), 1);
  EXPECT_EQ(threads_line(share_cores({free.data(), 1}, 1)), "8 threads per rank: 8 cores of this node for 1 rank");
  EXPECT_EQ(share_cores({}, 0).threads(), 1) << "a kernel that says nothing";
}

TEST(CoreShare, AQuotaCaps) {
  std::vector<UsableCores> processes(2, UsableCores{{0, 1, 2, 3, 4, 5, 6, 7}, 5.5});
  processes[1].quota.reset();
  EXPECT_EQ(share_cores(processes, 2).threads(), 2);
  EXPECT_EQ(threads_line(share_cores(processes, 2)), "2 threads per rank: a CPU quota of 5.5 on 8 cores of this node for 2 ranks");
  processes[0].quota = 0.5;
  EXPECT_EQ(share_cores(processes, 2).threads(), 1);
  processes[0].quota = 64;
  EXPECT_EQ(threads_line(share_cores(processes, 2)), "4 threads per rank: 8 cores of this node for 2 ranks");
}

// Masks go to the node's first rank; the node that has fewest cores for a rank decides for all.
TEST(CoreShare, TheNodeThatHasFewestDecides) {
  const auto on = [](const std::string& host, std::vector<int> cores) {
    StartUpFacts facts;
    facts.host = host;
    facts.machine.memory = {{"this machine", {}, 1}};
    facts.machine.cores = {std::move(cores), std::nullopt};
    return facts;
  };
  const std::vector<StartUpFacts> ranks{on("n1", {0, 1, 2, 3}), on("n1", {4, 5, 6, 7}), on("n2", {0, 1, 2}), on("n2", {0, 1, 2})};
  const auto lines = [&](const std::vector<int>& nodes) {
    std::vector<std::string> said(nodes.size());
    testing::on_meeting_ranks(nodes, [&](Rendezvous& job, Rendezvous& node) {
      const auto r = static_cast<std::size_t>(job.rank());
      said[r] = threads_line(weakest(job, node, ranks[r]).core_share);
    });
    return said;
  };
  for (const std::string& line : lines({0, 0, 1, 1}))
    EXPECT_EQ(line, "1 thread per rank: 3 cores of n2, where a rank has fewest, for 2 ranks");
  for (const std::string& line : lines({0, 0})) EXPECT_EQ(line, "4 threads per rank: 8 cores of this node for 2 ranks");
}

}  // namespace
}  // namespace trident

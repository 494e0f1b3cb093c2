// Tests what cuda.graphs, cuda.tf32 and fp32 change of a price, and what is said where a profile has no number for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <variant>

#include "planner/predict/cluster_forecast.h"
#include "planner/predict/cluster_report.h"
#include "planner/price/cluster.h"
#include "tests/train/plan_fixture.h"

namespace trident {
namespace {

using testing::demo;
using testing::Settings;

Cluster h100_nodes() { return find_cluster(shipped_price_book(), "h100_sxm_ndr"); }

// Passes so short that the host cannot keep up.
ClusterForecast planned_for(Settings settings, const Cluster& cluster = h100_nodes()) {
  settings.insert(settings.begin(), {"parallel=1DP", "parallel.sequence_parallel=false"});
  return plan_on(hardware_of(cluster), demo(settings), 0);
}

bool notes_have(const ClusterForecast& plan, const std::string& words) {
  return std::ranges::any_of(plan.plan.notes, [&](const std::string& note) { return note.find(words) != std::string::npos; });
}

// A rank's passes count these: what the host starts, and what graphs hold besides.
struct Starts {
  int launches = 0, captured = 0;
};
Starts starts_of(const PassRecord& pass) {
  Starts starts;
  for (const auto& call : pass.calls)
    if (const auto* const operation = std::get_if<RecordedOperation>(&call))
      ++(operation->in_graph ? starts.captured : starts.launches);
  return starts;
}

TEST(GpuOptions, APassThatIsCapturedIsOneLaunch) {
  const ClusterForecast plain = planned_for({}), graphs = planned_for({"cuda.graphs=true"});
  const StepRecord &one = plain.forecast.step.records.front(), &other = graphs.forecast.step.records.front();
  const auto& instructions = graphs.plan.step_programs.front().instructions;
  ASSERT_EQ(one.pass_of.size(), other.pass_of.size());
  int captured = 0;
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    const Starts before = starts_of(one.pass(i)), after = starts_of(other.pass(i));
    EXPECT_EQ(before.captured, 0);
    EXPECT_EQ(after.launches + after.captured, before.launches);
    const bool is_whole = instructions[i].is_compute() || instructions[i].kind == InstructionKind::kOptimizerStep;
    if (is_whole) {
      EXPECT_EQ(after.launches, 1) << to_string(instructions[i]);
    } else {
      EXPECT_EQ(after.captured, 0) << to_string(instructions[i]) << ": gathers, messages and norms stay outside";
    }
    captured += after.captured;
  }
  EXPECT_GT(captured, 0);
  EXPECT_GT(plain.parts[TimePart::kLaunch], 0);
  EXPECT_LT(graphs.parts[TimePart::kLaunch], 0.2 * plain.parts[TimePart::kLaunch]);
  EXPECT_NEAR(graphs.parts[TimePart::kCompute], plain.parts[TimePart::kCompute], 1e-9 * plain.parts[TimePart::kCompute]);
  EXPECT_LT(graphs.seconds(), plain.seconds());
  EXPECT_TRUE(notes_have(graphs, "a graph is priced as one launch"));
}

// Hosts drive collectives within the passes of tensor-parallel ranks: updates alone are captured.
TEST(GpuOptions, PassesOfTensorRanksAreNotCaptured) {
  const ClusterForecast plan = plan_on(hardware_of(h100_nodes()), demo({"cuda.graphs=true"}), 0);
  ASSERT_GT(plan.plan.tensor_layout.degree, 1);
  const auto& instructions = plan.plan.step_programs.front().instructions;
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    const Starts starts = starts_of(plan.forecast.step.records.front().pass(i));
    if (instructions[i].kind == InstructionKind::kOptimizerStep) {
      EXPECT_EQ(starts.launches, 1);
    } else {
      EXPECT_EQ(starts.captured, 0) << to_string(instructions[i]);
    }
  }
}

TEST(GpuOptions, Tf32IsFasterThanFp32AndSlowerThan16Bits) {
  const Settings large{"batch.micro=4", "batch.sequence=1024", "batch.global=4"};
  const auto computing = [&](Settings more) {
    more.insert(more.begin(), large.begin(), large.end());
    const ClusterForecast plan = planned_for(more);
    return plan.parts[TimePart::kCompute];
  };
  const double fp32 = computing({"precision.compute=fp32"}), tf32 = computing({"precision.compute=fp32", "cuda.tf32=true"});
  EXPECT_LT(tf32, fp32);
  EXPECT_GT(tf32, computing({"precision.compute=bf16"}));
  EXPECT_EQ(computing({"precision.compute=bf16", "cuda.tf32=true"}), computing({"precision.compute=bf16"}));
}

TEST(GpuOptions, WhatAProfileDoesNotSayIsNotPricedAndSaid) {
  Cluster cluster = h100_nodes();
  const Settings plain{"precision.compute=fp32"}, asked{"precision.compute=fp32", "cuda.tf32=true"};
  EXPECT_FALSE(notes_have(planned_for(asked), "cuda.tf32"));
  cluster.gpu.peak_tf32.reset();
  EXPECT_TRUE(notes_have(planned_for(asked, cluster), "cuda.tf32 is not priced: the profile of H100-SXM5-80GB has no"));
  EXPECT_EQ(planned_for(asked, cluster).seconds(), planned_for(plain, cluster).seconds());
  cluster.gpu.peak_tf32 = 0;
  EXPECT_TRUE(notes_have(planned_for(asked, cluster), "cuda.tf32 changes nothing: H100-SXM5-80GB has no such units"));
  EXPECT_EQ(planned_for(asked, cluster).seconds(), planned_for(plain, cluster).seconds());
  cluster.gpu.peak_fp32.reset();
  EXPECT_TRUE(notes_have(planned_for(plain, cluster), "fp32 is priced at a 16th of the 16-bit rate"));
  EXPECT_TRUE(notes_have(planned_for({"precision.compute=bf16", "cuda.tf32=true"}),
                         "cuda.tf32 changes nothing: products are in bf16"));
}

// A plan names the range of a fit where a model lies below it.
TEST(GpuOptions, ModelsNarrowerThanTheFitAreSaidToBe) {
  const PriceBook book = shipped_price_book();
  const auto said = [&](const char* cluster, const Settings& settings) {
    const ClusterForecast plan = plan_on(hardware_of(find_cluster(book, cluster)), demo(settings, "learn_tp.json"), 0);
    return notes_have(plan, "were fitted on models");
  };
  EXPECT_TRUE(said("h100_sxm_ndr", {}));
  EXPECT_TRUE(notes_have(planned_for({"precision.compute=bf16"}), "at least 1536 wide")) << "over one tensor rank";
  EXPECT_FALSE(said("b200_ndr", {})) << "it was not fitted";
  EXPECT_FALSE(notes_have(plan_on(hardware_of(h100_nodes()), demo({}, "llama3_70b_tp4_pp8_v5.json"), 0), "were fitted on models"));
}

// The published runs that bands are of multiply in 16 bits.
TEST(GpuOptions, Fp32HasNoBand) {
  const auto report = [](const char* compute) {
    return report_on(hardware_of(h100_nodes()), demo({std::string("precision.compute=") + compute}), 0, 0);
  };
  EXPECT_TRUE(seconds_band(report("bf16"), 1));
  const ClusterReport fp32 = report("fp32");
  EXPECT_FALSE(seconds_band(fp32, 1));
  EXPECT_EQ(band_line(fp32).find("no band of times"), 0u);
}

// A tile takes no longer besides its inner loop in fp32 than in 16 bits, so that small products in fp32 do not take longer
// on the faster GPU.
TEST(GpuOptions, SmallFp32ModelsAreNotSlowerOnTheFasterGpu) {
  const PriceBook book = shipped_price_book();
  for (const char* const file : {"learn_tp.json", "demo_2dp_4pp_4tp.json"}) {
    const auto seconds = [&](const char* cluster) {
      return plan_on(hardware_of(find_cluster(book, cluster)), demo({"precision.compute=fp32"}, file), 0).seconds();
    };
    EXPECT_LE(seconds("h100_sxm_ndr"), seconds("a100_sxm_hdr")) << file;
  }
}

TEST(GpuOptions, ShippedProfilesSayBothPeaks) {
  for (const GpuRates& gpu : shipped_price_book().hardware) {
    ASSERT_TRUE(gpu.peak_fp32 && gpu.peak_tf32) << gpu.name;
    EXPECT_LT(*gpu.peak_fp32, gpu.peak_16bit) << gpu.name;
    if (*gpu.peak_tf32 > 0) {
      EXPECT_NEAR(*gpu.peak_tf32 / gpu.peak_16bit, 0.5, 0.02) << gpu.name << ": dense, not with sparsity";
    }
  }
}

}  // namespace
}  // namespace trident

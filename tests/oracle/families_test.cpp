// Training every family from a folder that transformers saved equals PyTorch: losses and gradient norms of six AdamW steps, on one
// rank and on twelve.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/oracle/golden_case.h"
#include "tests/support/family_golden.h"

namespace trident::testing {
namespace {

struct FamilyRun {
  std::string family;
  bool spread = false;  // 3DP x 2PP x 2TP, zero3, sequence parallel
  friend void PrintTo(const FamilyRun& run, std::ostream* out) { *out << run.family << (run.spread ? " on 12 ranks" : ""); }
};

std::vector<FamilyRun> runs() {
  std::vector<FamilyRun> all;
  for (const std::string& family : family_golden_names())
    for (const bool spread : {false, true}) all.push_back({family, spread});
  return all;
}

LoadSamples samples_of(const FamilyGolden& golden) {
  return [&golden](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t s = 0; s < kFamilySequence; ++s) {
        const std::int64_t sample = first + i, step = sample / kFamilyBatch;
        const auto to = static_cast<std::size_t>(s * count + i);
        if (!spans.tokens.empty()) spans.tokens[to] = golden.token(step, sample % kFamilyBatch, s);
        if (!spans.targets.empty()) spans.targets[to] = golden.token(step, sample % kFamilyBatch, s + 1);
      }
    }
  };
}

class FamilyTraining : public ::testing::TestWithParam<FamilyRun> {};

TEST_P(FamilyTraining, MeetsPyTorch) {
  const FamilyGolden golden = read_family_golden(TRIDENT_MODEL_GOLDENS "/families", GetParam().family);
  const std::string config =
      R"({"batch": {"global": 6, "micro": 1, "sequence": 16}, "precision": {"compute": "fp32"},
          "optimizer": {"type": "adamw", "lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "grad_clip": 1.0},
          "lr_schedule": {"type": "constant", "warmup_steps": 0}, "model": )" +
      golden.model_json + "}";
  std::vector<std::string> settings;
  if (GetParam().spread)
    settings = {"parallel.data=3", "parallel.pipeline=2", "parallel.tensor=2", "parallel.zero=zero3",
                "parallel.sequence_parallel=true"};
  LayoutRunOptions options;
  options.steps = static_cast<int>(kFamilySteps);
  options.load = samples_of(golden);
  options.before_steps = [&](RankTrainer& trainer) { load_folder(trainer, golden.folder); };
  const LayoutRun run = run_layout(config, settings, options);

  ASSERT_EQ(run.initial.size(), golden.weights.size());
  for (const auto& [name, weight] : golden.weights) ASSERT_EQ(run.initial.at(name), weight) << name << ": was not loaded";
  RecordProperty("worst", expect_golden_steps(run, golden.losses, golden.grad_norms));
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyTraining, ::testing::ValuesIn(runs()), [](const auto& info) {
  std::string name = info.param.family + (info.param.spread ? "_3DP_2PP_2TP_zero3" : "_1rank");
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

}  // namespace
}  // namespace trident::testing

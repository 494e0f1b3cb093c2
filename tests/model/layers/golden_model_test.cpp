// Folders that transformers saved, one per family (scripts/oracle/family_goldens.py): the tensors in them are those of
// hf_tensors(), in its order, and logits are PyTorch's to 1e-5 of the largest, on 1, 2 and 4 tensor-parallel ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "tests/model/layers/layout_outcome.h"
#include "tests/model/layers/tiny_models.h"
#include "tests/support/family_golden.h"
#include "tests/support/reference_model.h"
#include "tests/support/safetensors.h"

namespace trident {
namespace {

using testing::FamilyGolden;
using testing::kFamilySequence;
using testing::kFamilyShown;

class FamilyGoldensTest : public ::testing::TestWithParam<std::string> {
 protected:
  FamilyGolden golden() const { return testing::read_family_golden(TRIDENT_MODEL_GOLDENS "/families", GetParam()); }
};

TEST_P(FamilyGoldensTest, TheListIsTheStateDict) {
  const FamilyGolden g = golden();
  std::istringstream lines(read_file(g.folder + "state_dict.txt"));
  const std::vector<HfTensor> tensors = hf_tensors(g.model);
  std::size_t i = 0;
  for (std::string line; std::getline(lines, line); ++i) {
    ASSERT_LT(i, tensors.size()) << line;
    std::string ours = tensors[i].name;
    for (const std::int64_t size : tensors[i].shape) ours += " " + std::to_string(size);
    EXPECT_EQ(ours, line);
  }
  EXPECT_EQ(i, tensors.size());
}

TEST_P(FamilyGoldensTest, LogitsAreTransformers) {
  const FamilyGolden g = golden();
  reference::ModelBatch batch;
  batch.samples = kFamilyShown;
  batch.sequence = kFamilySequence;
  batch.gradient_scale = 1.0 / static_cast<double>(batch.rows());
  batch.sample_numbers.assign(static_cast<std::size_t>(kFamilyShown), 0);
  for (std::int64_t s = 0; s < kFamilySequence; ++s) {
    for (std::int64_t b = 0; b < kFamilyShown; ++b) {
      batch.tokens.push_back(g.token(0, b, s));
      batch.targets.push_back(g.token(0, b, s + 1));
    }
  }
  testing::LogicalTensors weights;
  for (const auto& [name, values] : g.weights) weights[name].assign(values.begin(), values.end());
  float largest = 0.0f;
  for (const float logit : g.logits) largest = std::max(largest, std::abs(logit));
  for (const testing::Layout& layout : {testing::Layout{}, testing::Layout{.degree = 2, .sequence_parallel = true},
                                        testing::Layout{.degree = 4}, testing::Layout{.degree = 4, .sequence_parallel = true}}) {
    if (g.model.heads % layout.degree != 0) continue;  // smollm has 6
    SCOPED_TRACE(fmt::format("tensor {}, sequence parallel {}", layout.degree, layout.sequence_parallel));
    const testing::Outcome outcome = testing::run_layout(g.model, weights, batch, layout);
    double worst = 0.0;
    for (std::int64_t s = 0; s < kFamilySequence; ++s) {
      for (std::int64_t b = 0; b < kFamilyShown; ++b) {
        for (std::int64_t v = 0; v < g.model.vocab_size; ++v) {
          const auto here = static_cast<std::size_t>((s * kFamilyShown + b) * g.model.vocab_size + v);
          const auto there = static_cast<std::size_t>((b * kFamilySequence + s) * g.model.vocab_size + v);
          const double cap = g.model.logit_softcap, raw = outcome.logits.at(here);
          const double logit = cap > 0 ? cap * std::tanh(raw / cap) : raw;
          worst = std::max(worst, std::abs(logit - static_cast<double>(g.logits.at(there))));
        }
      }
    }
    EXPECT_LE(worst, 1e-5 * static_cast<double>(largest));
    RecordProperty(fmt::format("worst_tp{}{}", layout.degree, layout.sequence_parallel ? "_sp" : ""),
                   fmt::format("{:.3g}", worst / static_cast<double>(largest)));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyGoldensTest, ::testing::ValuesIn(testing::family_golden_names()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

// The judge is judged: gradients of the reference model against central differences in double.

class ReferenceModelTest : public ::testing::TestWithParam<testing::TinyModel> {};

TEST_P(ReferenceModelTest, GradientsAreCentralDifferences) {
  const ModelConfig config = GetParam().config;
  const reference::ModelBatch batch = testing::tiny_batch(config, 5);
  const testing::LogicalTensors weights = testing::tiny_weights(config);
  reference::Model<double> model(config, weights);
  model.run(batch);
  for (const auto& [name, gradient] : model.gradients()) {
    double norm = 0.0;
    for (const double g : gradient) norm += g * g;
    EXPECT_GT(norm, 0.0) << name;
    const std::size_t stride = gradient.size() / 3 + 1;
    for (std::size_t i = gradient.size() / 5; i < gradient.size(); i += stride) {
      const double h = 1e-5;
      double loss[2];
      for (const int side : {0, 1}) {
        testing::LogicalTensors moved = weights;
        moved[name][i] += side == 1 ? h : -h;
        loss[side] = reference::Model<double>(config, moved).run(batch);
      }
      const double expected = batch.gradient_scale * (loss[1] - loss[0]) / (2 * h);
      EXPECT_NEAR(gradient[i], expected, 1e-8 + 1e-6 * std::abs(expected)) << name << "[" << i << "]";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ReferenceModelTest, ::testing::ValuesIn(testing::tiny_models()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace trident

// The judge is judged: gradients of the reference model against central differences in double.
#include "tests/support/reference_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/layers/tiny_models.h"

namespace trident {
namespace {

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

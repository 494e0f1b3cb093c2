// The oracle's files and the counts made from their configurations agree tensor by tensor.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "core/file_io.h"
#include "model/config/model_config.h"
#include "model/config/model_stats.h"
#include "tests/support/safetensors.h"

namespace trident {
namespace {

class GoldenFiles : public ::testing::TestWithParam<const char*> {
 protected:
  std::string path(const std::string& file) const { return std::string(TRIDENT_MODEL_GOLDENS "/") + GetParam() + "/" + file; }
  ModelConfig config() const { return model_config_from_hf_json(read_file(path("config.json")), path("config.json")); }
  test::TensorMap tensors(const std::string& file) const { return test::read_safetensors(path(file + ".safetensors")); }
};

std::string name_of(const ::testing::TestParamInfo<const char*>& info) { return info.param; }

INSTANTIATE_TEST_SUITE_P(Cases, GoldenFiles,
                         ::testing::Values("gpt2", "llama", "llama3_rope", "qwen2", "qwen3", "mistral"), name_of);

TEST_P(GoldenFiles, HoldEveryParameterOnce) {
  std::int64_t elements = 0;
  for (const auto& [name, tensor] : tensors("weights")) elements += tensor.num_elements();
  EXPECT_EQ(elements, num_parameters(config()));
}

TEST_P(GoldenFiles, HoldAGradientAndATrainedValueOfEveryParameter) {
  const test::TensorMap weights = tensors("weights"), gradients = tensors("gradients"), trained = tensors("trained");
  EXPECT_EQ(gradients.size(), weights.size());
  EXPECT_EQ(trained.size(), weights.size() + 2) << "and losses, grad_norms";
  double squares = 0.0;
  for (const auto& [name, weight] : weights) {
    ASSERT_TRUE(gradients.contains(name) && trained.contains(name)) << name;
    EXPECT_EQ(gradients.at(name).shape, weight.shape) << name;
    EXPECT_EQ(trained.at(name).shape, weight.shape) << name;
    EXPECT_NE(trained.at(name).data, weight.data) << name << " was trained";
    for (const float g : gradients.at(name).values<float>()) squares += static_cast<double>(g) * g;
  }
  EXPECT_NEAR(std::sqrt(squares) / trained.at("grad_norms").values<float>()[0], 1.0, 1e-6) << "the norm before clipping";
}

// The mean over all targets of log-sum-exp minus the target's logit.
TEST_P(GoldenFiles, LossIsTheMeanOverTheTargets) {
  const test::TensorMap forward = tensors("forward"), batch = tensors("batch");
  const std::vector<float> logits = forward.at("logits").values<float>();
  const std::vector<std::int64_t> targets = batch.at("targets").values<std::int64_t>();
  const std::vector<std::int64_t> tokens = batch.at("tokens").values<std::int64_t>();
  const std::int64_t vocab = config().vocab_size;
  ASSERT_EQ(forward.at("logits").shape, (std::vector<std::int64_t>{2, 16, vocab}));
  ASSERT_EQ(batch.at("tokens").shape, (std::vector<std::int64_t>{10, 2, 16}));
  EXPECT_EQ(tokens[1], targets[0]) << "targets are the tokens that follow";
  double sum = 0.0;
  for (std::size_t row = 0; row < 32; ++row) {
    double exponentials = 0.0;
    const float* logit = logits.data() + static_cast<std::int64_t>(row) * vocab;
    for (std::int64_t c = 0; c < vocab; ++c) exponentials += std::exp(static_cast<double>(logit[c]));
    sum += std::log(exponentials) - logit[targets[row]];
  }
  EXPECT_NEAR(sum / 32.0, forward.at("loss").values<float>()[0], 1e-6);
  EXPECT_EQ(forward.at("loss").values<float>()[0], tensors("trained").at("losses").values<float>()[0]);
}

}  // namespace
}  // namespace trident

// Random tiny models of every family against PyTorch's transformers (scripts/oracle/make_goldens.py): logits, loss and every
// parameter's gradient, on 1, 2 and 4 tensor-parallel ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "tests/model/layers/layout_outcome.h"
#include "tests/support/safetensors.h"

namespace trident {
namespace {

using testing::LogicalTensors;

class GoldenModelTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::string path(const std::string& file) const { return std::string(TRIDENT_MODEL_GOLDENS "/") + GetParam() + "/" + file; }
  ModelConfig config() const { return model_config_from_hf_json(read_file(path("config.json")), path("config.json")); }
  test::TensorMap tensors(const std::string& file) const { return test::read_safetensors(path(file + ".safetensors")); }

  // Named tensors in the logical orientation [out, in], whatever the file's.
  LogicalTensors logical(const std::string& file) const {
    LogicalTensors whole;
    const test::TensorMap stored = tensors(file);
    const ModelConfig c = config();
    for (int unit = 0; unit < num_units(c); ++unit)
      for (const ParamSpec& spec : unit_params(c, {}, unit))
        for (const PartSpec& part : spec.parts) {
          const std::vector<float> values = stored.at(part.tensor).values<float>();
          std::vector<double>& out = whole[part.tensor];
          out.assign(values.begin(), values.end());
          if (!part.transposed_on_disk) continue;
          const auto rows = static_cast<std::size_t>(part.tensor_shape[0]);
          const auto columns = static_cast<std::size_t>(part.tensor_shape[1]);
          for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t i = 0; i < columns; ++i) out[r * columns + i] = static_cast<double>(values[i * rows + r]);
        }
    EXPECT_EQ(whole.size(), stored.size());
    return whole;
  }

  // The first of the file's batches, [B, S] per sample there, rows s*B+b here.
  reference::ModelBatch batch() const {
    const test::TensorMap stored = tensors("batch");
    const std::vector<std::int64_t> tokens = stored.at("tokens").values<std::int64_t>();
    const std::vector<std::int64_t> targets = stored.at("targets").values<std::int64_t>();
    reference::ModelBatch batch;
    batch.samples = stored.at("tokens").shape[1];
    batch.sequence = stored.at("tokens").shape[2];
    batch.gradient_scale = 1.0 / static_cast<double>(batch.rows());
    for (std::int64_t row = 0; row < batch.rows(); ++row) {
      const auto at = static_cast<std::size_t>(row % batch.samples * batch.sequence + row / batch.samples);
      batch.tokens.push_back(static_cast<std::int32_t>(tokens[at]));
      batch.targets.push_back(static_cast<std::int32_t>(targets[at]));
    }
    batch.sample_numbers.assign(static_cast<std::size_t>(batch.samples), 0);
    return batch;
  }
};

TEST_P(GoldenModelTest, EveryLayoutEqualsTheOracle) {
  const ModelConfig c = config();
  const reference::ModelBatch b = batch();
  const LogicalTensors weights = logical("weights"), gradients = logical("gradients");
  const test::TensorMap forward = tensors("forward");
  const std::vector<float> logits = forward.at("logits").values<float>();
  const double loss = static_cast<double>(forward.at("loss").values<float>()[0]);
  float largest = 0.0f;
  for (const float logit : logits) largest = std::max(largest, std::abs(logit));
  for (const testing::Layout& layout : {testing::Layout{}, testing::Layout{.degree = 2, .sequence_parallel = true},
                                        testing::Layout{.degree = 4}, testing::Layout{.degree = 4, .sequence_parallel = true}}) {
    SCOPED_TRACE(fmt::format("tensor {}, sequence parallel {}", layout.degree, layout.sequence_parallel));
    const testing::Outcome outcome = testing::run_layout(c, weights, b, layout);
    EXPECT_NEAR(outcome.loss / static_cast<double>(b.rows()), loss, 1e-6 * loss);
    double worst = 0.0;
    for (std::int64_t row = 0; row < b.rows(); ++row)
      for (std::int64_t v = 0; v < c.vocab_size; ++v) {
        const std::int64_t there = (row % b.samples * b.sequence + row / b.samples) * c.vocab_size + v;
        worst = std::max(worst, std::abs(outcome.logits[static_cast<std::size_t>(row * c.vocab_size + v)] -
                                         static_cast<double>(logits[static_cast<std::size_t>(there)])));
      }
    EXPECT_LE(worst, 1e-5 * static_cast<double>(largest));
    testing::expect_close(outcome.gradients, gradients, 1e-5, 1e-7);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenModelTest,
                         ::testing::Values("gpt2", "llama", "llama3_rope", "qwen2", "qwen3", "mistral"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace trident

// Low-rank adapters of whole tiny models on 1, 2 and 4 tensor-parallel ranks against the reference model in double whose weights
// have them added: with G the gradient of W + s B A, that of B is s G A^T and that of A is s B^T G. With DoRA, c (W + s B A) takes
// its place, c = m / n by row: G becomes c G, that of m is the dot product of G's row and V's over n, n is a constant.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/tuning.h"
#include "model/config/hf_tensors.h"
#include "tests/model/layers/layout_outcome.h"
#include "tests/model/layers/tiny_models.h"

namespace trident {
namespace {

using testing::expect_close;
using testing::Layout;
using testing::LogicalTensors;
using testing::norm_of;
using testing::Outcome;
using testing::run_layout;

constexpr std::int64_t kRank = 3;

enum class Base : std::uint8_t { kFrozen, kTrained };
enum class Kind : std::uint8_t { kLora, kDora };

// Every linear layer of the blocks, those of `without` not: of all ranks one, of two scales where `scales` is.
ModelConfig with_adapters(ModelConfig config, std::string_view without = "none", bool scales = false,
                          Base base = Base::kFrozen, Kind kind = Kind::kLora) {
  Tuning tuning;
  tuning.adapters.dora = kind == Kind::kDora;
  for (int unit = 0; unit < num_units(config); ++unit)
    for (const ParamSpec& spec : unit_params(config, {}, unit))
      for (const PartSpec& part : spec.parts) {
        if (base == Base::kFrozen) tuning.frozen.insert(part.tensor);
        const std::string module = part.tensor.substr(0, part.tensor.rfind('.'));
        const bool block = unit > 0 && unit < head_unit(config);
        if (!block || part.tensor_shape.rank() != 2 || !part.tensor.ends_with(".weight") || module.ends_with(without)) continue;
        if (tuning.adapters.find(module) != nullptr) continue;  // another part of it
        tuning.adapters.modules.push_back({module, kRank, scales && module.ends_with("k_proj") ? 0.5 : 2.0});
        std::ranges::sort(tuning.adapters.modules, {}, &AdaptedModule::module);
      }
  config.tuning = std::make_shared<const Tuning>(std::move(tuning));
  return config;
}

ModelConfig with_dora(const ModelConfig& config, std::string_view without = "none", bool scales = false) {
  return with_adapters(config, without, scales, Base::kFrozen, Kind::kDora);
}

ModelConfig with_dropout_of_adapters(ModelConfig config, double probability) {
  Tuning dropping = *config.tuning;
  dropping.adapters.dropout = probability;
  config.tuning = std::make_shared<const Tuning>(dropping);
  return config;
}

// Lengths of the rows of a matrix [rows, ..].
std::vector<double> row_lengths(const std::vector<double>& matrix, std::int64_t rows) {
  std::vector<double> lengths(static_cast<std::size_t>(rows));
  const std::size_t columns = matrix.size() / lengths.size();
  for (std::size_t i = 0; i < matrix.size(); ++i) lengths[i / columns] += matrix[i] * matrix[i];
  for (double& length : lengths) length = std::sqrt(length);
  return lengths;
}

// Rows and columns of a module's weight.
std::pair<std::int64_t, std::int64_t> sides(const LogicalTensors& weights, const AdaptedModule& m) {
  return {std::ssize(weights.at(m.b())) / m.rank, std::ssize(weights.at(m.a())) / m.rank};
}

// The reference of the merged weights, and the gradients of the adapters that follow from its.
Outcome run_reference(const ModelConfig& config, LogicalTensors weights) {
  LogicalTensors unscaled, lengths;  // by module, with DoRA
  for (const AdaptedModule& m : config.tuning->adapters.modules) {
    const auto [out, in] = sides(weights, m);
    std::vector<double> product(static_cast<std::size_t>(out * in));
    reference::matmul(product.data(), weights.at(m.b()).data(), false, weights.at(m.a()).data(), false, out, in, m.rank, false);
    std::vector<double>& w = weights.at(m.module + ".weight");
    for (std::size_t i = 0; i < w.size(); ++i) w[i] += m.scale * product[i];
    if (!config.tuning->adapters.dora) continue;
    unscaled[m.module] = w;
    lengths[m.module] = row_lengths(w, out);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const std::size_t row = i / static_cast<std::size_t>(in);
      w[i] *= weights.at(m.magnitude())[row] / lengths[m.module][row];
    }
  }
  ModelConfig merged = config;
  merged.tuning = nullptr;
  reference::Model<double> model(merged, weights);
  Outcome outcome{model.run(testing::tiny_batch(config)), {}, {}};
  for (const auto& [name, gradient] : model.gradients())
    if (config.tuning->trains(name)) outcome.gradients[name] = gradient;
  for (const AdaptedModule& m : config.tuning->adapters.modules) {
    const auto [out, in] = sides(weights, m);
    std::vector<double> g = model.gradients().at(m.module + ".weight");
    for (std::size_t i = 0; i < g.size() && config.tuning->adapters.dora; ++i) {
      const std::size_t row = i / static_cast<std::size_t>(in);
      const double length = lengths[m.module][row];
      std::vector<double>& d_m = outcome.gradients[m.magnitude()];
      d_m.resize(static_cast<std::size_t>(out));
      d_m[row] += g[i] * unscaled[m.module][i] / length;
      g[i] *= weights.at(m.magnitude())[row] / length;
    }
    std::vector<double>&d_a = outcome.gradients[m.a()], &d_b = outcome.gradients[m.b()];
    d_a.resize(static_cast<std::size_t>(m.rank * in)), d_b.resize(static_cast<std::size_t>(out * m.rank));
    reference::matmul(d_b.data(), g.data(), false, weights.at(m.a()).data(), true, out, m.rank, in, false);
    reference::matmul(d_a.data(), weights.at(m.b()).data(), true, g.data(), false, m.rank, in, out, false);
    for (std::vector<double>* d : {&d_a, &d_b})
      for (double& value : *d) value *= m.scale;
  }
  return outcome;
}

Outcome outcome_of(const ModelConfig& config, const Layout& layout, int backwards = 1) {
  return run_layout(config, testing::tiny_weights(config), testing::tiny_batch(config), layout, backwards);
}

std::vector<testing::TinyModel> adapted_models() {
  return {{"Gpt2", with_adapters(testing::tiny_gpt2())},
          {"Llama", with_adapters(testing::tiny_llama())},
          {"Gpt2Trained", with_adapters(testing::tiny_gpt2(), "none", false, Base::kTrained)},
          {"Qwen2WithoutQueries", with_adapters(testing::tiny_qwen2(), "q_proj")},
          {"LlamaOfTwoScales", with_adapters(testing::tiny_llama(), "up_proj", true)},
          {"Gpt2Dora", with_dora(testing::tiny_gpt2())},
          {"LlamaDoraOfTwoScales", with_dora(testing::tiny_llama(), "up_proj", true)},
          {"Qwen2DoraWithoutQueries", with_dora(testing::tiny_qwen2(), "q_proj")},
          {"Phi3Dora", with_dora(testing::tiny_phi3())},
          {"OlmoClippedDora", with_dora(testing::tiny_clipped_olmo())},
          {"Phi3", with_adapters(testing::tiny_phi3())},
          {"Olmo2", with_adapters(testing::tiny_olmo2(), "o_proj")}};
}

class AdapterTest : public ::testing::TestWithParam<testing::TinyModel> {};

TEST_P(AdapterTest, EveryLayoutEqualsTheMergedReference) {
  const ModelConfig config = GetParam().config;
  const Outcome expected = run_reference(config, testing::tiny_weights(config));
  for (const int degree : {1, 2, 4})
    for (const bool sequence_parallel : {false, true}) {
      SCOPED_TRACE(fmt::format("tensor {}, sequence parallel {}", degree, sequence_parallel));
      const Outcome outcome = outcome_of(config, {.degree = degree, .sequence_parallel = sequence_parallel});
      EXPECT_NEAR(outcome.loss, expected.loss, 1e-6 * expected.loss);
      expect_close(outcome.gradients, expected.gradients, 1e-5, 1e-7);
    }
}

TEST_P(AdapterTest, RecomputeAndFusedBackwardAreBitEqual) {
  const ModelConfig config = GetParam().config;
  const Layout layout{.degree = 2, .sequence_parallel = true};
  const Outcome kept = outcome_of(config, layout);
  Layout other = layout;
  other.backward = testing::ModelRank::Backward::kFused;
  EXPECT_TRUE(outcome_of(config, other).gradients == kept.gradients) << "fused";
  for (const RecomputePolicy policy : {RecomputePolicy::kSelective, RecomputePolicy::kFull}) {
    other.recompute = policy;
    EXPECT_TRUE(outcome_of(config, other).gradients == kept.gradients) << "policy " << static_cast<int>(policy);
  }
}

TEST_P(AdapterTest, GradientsAccumulateOverMicroBatches) {
  const ModelConfig config = GetParam().config;
  const Layout layout{.degree = 2};
  Outcome doubled = outcome_of(config, layout);
  for (auto& [name, values] : doubled.gradients)
    for (double& value : values) value *= 2;
  expect_close(outcome_of(config, layout, 2).gradients, doubled.gradients, 1e-6, 1e-8);
}

INSTANTIATE_TEST_SUITE_P(Models, AdapterTest, ::testing::ValuesIn(adapted_models()),
                         [](const auto& info) { return std::string(info.param.name); });

// A layer is planned for passes of several sizes, and each declares it again.
TEST(Adapters, KeepTheirTensorsWhenTheyAreDeclaredAgain) {
  const ModelConfig config = with_adapters(testing::tiny_llama());
  testing::run_tensor_ranks(1, {}, [&](testing::TensorRank& rank) {
    const LayerGeometry geometry{.sequence = 8, .micro_batch = 2};
    ArenaPlan arena;
    const ModelConstants constants(config, geometry, arena);
    const std::unique_ptr<Layer> block = make_unit(config, 1);
    const auto places = [&] { return plan_unit(*block, geometry, config.hidden, constants, rank.device.ops()).memory().places; };
    const auto first = places();
    EXPECT_EQ(places(), first);
  });
}

TEST(Adapters, OfZerosLeaveLogitsAsTheyAre) {
  for (const ModelConfig& base : {testing::tiny_gpt2(), testing::tiny_qwen2()}) {
    const ModelConfig config = with_adapters(base);
    LogicalTensors weights = testing::tiny_weights(config);
    for (const AdaptedModule& m : config.tuning->adapters.modules) std::ranges::fill(weights.at(m.b()), 0.0);
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      const Layout layout{.degree = 2, .compute = compute};
      const Outcome with = run_layout(config, weights, testing::tiny_batch(config), layout);
      EXPECT_EQ(with.logits, run_layout(base, weights, testing::tiny_batch(base), layout).logits);
    }
  }
}

// The masks are those of the whole input, so every layout drops the same elements, and backward the ones that forward did.
TEST(Adapters, DropTheSameInEveryLayout) {
  for (const ModelConfig& base : {testing::tiny_gpt2(), testing::tiny_qwen2()}) {
    ModelConfig config = with_adapters(base);
    const Outcome whole = outcome_of(config, {});
    config = with_dropout_of_adapters(config, 0.25);
    const Outcome one = outcome_of(config, {});
    EXPECT_NE(one.loss, whole.loss);
    for (const Layout& layout : {Layout{.degree = 2}, Layout{.degree = 4, .sequence_parallel = true}}) {
      const Outcome outcome = outcome_of(config, layout);
      EXPECT_NEAR(outcome.loss, one.loss, 1e-6 * one.loss);
      expect_close(outcome.gradients, one.gradients, 1e-5, 1e-7);
    }
    // Along the gradient the loss changes by its square, where forward and backward have the same masks.
    const double squares = norm_of(one.gradients) * norm_of(one.gradients), step = 2e-3 / norm_of(one.gradients);
    LogicalTensors up = testing::tiny_weights(config), down = up;
    for (const auto& [name, gradient] : one.gradients)
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        up[name][i] += step * gradient[i];
        down[name][i] -= step * gradient[i];
      }
    const reference::ModelBatch batch = testing::tiny_batch(config);
    const double change =
        testing::run_layout(config, up, batch, {}).loss - testing::run_layout(config, down, batch, {}).loss;
    EXPECT_NEAR(change * batch.gradient_scale / (2 * step * squares), 1, 2e-2);
  }
}

// With m the lengths of the rows of W + s B A.
LogicalTensors weights_of_unit_scale(const ModelConfig& config) {
  LogicalTensors weights = testing::tiny_weights(config);
  for (const AdaptedModule& m : config.tuning->adapters.modules) {
    const auto [out, in] = sides(weights, m);
    std::vector<double> sum(static_cast<std::size_t>(out * in));
    reference::matmul(sum.data(), weights.at(m.b()).data(), false, weights.at(m.a()).data(), false, out, in, m.rank, false);
    const std::vector<double>& w = weights.at(m.module + ".weight");
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = w[i] + m.scale * sum[i];
    weights.at(m.magnitude()) = row_lengths(sum, out);
  }
  return weights;
}

TEST(Dora, OfUnitScaleIsLoraWithTheSameDropout) {
  for (const ModelConfig& base : {testing::tiny_gpt2(), testing::tiny_qwen2(), testing::tiny_phi3()})
    for (const double dropout : {0.0, 0.25}) {
      const ModelConfig config = with_dropout_of_adapters(with_dora(base), dropout);
      const ModelConfig lora = with_dropout_of_adapters(with_adapters(base), dropout);
      LogicalTensors weights = weights_of_unit_scale(config);
      const reference::ModelBatch batch = testing::tiny_batch(config);
      for (const Layout& layout : {Layout{}, Layout{.degree = 4, .sequence_parallel = true}}) {
        Outcome outcome = run_layout(config, weights, batch, layout);
        LogicalTensors of_lora = weights;
        std::erase_if(of_lora, [](const auto& tensor) { return tensor.first.ends_with(kLoraMagnitude); });
        const Outcome expected = run_layout(lora, of_lora, batch, {});
        EXPECT_NEAR(outcome.loss, expected.loss, 1e-6 * expected.loss);
        std::erase_if(outcome.gradients, [](const auto& tensor) { return tensor.first.ends_with(kLoraMagnitude); });
        expect_close(outcome.gradients, expected.gradients, 1e-5, 1e-6);
      }
    }
}

// W x of what is not dropped stays: PEFT scales W x and B A x of the dropped x alone.
TEST(Dora, ChangesNothingWhereAllIsDropped) {
  for (const ModelConfig& base : {testing::tiny_gpt2(), testing::tiny_qwen2(), testing::tiny_phi3()}) {
    const ModelConfig config = with_dropout_of_adapters(with_dora(base), 0.999999);
    const reference::ModelBatch batch = testing::tiny_batch(config);
    const double expected = run_layout(base, testing::tiny_weights(base), batch, {}).loss;
    for (const Layout& layout : {Layout{}, Layout{.degree = 2, .sequence_parallel = true}})
      EXPECT_NEAR(run_layout(config, testing::tiny_weights(config), batch, layout).loss, expected, 1e-6 * expected);
  }
}

TEST(Dora, DropsTheSameInEveryLayoutForwardAndBackward) {
  const ModelConfig config = with_dropout_of_adapters(with_dora(testing::tiny_qwen2()), 0.25);
  const LogicalTensors weights = testing::tiny_weights(config);
  const reference::ModelBatch batch = testing::tiny_batch(config);
  const Outcome one = run_layout(config, weights, batch, {});
  for (const Layout& layout : {Layout{.degree = 2}, Layout{.degree = 4, .sequence_parallel = true}}) {
    const Outcome outcome = run_layout(config, weights, batch, layout);
    EXPECT_NEAR(outcome.loss, one.loss, 1e-6 * one.loss);
    expect_close(outcome.gradients, one.gradients, 1e-5, 1e-7);
  }
  LogicalTensors magnitudes = one.gradients;  // the lengths are constants to the others alone
  std::erase_if(magnitudes, [](const auto& tensor) { return !tensor.first.ends_with(kLoraMagnitude); });
  const double step = 2e-3 / norm_of(magnitudes);
  LogicalTensors up = weights, down = weights;
  for (const auto& [name, gradient] : magnitudes)
    for (std::size_t i = 0; i < gradient.size(); ++i) up[name][i] += step * gradient[i], down[name][i] -= step * gradient[i];
  const double change = run_layout(config, up, batch, {}).loss - run_layout(config, down, batch, {}).loss;
  EXPECT_NEAR(change * batch.gradient_scale / (2 * step * norm_of(magnitudes) * norm_of(magnitudes)), 1, 2e-2);
}

class Bf16AdapterTest : public ::testing::TestWithParam<Kind> {};

TEST_P(Bf16AdapterTest, StaysNearTheReference) {
  const ModelConfig config = with_adapters(testing::tiny_llama(), "none", false, Base::kFrozen, GetParam());
  const Outcome expected = run_reference(config, testing::tiny_weights(config));
  for (const int degree : {1, 4}) {
    const Outcome outcome = outcome_of(config, {.degree = degree, .sequence_parallel = degree > 1, .compute = DType::kBF16});
    EXPECT_NEAR(outcome.loss, expected.loss, 2e-2 * expected.loss);
    expect_close(outcome.gradients, expected.gradients, 0.08, 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Bf16AdapterTest, ::testing::Values(Kind::kLora, Kind::kDora),
                         [](const auto& info) { return std::string(info.param == Kind::kDora ? "Dora" : "Lora"); });

}  // namespace
}  // namespace trident

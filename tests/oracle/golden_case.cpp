#include "tests/oracle/golden_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <set>

#include "core/file_io.h"
#include "model/gpt.h"
#include "tests/support/safetensors.h"
#include "train/run/weights_source.h"

namespace trident::testing {
namespace {

// Names of the tensors that a Hugging Face file holds transposed.
std::set<std::string> transposed_tensors(const ModelConfig& model) {
  std::set<std::string> names;
  for (int unit = 0; unit < num_units(model); ++unit) {
    for (const ParamSpec& spec : unit_params(model, TensorLayout{}, unit)) {
      for (const PartSpec& part : spec.parts) {
        if (part.transposed_on_disk) names.insert(part.tensor);
      }
    }
  }
  return names;
}

std::vector<float> transposed(const std::vector<float>& in, std::int64_t rows, std::int64_t columns) {
  std::vector<float> out(in.size());
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      out[static_cast<std::size_t>(c * rows + r)] = in[static_cast<std::size_t>(r * columns + c)];
    }
  }
  return out;
}

std::vector<double> doubles(const test::NamedTensor& tensor) {
  const std::vector<float> values = tensor.values<float>();
  return {values.begin(), values.end()};
}

}  // namespace

std::vector<std::string> golden_case_names() { return {"gpt2", "llama", "llama3_rope", "qwen2", "qwen3", "mistral"}; }

GoldenCase read_golden_case(const std::string& name) {
  GoldenCase golden;
  golden.name = name;
  const std::string folder = std::string(TRIDENT_MODEL_GOLDENS "/") + name + "/";
  golden.model_json = read_file(folder + "config.json");
  golden.model = model_config_from_hf_json(golden.model_json, folder + "config.json");
  const std::set<std::string> on_its_side = transposed_tensors(golden.model);
  const auto read = [&](const char* file) { return test::read_safetensors(folder + file + ".safetensors"); };
  const auto named = [&](test::TensorMap tensors) {
    NamedTensors out;
    for (const auto& [tensor_name, tensor] : tensors) {
      if (tensor_name == "losses" || tensor_name == "grad_norms") continue;
      std::vector<float> values = tensor.values<float>();
      if (on_its_side.contains(tensor_name)) values = transposed(values, tensor.shape.at(0), tensor.shape.at(1));
      out[tensor_name] = std::move(values);
    }
    return out;
  };
  const test::TensorMap trained = read("trained"), batch = read("batch");
  golden.weights = named(read("weights"));
  golden.gradients = named(read("gradients"));
  golden.trained = named(trained);
  golden.losses = doubles(trained.at("losses"));
  golden.grad_norms = doubles(trained.at("grad_norms"));
  golden.tokens = batch.at("tokens").values<std::int64_t>();
  golden.targets = batch.at("targets").values<std::int64_t>();
  return golden;
}

std::string GoldenCase::train_config() const {
  return R"({"batch": {"global": 2, "micro": 1, "sequence": 16},
             "precision": {"compute": "fp32"},
             "optimizer": {"type": "adamw", "lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "grad_clip": 1.0},
             "lr_schedule": {"type": "constant", "warmup_steps": 0},
             "model": )" + model_json + "}";
}

LoadSamples GoldenCase::samples() const {
  return [this](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t s = 0; s < kGoldenSequence; ++s) {
        const auto from = static_cast<std::size_t>((first + i) * kGoldenSequence + s), to = static_cast<std::size_t>(s * count + i);
        if (!spans.tokens.empty()) spans.tokens[to] = static_cast<std::int32_t>(tokens.at(from));
        if (!spans.targets.empty()) spans.targets[to] = static_cast<std::int32_t>(targets.at(from));
      }
    }
  };
}

void link_hf_folder(const std::string& golden, const std::string& folder) {
  create_folder(folder);
  const std::string from = std::string(TRIDENT_MODEL_GOLDENS "/") + golden + "/";
  std::filesystem::create_symlink(from + "config.json", folder + "/config.json");
  std::filesystem::create_symlink(from + "weights.safetensors", folder + "/model.safetensors");
}

void load_folder(RankTrainer& trainer, const std::string& folder) {
  WeightsSource source;
  source.folder = folder;
  source.hf = open_hf(folder, TiedCopies::kCompared);
  const auto not_numbers =
      read_weights(source, trainer.store(), trainer.shard_holder(), trainer.device(), trainer.context().compute_stream());
  TRIDENT_CHECK(not_numbers.empty(), "{} has values that are no numbers", folder);
  trainer.store().publish_masters();
}

void set_masters(RankTrainer& trainer, const NamedTensors& tensors) {
  set_masters(trainer, [&](const std::string& tensor, std::int64_t index) -> std::optional<float> {
    const auto found = tensors.find(tensor);
    return found == tensors.end() ? std::nullopt : std::optional(found->second.at(static_cast<std::size_t>(index)));
  });
}

std::string expect_golden_steps(const LayoutRun& run, const std::vector<float>& losses, const std::vector<float>& grad_norms) {
  EXPECT_EQ(run.losses.size(), losses.size());
  double worst = 0;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double loss_off = std::abs(run.losses.at(i) / static_cast<double>(losses[i]) - 1);
    const double norm_off = std::abs(run.grad_norms.at(i) / static_cast<double>(grad_norms.at(i)) - 1);
    worst = std::max({worst, loss_off, norm_off});
    EXPECT_LE(loss_off, 1e-5) << "loss of step " << i + 1;
    EXPECT_LE(norm_off, 1e-5) << "gradient norm of step " << i + 1;
  }
  return fmt::format("{:.3g}", worst);
}

double norm2(const std::vector<float>& values) { return distance(values, std::vector<float>(values.size())); }

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  TRIDENT_CHECK(a.size() == b.size(), "{} and {} values", a.size(), b.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  return std::sqrt(sum);
}

}  // namespace trident::testing

// Training where attention sees a document at a time equals PyTorch with masks of four dimensions, restarted positions and masked
// targets (scripts/oracle/document_goldens.py): losses and gradient norms of six AdamW steps, and every parameter's first gradient,
// on one rank and on many.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "model/config/hf_tensors.h"
#include "tests/oracle/golden_case.h"
#include "tests/support/safetensors.h"

namespace trident::testing {
namespace {

constexpr std::int64_t kDocumentSteps = 6, kDocumentBatch = 6, kDocumentSequence = 24;
constexpr std::int32_t kEod = 1;

struct DocumentGolden {
  std::string folder, model_json;
  ModelConfig model;
  NamedTensors gradients;          // of step 1, matrices [out, in]
  std::vector<std::int32_t> text;  // sample n: from n * kDocumentSequence on
  std::vector<float> losses, grad_norms;
};

DocumentGolden read_document_golden(const std::string& name) {
  DocumentGolden golden;
  golden.folder = TRIDENT_MODEL_GOLDENS "/documents/" + name + "/";
  golden.model_json = read_file(golden.folder + "config.json");
  golden.model = model_config_from_hf_json(golden.model_json, golden.folder + "config.json");
  const test::TensorMap gradients = test::read_safetensors(golden.folder + "gradients.safetensors");
  for (const HfTensor& tensor : hf_tensors(golden.model)) {
    const std::vector<float> values = gradients.at(tensor.name).values<float>();
    std::vector<float>& out = golden.gradients[tensor.name] = values;
    if (!tensor.transposed) continue;
    const auto inputs = static_cast<std::size_t>(tensor.shape[0]), outputs = static_cast<std::size_t>(tensor.shape[1]);
    for (std::size_t i = 0; i < values.size(); ++i) out[i % outputs * inputs + i / outputs] = values[i];
  }
  const test::TensorMap oracle = test::read_safetensors(golden.folder + "oracle.safetensors");
  golden.text = oracle.at("text").values<std::int32_t>();
  golden.losses = oracle.at("losses").values<float>();
  golden.grad_norms = oracle.at("grad_norms").values<float>();
  return golden;
}

LoadSamples samples_of(const DocumentGolden& golden) {
  return [&golden](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
    for (std::int64_t i = 0; i < count; ++i) {
      std::int32_t start = 0;
      for (std::int64_t s = 0; s < kDocumentSequence; ++s) {
        const auto from = static_cast<std::size_t>((first + i) * kDocumentSequence + s);
        const auto to = static_cast<std::size_t>(s * count + i);
        const bool ends = golden.text.at(from) == kEod;
        if (!spans.tokens.empty()) spans.tokens[to] = golden.text.at(from);
        if (!spans.targets.empty()) spans.targets[to] = ends ? -1 : golden.text.at(from + 1);
        if (!spans.document_starts.empty()) spans.document_starts[static_cast<std::size_t>(i * kDocumentSequence + s)] = start;
        if (ends) start = static_cast<std::int32_t>(s + 1);
      }
    }
  };
}

struct DocumentRun {
  std::string golden, layout;
  std::vector<std::string> settings;
  friend void PrintTo(const DocumentRun& run, std::ostream* out) { *out << run.golden << "_" << run.layout; }
};

std::vector<DocumentRun> document_runs() {
  std::vector<DocumentRun> all;
  for (const char* golden : {"gpt2", "llama", "qwen2", "mistral", "llama_softcapped"}) {
    all.push_back({golden, "1rank", {}});
    all.push_back({golden, "micro2_recompute_head_chunk",
                   {"batch.micro=2", "recompute.policy=selective", "recompute.head_chunk=16"}});
    all.push_back({golden, "3DP_2PP_2TP_zero3",
                   {"parallel.data=3", "parallel.pipeline=2", "parallel.tensor=2", "parallel.zero=zero3",
                    "parallel.sequence_parallel=true"}});
  }
  // Each rank bounds the logits of its part of the vocabulary, chunk by chunk.
  all.push_back({"llama_softcapped", "2TP_head_chunk", {"parallel.tensor=2", "recompute.head_chunk=5"}});
  return all;
}

// GPT-2's key biases have no gradient but rounding: softmax does not see them (training_test.cpp).
bool is_blind(const DocumentGolden& golden, const std::string& name, std::size_t i) {
  const auto h = static_cast<std::size_t>(golden.model.query_width());
  return name.ends_with("attn.c_attn.bias") && i >= h && i < 2 * h;
}

class DocumentTraining : public ::testing::TestWithParam<DocumentRun> {};

TEST_P(DocumentTraining, MeetsPyTorch) {
  const DocumentGolden golden = read_document_golden(GetParam().golden);
  const std::string config =
      R"({"batch": {"global": 6, "micro": 1, "sequence": 24}, "precision": {"compute": "fp32"},
          "data": {"reset_attention_mask": true, "reset_position_ids": true, "eod_mask_loss": true, "eod": 1},
          "optimizer": {"type": "adamw", "lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "grad_clip": 1.0},
          "lr_schedule": {"type": "constant", "warmup_steps": 0}, "model": )" +
      golden.model_json + "}";
  LayoutRunOptions options;
  options.steps = static_cast<int>(kDocumentSteps);
  options.load = samples_of(golden);
  options.before_steps = [&](RankTrainer& trainer) { load_folder(trainer, golden.folder); };
  const LayoutRun run = run_layout(config, GetParam().settings, options);

  RecordProperty("worst", expect_golden_steps(run, golden.losses, golden.grad_norms));
  ASSERT_EQ(run.gradients.size(), golden.gradients.size());
  const double whole = static_cast<double>(golden.grad_norms.front());
  for (const auto& [name, expected] : golden.gradients) {
    std::vector<float> g = run.gradients.at(name), r = expected;
    for (std::size_t i = 0; i < r.size(); ++i)
      if (is_blind(golden, name, i)) g[i] = r[i] = 0;
    EXPECT_LE(distance(g, r), 1e-5 * norm2(r) + 1e-9 * whole) << "gradient of " << name << ", norm " << norm2(r);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, DocumentTraining, ::testing::ValuesIn(document_runs()), [](const auto& info) {
  return info.param.golden + "_" + info.param.layout;
});

}  // namespace
}  // namespace trident::testing

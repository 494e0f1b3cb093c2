// Training adapters equals PEFT (scripts/oracle/adapter_goldens.py): losses and gradient norms of ten AdamW steps, every adapter's
// first gradient and its value after them, on one rank and on many.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "tests/oracle/golden_case.h"
#include "tests/support/error_text.h"
#include "tests/support/family_golden.h"
#include "tests/support/param_elements.h"
#include "tests/support/safetensors.h"

namespace trident::testing {
namespace {

constexpr std::int64_t kAdapterBatch = 6, kAdapterSequence = 16;

struct AdapterGolden {
  NamedTensors initial, gradients, trained, lengths;
  std::vector<std::int32_t> stream;  // [steps, kAdapterBatch, kAdapterSequence + 1]
  std::vector<float> losses, grad_norms;
};

AdapterGolden read_adapter_golden(const std::string& name) {
  AdapterGolden golden;
  const test::TensorMap tensors = test::read_safetensors(TRIDENT_MODEL_GOLDENS "/adapters/" + name + ".safetensors");
  for (const auto& [key, tensor] : tensors) {
    const std::size_t dot = key.find('.');
    if (dot == std::string::npos) continue;
    NamedTensors& of = key.starts_with("initial")    ? golden.initial
                       : key.starts_with("gradient") ? golden.gradients
                       : key.starts_with("length")   ? golden.lengths
                                                     : golden.trained;
    of[key.substr(dot + 1)] = tensor.values<float>();
  }
  golden.stream = tensors.at("stream").values<std::int32_t>();
  golden.losses = tensors.at("losses").values<float>();
  golden.grad_norms = tensors.at("grad_norms").values<float>();
  return golden;
}

// Magnitudes that a rank has begun with are the lengths of the base's rows.
void expect_lengths(RankTrainer& trainer, const NamedTensors& lengths) {
  const ParallelContext& context = trainer.context();
  for (const ParamShard& shard : trainer.store().shards())
    for (const ShardPiece& piece : shard.pieces) {
      const ElementMap map(*piece.spec, context.grid().degrees().tensor, context.coordinates().tensor);
      for (std::int64_t i = 0; i < piece.count && piece.trains; ++i) {
        const auto element = map(piece.param_begin + i);
        if (!element || !lengths.contains(element->part->tensor)) continue;
        const float expected = lengths.at(element->part->tensor).at(static_cast<std::size_t>(element->index));
        EXPECT_NEAR(shard.master.as<float>()[piece.shard_begin + i], expected, 1e-6f * expected) << element->part->tensor;
      }
    }
}

struct AdapterRun {
  std::string golden, family, adapter, layout;
  std::vector<std::string> settings;
  friend void PrintTo(const AdapterRun& run, std::ostream* out) { *out << run.golden << "_" << run.layout; }
};

std::vector<AdapterRun> adapter_runs() {
  std::vector<AdapterRun> all;
  const auto add = [&](const std::string& golden, const std::string& family, const std::string& adapter, bool splits) {
    all.push_back({golden, family, adapter, "1rank", {}});
    all.push_back({golden, family, adapter, "micro2_dp3_zero3_recompute",
                   {"batch.micro=2", "parallel.data=3", "parallel.zero=zero3", "recompute.policy=full"}});
    if (splits)
      all.push_back({golden, family, adapter, "tp4_sp", {"parallel.tensor=4", "parallel.sequence_parallel=true"}});
    all.push_back({golden, family, adapter, "tp2_pp2", {"parallel.tensor=2", "parallel.pipeline=2"}});
  };
  add("gpt2", "gpt2", R"("r": 4, "alpha": 8)", true);
  add("llama_layer", "llama", R"("r": 3, "alpha": 8, "layers": [1])", true);
  add("qwen2_rslora", "qwen2", R"("r": 4, "alpha": 6, "rslora": true, "target_modules": ["q_proj", "v_proj", "down_proj"])", true);
  add("llama_saved", "llama",
      R"("r": 2, "alpha": 4, "target_modules": ["q_proj", "v_proj"],
         "modules_to_save": ["embed_tokens", "lm_head", "input_layernorm"])", true);
  add("qwen2_saved", "qwen2", R"("r": 2, "alpha": 4, "target_modules": ["v_proj"], "modules_to_save": ["embed_tokens"])", true);
  add("llama_dora", "llama", R"("type": "dora", "r": 4, "alpha": 6)", true);
  add("gpt2_dora", "gpt2", R"("type": "dora", "r": 3, "alpha": 6)", true);
  add("phi3", "phi3", R"x("r": 2, "alpha": 4, "target_modules": ".*\\.(qkv_proj|o_proj|gate_up_proj)")x", true);
  return all;
}

class AdapterTraining : public ::testing::TestWithParam<AdapterRun> {};

TEST_P(AdapterTraining, MeetsPeft) {
  const AdapterGolden golden = read_adapter_golden(GetParam().golden);
  const std::string folder = TRIDENT_MODEL_GOLDENS "/families/" + GetParam().family;
  const std::string config =
      R"({"batch": {"global": 6, "micro": 1, "sequence": 16}, "precision": {"compute": "fp32"}, "adapter": {)" +
      std::string(GetParam().adapter.starts_with("\"type\"") ? "" : R"("type": "lora", )") + GetParam().adapter +
      R"(}, "optimizer": {"type": "adamw", "lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "grad_clip": 1.0},
          "lr_schedule": {"type": "constant", "warmup_steps": 0}, "model": )" +
      read_file(folder + "/config.json") + "}";
  LayoutRunOptions options;
  options.steps = static_cast<int>(golden.losses.size());
  options.load = stream_samples(golden.stream, kAdapterSequence);
  options.before_steps = [&](RankTrainer& trainer) {
    load_folder(trainer, folder);
    expect_lengths(trainer, golden.lengths);
    set_masters(trainer, golden.initial);
  };
  const LayoutRun run = run_layout(config, GetParam().settings, options);

  RecordProperty("worst", expect_golden_steps(run, golden.losses, golden.grad_norms));
  ASSERT_EQ(run.gradients.size(), golden.gradients.size());
  const double whole = static_cast<double>(golden.grad_norms.front());
  for (const auto& [name, expected] : golden.gradients) {
    ASSERT_TRUE(run.gradients.contains(name)) << name;
    EXPECT_LE(distance(run.gradients.at(name), expected), 1e-5 * norm2(expected) + 1e-9 * whole) << "gradient of " << name;
    const std::vector<float>&trained = golden.trained.at(name), &initial = golden.initial.at(name);
    EXPECT_LE(distance(run.weights.at(name), trained), 1e-3 * distance(trained, initial)) << name << " after the steps";
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, AdapterTraining, ::testing::ValuesIn(adapter_runs()), [](const auto& info) {
  return info.param.golden + "_" + info.param.layout;
});

// Rows are added to the embedding, and to a head of its own, where a model has more tokens than the folder that it begins with.
std::vector<float> with_mean_rows(std::vector<float> rows, std::size_t columns, std::size_t wanted) {
  const std::size_t given = rows.size() / columns;
  std::vector<float> mean(columns);
  for (std::size_t c = 0; c < columns; ++c) {
    double sum = 0;
    for (std::size_t r = 0; r < given; ++r) sum += static_cast<double>(rows[r * columns + c]);
    mean[c] = static_cast<float>(sum / static_cast<double>(given));
  }
  for (std::size_t r = given; r < wanted; ++r) rows.insert(rows.end(), mean.begin(), mean.end());
  return rows;
}

TEST(AddedRows, AreTheMeanOfTheFoldersInEveryLayout) {
  constexpr std::size_t kTokens = 60;
  for (const std::string family : {"llama", "qwen2"}) {
    const std::string folder = TRIDENT_MODEL_GOLDENS "/families/" + family;
    const test::TensorMap file = test::read_safetensors(folder + "/model.safetensors");
    for (const std::vector<std::string>& layout :
         {std::vector<std::string>{}, {"parallel.tensor=2", "parallel.pipeline=2"}, {"parallel.tensor=4"},
          {"parallel.data=2", "parallel.zero=zero3"}, {"parallel.tensor=2", "parallel.data=2", "parallel.zero=zero2"}}) {
      SCOPED_TRACE(fmt::format("{} {}", family, fmt::join(layout, " ")));
      LayoutRunOptions options;
      options.steps = 1;
      options.before_steps = [&](RankTrainer& trainer) { load_folder(trainer, folder); };
      const std::vector<std::string> settings = plus({fmt::format("model.vocab_size={}", kTokens)}, layout);
      const LayoutRun run = run_layout(R"({"batch": {"global": 4, "micro": 1, "sequence": 16}, "precision": {"compute": "fp32"},
          "optimizer": {"lr": 1e-3}, "model": )" + read_file(folder + "/config.json") + "}", settings, options);
      std::size_t grown = 0;
      for (const auto& [name, values] : run.initial) {
        const test::NamedTensor& tensor = file.at(name);
        const bool grows = tensor.shape.front() == 53;
        grown += grows ? 1 : 0;
        EXPECT_EQ(values, grows ? with_mean_rows(tensor.values<float>(), static_cast<std::size_t>(tensor.shape.back()), kTokens)
                                : tensor.values<float>())
            << name;
      }
      EXPECT_EQ(grown, family == "llama" ? 2u : 1u);
    }
  }
}

// Training where attention sees a document at a time equals PyTorch with masks of four dimensions, restarted positions and masked
// targets (scripts/oracle/document_goldens.py): losses and gradient norms of six AdamW steps, and every parameter's first gradient,
// on one rank and on many.

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
  golden.gradients = out_by_in(golden.model, test::read_safetensors(golden.folder + "gradients.safetensors"));
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

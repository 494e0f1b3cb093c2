// Ten training steps of every oracle case, on one rank and spread over ranks in several ways: losses, gradient norms, every
// parameter's first gradient and its value after ten AdamW steps against PyTorch's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "model/config/rope_table.h"
#include "tests/data/temporary_folder.h"
#include "tests/oracle/golden_case.h"
#include "tests/support/family_golden.h"
#include "tests/support/safetensors.h"

namespace trident::testing {
namespace {

struct OracleLayout {
  std::string name;
  std::vector<std::string> settings;
};

std::vector<OracleLayout> oracle_layouts() {
  return {{"1rank", {}},
          {"micro2", {"batch.micro=2"}},
          {"tp2", {"parallel.tensor=2"}},
          {"tp2_sp", {"parallel.tensor=2", "parallel.sequence_parallel=true"}},
          {"tp4", {"parallel.tensor=4"}},  // more ranks than the Llamas' key/value heads
          {"tp4_sp", {"parallel.tensor=4", "parallel.sequence_parallel=true"}},
          {"pp2", {"parallel.pipeline=2"}},
          {"dp2_zero3", {"parallel.data=2", "parallel.zero=zero3"}},
          {"dp2_ddp_full_recompute", {"parallel.data=2", "parallel.zero=ddp", "recompute.policy=full"}},
          {"tp2_sp_pp2_dp2_zero1",
           {"parallel.tensor=2", "parallel.sequence_parallel=true", "parallel.pipeline=2", "parallel.data=2",
            "parallel.zero=zero1"}}};
}

struct Scenario {
  std::string golden;
  OracleLayout layout;
  std::string name() const { return golden + "_" + layout.name; }
};

void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name(); }

std::vector<Scenario> scenarios() {
  std::vector<Scenario> all;
  for (const std::string& golden : golden_case_names()) {
    for (const OracleLayout& layout : oracle_layouts()) all.push_back({golden, layout});
  }
  return all;
}

// A constant added to all keys changes nothing: softmax does not see it. So GPT-2's key biases (the middle third of
// attn.c_attn.bias) have no gradient but rounding, which AdamW blows up to full steps. Rotation makes a key bias matter only as far
// as it turns within the sequence: pairs that turn by less than 2e-3 are nearly as blind. A bias that turns by 1.9e-3 has 6e-5 of
// its tensor's gradient, and gradients may be off by 1e-5 of it. Neither is in what is left here.
constexpr double kBlindAngle = 2e-3;

using Keep = std::function<bool(std::size_t)>;  // of an index in the tensor

bool is_gpt2_key_bias(const std::string& name, std::size_t i, const ModelConfig& model) {
  const auto h = static_cast<std::size_t>(model.query_width());
  return name.ends_with("attn.c_attn.bias") && i >= h && i < 2 * h;
}

bool is_slow_key_bias(const std::string& name, std::size_t i, const ModelConfig& model) {
  if (!name.ends_with("k_proj.bias")) return false;
  const std::vector<float> frequencies = rope_inverse_frequencies(model.rope, model.rotary_dim(), kGoldenSequence);
  const auto pairs = static_cast<std::size_t>(model.rotary_dim() / 2), dim = static_cast<std::size_t>(model.head_dim);
  return static_cast<double>(frequencies.at(i % dim % pairs)) * (kGoldenSequence - 1) < kBlindAngle;
}

std::vector<float> only(const std::vector<float>& values, const Keep& keep) {
  std::vector<float> kept;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (keep(i)) kept.push_back(values[i]);
  }
  return kept;
}

class OracleTraining : public ::testing::TestWithParam<Scenario> {
 protected:
  // Records the largest deviation of each kind beside the verdict (--gtest_output=xml).
  void record(const std::string& what, double deviation) {
    double& worst = worst_[what];
    worst = std::max(worst, deviation);
    RecordProperty("worst_" + what, fmt::format("{:.3g}", worst));
  }

  std::map<std::string, double> worst_;
};

void expect_same_names(const NamedTensors& values, const NamedTensors& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(values.contains(name)) << name;
    ASSERT_EQ(values.at(name).size(), tensor.size()) << name;
  }
}

TEST_P(OracleTraining, MeetsPyTorch) {
  const GoldenCase golden = read_golden_case(GetParam().golden);
  LayoutRunOptions options;
  options.steps = kGoldenSteps;
  options.load = golden.samples();
  const TemporaryFolder place;
  const std::string folder = place / "hf";
  link_hf_folder(golden.name, folder);
  options.before_steps = [&](RankTrainer& trainer) { load_folder(trainer, folder); };
  const LayoutRun run = run_layout(golden.train_config(), GetParam().layout.settings, options);

  expect_same_names(run.initial, golden.weights);
  for (const auto& [name, weight] : golden.weights) ASSERT_EQ(run.initial.at(name), weight) << name << ": was not loaded";

  for (std::size_t i = 0; i < golden.losses.size(); ++i) {
    const double loss_off = std::abs(run.losses.at(i) / golden.losses[i] - 1);
    const double norm_off = std::abs(run.grad_norms.at(i) / golden.grad_norms[i] - 1);
    record("loss", loss_off);
    record("grad_norm", norm_off);
    EXPECT_LE(loss_off, 1e-6) << "loss of step " << i + 1;
    EXPECT_LE(norm_off, 1e-5) << "gradient norm of step " << i + 1;
  }

  expect_same_names(run.gradients, golden.gradients);
  const double whole = golden.grad_norms.front();
  for (const auto& [name, expected] : golden.gradients) {
    const auto blind = [&](std::size_t i) { return is_gpt2_key_bias(name, i, golden.model); };
    const auto seen = [&](std::size_t i) { return !blind(i); };
    const std::vector<float> g = only(run.gradients.at(name), seen), r = only(expected, seen);
    const double off = distance(g, r), allowed = 1e-5 * norm2(r) + 1e-9 * whole;
    record("gradient_over_allowed", off / allowed);
    EXPECT_LE(off, allowed) << "gradient of " << name << ", norm " << norm2(r);
    if (g.size() == expected.size()) continue;
    const double rounding = norm2(only(run.gradients.at(name), blind));
    record("blind_gradient", rounding / whole);
    EXPECT_LT(rounding, 1e-7 * whole) << "key biases of " << name;
  }

  expect_same_names(run.weights, golden.trained);
  for (const auto& [name, trained] : golden.trained) {
    const auto seen = [&](std::size_t i) {
      return !is_gpt2_key_bias(name, i, golden.model) && !is_slow_key_bias(name, i, golden.model);
    };
    const std::vector<float> w10 = only(run.weights.at(name), seen), r10 = only(trained, seen);
    const double moved = distance(r10, only(golden.weights.at(name), seen)), off = distance(w10, r10);
    record("trained_over_moved", off / moved);
    EXPECT_LE(off, 1e-3 * moved) << name << " after ten steps";
  }
}

// Shards that begin and end within rows, on ranks of every kind; FamilyTraining reads them in fp32.
TEST(OracleFolder, EveryRankReadsItsSlices) {
  for (const std::string& name : golden_case_names()) {
    const GoldenCase golden = read_golden_case(name);
    const TemporaryFolder place;
    const std::string folder = place / "hf";
    link_hf_folder(name, folder);
    LayoutRunOptions options;
    options.steps = 1;
    options.before_steps = [&](RankTrainer& trainer) { load_folder(trainer, folder); };
    const LayoutRun run = run_layout(golden.train_config(),
                                     {"parallel=3DP x 2PP x 2TP", "parallel.zero=zero3", "parallel.sequence_parallel=true",
                                      "batch.global=6", "precision.compute=bf16"},
                                     options);
    EXPECT_EQ(run.initial, golden.weights) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, OracleTraining, ::testing::ValuesIn(scenarios()),
                         [](const auto& info) { return info.param.name(); });

// Training every family from a folder that transformers saved equals PyTorch: losses and gradient norms of six AdamW steps, on one
// rank and on twelve.

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
  options.load = stream_samples(golden.stream, kFamilySequence);
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

// Learning from preferences equals TRL (scripts/oracle/dpo_goldens.py): losses, gradient norms and rewards of ten AdamW steps with
// every function of a pair, on one rank and on many.

constexpr std::int64_t kPairBatch = 4, kAnswerRow = 16, kPairRow = 2 * kAnswerRow;

struct PreferenceGolden {
  std::vector<std::int32_t> tokens, lengths;  // [pairs, 2, kAnswerRow], [pairs, 3]: prompt, chosen, rejected
  NamedTensors initial;                       // adapters
  std::vector<float> losses, grad_norms, chosen, rejected, accuracies, margins;
  std::int64_t pairs() const { return std::ssize(lengths) / 3; }
};

PreferenceGolden read_preference_golden(const std::string& name) {
  PreferenceGolden golden;
  const test::TensorMap tensors = test::read_safetensors(TRIDENT_MODEL_GOLDENS "/preferences.safetensors");
  golden.tokens = tensors.at("tokens").values<std::int32_t>();
  golden.lengths = tensors.at("lengths").values<std::int32_t>();
  const std::string adapters = name + ".initial.";
  for (const auto& [key, tensor] : tensors)
    if (key.starts_with(adapters)) golden.initial[key.substr(adapters.size())] = tensor.values<float>();
  const auto column = [&](const char* key) { return tensors.at(name + "." + key).values<float>(); };
  golden.losses = column("losses"), golden.grad_norms = column("grad_norms");
  golden.chosen = column("chosen"), golden.rejected = column("rejected");
  golden.accuracies = column("accuracies"), golden.margins = column("margins");
  return golden;
}

// The answers of `together` pairs stand side by side, each behind the prompt, as trident data prepare --preference and data pack
// write them.
LoadSamples pairs_of(const PreferenceGolden& golden, std::int64_t together = 1) {
  return [&golden, together](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
    const std::int64_t rows = together * kPairRow;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t pair = (first + i) * together % golden.pairs();
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows)), targets(tokens.size(), -1), starts(tokens.size());
      std::iota(starts.begin(), starts.end(), 0);
      std::size_t at = 0;
      for (std::int64_t sequence = 2 * pair; sequence < 2 * (pair + together); ++sequence) {
        const auto begin = static_cast<std::size_t>(sequence * kAnswerRow), of = static_cast<std::size_t>(sequence / 2 * 3);
        const auto prompt = static_cast<std::size_t>(golden.lengths[of]),
                   length = prompt + static_cast<std::size_t>(golden.lengths[of + 1 + static_cast<std::size_t>(sequence % 2)]);
        for (std::size_t s = 0; s < length; ++s) {
          tokens[at + s] = golden.tokens[begin + s];
          starts[at + s] = static_cast<std::int32_t>(at);
          if (s + 1 >= prompt && s + 1 < length) targets[at + s] = golden.tokens[begin + s + 1];
        }
        at += length;
      }
      for (std::int64_t s = 0; s < rows; ++s) {
        const auto from = static_cast<std::size_t>(s), to = static_cast<std::size_t>(s * count + i);
        if (!spans.tokens.empty()) spans.tokens[to] = tokens[from];
        if (!spans.targets.empty()) spans.targets[to] = targets[from];
        if (!spans.document_starts.empty()) spans.document_starts[static_cast<std::size_t>(i * rows + s)] = starts[from];
      }
      if (!spans.numbers.empty()) spans.numbers[static_cast<std::size_t>(i)] = 2 * pair;
    }
  };
}

struct PreferenceRun {
  std::string golden, loss, more, layout;
  std::vector<std::string> settings;
  std::int64_t together = 1;  // pairs of a sample
  friend void PrintTo(const PreferenceRun& run, std::ostream* out) { *out << run.golden << "_" << run.layout; }
};

std::vector<PreferenceRun> preference_runs() {
  std::vector<PreferenceRun> all;
  const auto add = [&](const std::string& golden, const std::string& loss, const std::string& more = "") {
    all.push_back({golden, loss, more, "1rank", {}});
    all.push_back({golden, loss, more, "2DP_2PP_2TP_zero2",
                   {"parallel.data=2", "parallel.pipeline=2", "parallel.tensor=2", "parallel.zero=zero2"}});
    all.push_back({golden, loss, more, "packed", {"batch.global=2", "batch.sequence=64"}, 2});
  };
  add("sigmoid", R"("beta": 0.5)");
  add("ipo", R"("variant": "ipo", "beta": 0.3)");
  add("hinge", R"("variant": "hinge", "beta": 0.5)");
  add("smoothed", R"("beta": 0.5, "label_smoothing": 0.2)");
  add("with_nll", R"("beta": 0.5, "nll_weight": 0.7)");
  add("normalized", R"("beta": 2.0, "length_normalized": true)");
  add("lora", R"("beta": 0.5)", R"("adapter": {"type": "lora", "r": 4, "alpha": 8},)");
  return all;
}

class PreferenceTraining : public ::testing::TestWithParam<PreferenceRun> {};

TEST_P(PreferenceTraining, MeetsTrl) {
  const PreferenceGolden golden = read_preference_golden(GetParam().golden);
  const std::string folder = TRIDENT_MODEL_GOLDENS "/families/qwen2";
  const std::string config =
      R"({"batch": {"global": 4, "micro": 1, "sequence": 32}, "precision": {"compute": "fp32"}, "data": {"samples": "packed"},
          "optimizer": {"type": "adamw", "lr": 3e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0, "grad_clip": 1.0},
          "lr_schedule": {"type": "constant", "warmup_steps": 0}, )" +
      GetParam().more + R"("loss": {"type": "dpo", )" + GetParam().loss + R"(}, "model": )" +
      read_file(folder + "/config.json") + "}";
  LayoutRunOptions options;
  const std::int64_t last = std::ssize(golden.losses) - 1;
  options.steps = static_cast<int>(last);
  options.load = pairs_of(golden, GetParam().together);
  options.before_steps = [&](RankTrainer& trainer) {
    load_folder(trainer, folder);
    set_masters(trainer, golden.initial);
    std::vector<float> reference(static_cast<std::size_t>(2 * golden.pairs()));
    trainer.refer(options.load, golden.pairs() / GetParam().together, reference);
    const TensorView all(reference.data(), DType::kF32, {std::ssize(reference)});
    trainer.context().world().all_reduce(trainer.context().host_stream(), all, ReduceOp::kSum);
    trainer.context().host_stream().synchronize();
    trainer.set_reference(std::move(reference));
  };
  // An evaluation before the last step says what that step says.
  std::mutex mutex;
  std::vector<EvalResult> evaluations;
  StepResult end;
  options.after_steps = [&](RankTrainer& trainer) {
    const LoadSamples load = [&](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
      options.load(last * kPairBatch / GetParam().together + first, count, spans);
    };
    const EvalResult evaluated = trainer.evaluate(load, kPairBatch / GetParam().together, {}, trainer.reference());
    const StepResult stepped = trainer.step(options.load);
    const std::lock_guard lock(mutex);
    evaluations.push_back(evaluated);
    if (trainer.context().rank() == 0) end = stepped;
  };
  LayoutRun run = run_layout(config, GetParam().settings, options);
  run.losses.push_back(end.loss), run.grad_norms.push_back(end.grad_norm), run.rewards.push_back(end.rewards.value());

  ASSERT_EQ(run.rewards.size(), golden.chosen.size());
  double worst = 0;
  const auto expect_near = [&](double value, float expected, const char* what, std::size_t step) {
    const double off = std::abs(value - double{expected}) / std::max(1.0, std::abs(double{expected}));
    worst = std::max(worst, off);
    EXPECT_LE(off, 1e-5) << what << " of step " << step + 1;
  };
  for (std::size_t i = 0; i < run.rewards.size(); ++i) {
    expect_near(run.losses[i], golden.losses[i], "loss", i);
    expect_near(run.grad_norms[i], golden.grad_norms[i], "gradient norm", i);
    expect_near(run.rewards[i].chosen, golden.chosen[i], "chosen reward", i);
    expect_near(run.rewards[i].rejected, golden.rejected[i], "rejected reward", i);
    expect_near(run.rewards[i].margin(), golden.margins[i], "margin", i);
    EXPECT_EQ(run.rewards[i].accuracy, double{golden.accuracies[i]}) << "step " << i + 1;
  }
  RecordProperty("worst", fmt::format("{:.3g}", worst));

  ASSERT_FALSE(evaluations.empty());
  for (const EvalResult& evaluation : evaluations) {
    const auto at = static_cast<std::size_t>(last);
    expect_near(evaluation.loss, golden.losses[at], "evaluated loss", at);
    expect_near(evaluation.rewards->chosen, golden.chosen[at], "evaluated chosen reward", at);
    expect_near(evaluation.rewards->rejected, golden.rejected[at], "evaluated rejected reward", at);
    EXPECT_EQ(evaluation.rewards->accuracy, double{golden.accuracies[at]});
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, PreferenceTraining, ::testing::ValuesIn(preference_runs()), [](const auto& info) {
  return info.param.golden + "_" + info.param.layout;
});

}  // namespace
}  // namespace trident::testing

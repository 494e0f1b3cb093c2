// Learning from preferences equals TRL (scripts/oracle/dpo_goldens.py): losses, gradient norms and rewards of ten AdamW steps with
// every function of a pair, on one rank and on many.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "tests/oracle/golden_case.h"
#include "tests/support/safetensors.h"

namespace trident::testing {
namespace {

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
  options.steps = static_cast<int>(golden.losses.size());
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
  const LayoutRun run = run_layout(config, GetParam().settings, options);

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

  // An evaluation before the last step says what that step says.
  const std::int64_t last = std::ssize(golden.losses) - 1;
  options.steps = static_cast<int>(last);
  std::mutex mutex;
  std::vector<EvalResult> evaluations;
  options.after_steps = [&](RankTrainer& trainer) {
    const LoadSamples load = [&](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
      options.load(last * kPairBatch / GetParam().together + first, count, spans);
    };
    const EvalResult result = trainer.evaluate(load, 1, {}, trainer.reference());
    const std::lock_guard lock(mutex);
    evaluations.push_back(result);
  };
  run_layout(config, GetParam().settings, options);
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

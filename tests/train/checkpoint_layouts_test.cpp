// A checkpoint outlives its layout: saved under one, read under another, saved there again, nothing has changed; and the next steps
// are those of the run that never stopped.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_check.h"
#include "checkpoint/checkpoint_diff.h"
#include "checkpoint/checkpoint_folder.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/layout_run.h"
#include "tests/support/trainer_checkpoints.h"

namespace trident::testing {
namespace {

constexpr int kBefore = 2, kAfter = 4;  // steps

enum class Equal : std::uint8_t { kBits, kWithinTolerance, kNotCompared };

struct Pair {
  const char* name;
  std::vector<std::string> a, b;
  Equal losses = Equal::kWithinTolerance;
  bool gpt2 = false;
};

void PrintTo(const Pair& pair, std::ostream* out) { *out << pair.name; }

std::vector<std::string> layout(int dp, int pp, int tp, std::vector<std::string> more = {}) {
  more.push_back(fmt::format("parallel={}DP x {}PP x {}TP", dp, pp, tp));
  return more;
}

const std::string kTiedWeights = "model.tie_word_embeddings=true", kBf16 = "precision.compute=bf16";

std::vector<Pair> pairs() {
  const std::string sp = "parallel.sequence_parallel=true", ddp = "parallel.zero=ddp", zero2 = "parallel.zero=zero2",
                    zero3 = "parallel.zero=zero3", sgo = "parallel.zero=shard_grad_op", small = "parallel.bucket_mb=0.02",
                    rounded = "precision.stochastic_rounding=true", some = R"(train.only=".*layers\\.(9|1\\d)\\..*(q_proj|mlp).*")",
                    lookup = R"(train.freeze="model\\.embed_tokens.*")";
  const std::vector<std::string> interleaved{"parallel.schedule=interleaved", "parallel.virtual_stages=2"};
  return {
      {"ToItself", layout(2, 2, 2), layout(2, 2, 2), Equal::kBits},
      {"ZeroToDdp", layout(2, 1, 2), layout(2, 1, 2, {ddp}), Equal::kBits},
      {"Zero2ToZero3", layout(2, 2, 1, {zero2}), layout(2, 2, 1, {zero3, small}), Equal::kBits},
      {"ShardGradOpToZero3OtherBuckets", layout(4, 1, 1, {sgo}), layout(4, 1, 1, {zero3, small}), Equal::kBits},
      {"PipelineToNone", layout(1, 4, 1), layout(1, 1, 1), Equal::kBits},
      {"TiedOneToFourStages", layout(2, 1, 1, {kTiedWeights}), layout(2, 4, 1, {kTiedWeights}), Equal::kBits},
      {"TiedFourStagesToOne", layout(1, 4, 2, {kTiedWeights, small}), layout(1, 1, 2, {kTiedWeights}), Equal::kBits},
      {"InterleavedToOneStage", layout(2, 2, 2, interleaved), layout(2, 1, 2), Equal::kBits},
      {"MoreTensorRanksThanKeyHeads", layout(1, 1, 8), layout(2, 2, 2)},
      {"FewerTensorRanksThanKeyHeads", layout(1, 2, 2, {zero3}), layout(1, 1, 8, {sp})},
      {"OtherPaddingOfTheVocabulary", layout(8, 1, 1, {zero3, small}), layout(1, 2, 4, {sp})},
      {"UnevenLayers", layout(1, 4, 1, {"parallel.layers=[1,5,4,6]"}), layout(2, 2, 1, {"parallel.layers=[9,7]"})},
      {"ThreeDataRanks", layout(3, 1, 2, {"batch.global=12", small}), layout(2, 3, 1, {"batch.global=12", zero2})},
      {"OneRankToEight", layout(1, 1, 1), layout(2, 2, 2, {sp, zero3, small})},
      {"Gpt2", layout(2, 2, 2, {small}), layout(1, 1, 1), Equal::kWithinTolerance, true},
      {"Gpt2ToTensorRanks", layout(4, 1, 1, {zero3, small}), layout(1, 2, 4, {sp}), Equal::kWithinTolerance, true},
      {"Gpt2TiedStages", layout(2, 4, 1, {ddp}), layout(2, 1, 1, {small}), Equal::kBits, true},
      {"Bf16", layout(2, 2, 1, {kBf16}), layout(2, 1, 1, {kBf16, ddp}), Equal::kBits},
      {"Bf16RoundedAtRandom", layout(2, 2, 1, {kBf16, rounded, zero3}), layout(2, 1, 1, {kBf16, rounded, zero3, small}),
       Equal::kBits},
      {"Bf16RoundedAtRandomOtherTensorRanks", layout(1, 1, 4, {kBf16, rounded}), layout(2, 2, 2, {kBf16, rounded, sp}),
       Equal::kNotCompared},
      {"Lion", layout(2, 2, 1, {"optimizer.type=lion"}), layout(2, 1, 1, {"optimizer.type=lion", ddp, small}), Equal::kBits},
      {"Bf16LionRoundedAtRandom", layout(2, 2, 1, {"optimizer.type=lion", kBf16, rounded, zero3}),
       layout(2, 1, 1, {"optimizer.type=lion", kBf16, rounded, zero3, small}), Equal::kBits},
      {"LionToTensorRanks", layout(4, 1, 1, {"optimizer.type=lion", zero3}), layout(1, 2, 4, {"optimizer.type=lion", sp})},
      {"Frozen", layout(2, 2, 1, {some}), layout(2, 1, 1, {some, zero3, small}), Equal::kWithinTolerance},
      {"FrozenBf16", layout(2, 2, 1, {some, kBf16, zero3}), layout(2, 1, 1, {some, kBf16, zero3, small}), Equal::kBits},
      {"FrozenPartsOfFusedTensors", layout(1, 1, 8, {some}), layout(2, 2, 2, {some, sp})},
      {"FrozenTied", layout(2, 4, 1, {kTiedWeights, lookup}), layout(2, 1, 1, {kTiedWeights, lookup}), Equal::kBits},
      {"FrozenFp32ToBf16", layout(2, 1, 2, {some}), layout(1, 2, 2, {kBf16, some}), Equal::kNotCompared},
      {"FrozenBf16ToFp32", layout(1, 1, 4, {kBf16, some}), layout(4, 1, 1, {zero3, some}), Equal::kNotCompared},
      {"Fp32ToBf16", layout(2, 1, 2), layout(1, 2, 2, {kBf16}), Equal::kNotCompared},
      {"Bf16ToFp32", layout(1, 1, 4, {kBf16}), layout(4, 1, 1, {zero3}), Equal::kNotCompared},
  };
}

class CheckpointLayouts : public ::testing::TestWithParam<Pair> {};

TEST_P(CheckpointLayouts, NothingChanges) {
  const Pair& pair = GetParam();
  const std::string config = pair.gpt2 ? tiny_gpt2_config() : tiny_llama_config();
  const TemporaryFolder folder;
  const std::string first = folder / "a", second = folder / "b";
  const std::string first_step = fmt::format("{}/{}", first, checkpoint_name(kBefore)),
                    second_step = fmt::format("{}/{}", second, checkpoint_name(kBefore));
  run_layout(config, pair.a, {.steps = kBefore, .after_steps = [&](RankTrainer& trainer) { go_on_and_save(trainer, "", first); }});
  const LayoutRun rest =
      run_layout(config, pair.b,
                 {.steps = kAfter, .before_steps = [&](RankTrainer& trainer) { go_on_and_save(trainer, first_step, second); }});

  StoredTensors a(first_step), b(second_step);
  const CheckpointDifference difference = compare_checkpoints(a, b);
  EXPECT_TRUE(difference.is_equal()) << (difference.tensors.empty() ? difference.state.front()
                                                                    : fmt::format("{}: {}", difference.tensors.front().key,
                                                                                  difference.tensors.front().what));
  EXPECT_GT(difference.compared, 3 * 16);
  EXPECT_EQ(a.manifest().tensors, b.manifest().tensors);  // what is frozen, too, does not depend on how the layout fuses it
  if (pair.losses == Equal::kNotCompared) return;
  const LayoutRun whole = run_layout(config, pair.a, {.steps = kBefore + kAfter});
  LayoutRun expected = whole;
  expected.losses.erase(expected.losses.begin(), expected.losses.begin() + kBefore);
  expected.grad_norms.erase(expected.grad_norms.begin(), expected.grad_norms.begin() + kBefore);
  EXPECT_EQ(compare_losses(rest, expected), "");
  if (pair.losses != Equal::kBits) return;
  EXPECT_EQ(rest.losses, expected.losses);
  EXPECT_EQ(rest.grad_norms, expected.grad_norms);
  EXPECT_EQ(rest.weights, whole.weights);
}

INSTANTIATE_TEST_SUITE_P(Pairs, CheckpointLayouts, ::testing::ValuesIn(pairs()),
                         [](const auto& info) { return std::string(info.param.name); });

// Checkpoints of format 1 that were made once and lie in the repository (tests/checkpoint/format_1/README.md): they load for ever,
// in any layout, and the run that saved them goes on as it did then.

constexpr int kStepsBefore = 3, kStepsAfter = 3;  // steps

struct Committed {
  const char* name;
  std::string model;
  std::vector<std::string> saved;                   // settings of the run that was saved
  std::vector<std::vector<std::string>> loaded_as;  // and of those that go on
};

void PrintTo(const Committed& committed, std::ostream* out) { *out << committed.name; }

std::vector<Committed> committed() {
  const std::string small = "parallel.bucket_mb=0.002", fp32 = "precision.compute=fp32", bf16 = "precision.compute=bf16";
  return {{"llama",
           R"("model_type": "llama", "vocab_size": 61, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 2, "intermediate_size": 24, "max_position_embeddings": 32, "tie_word_embeddings": true)",
           {"parallel=1DP x 2PP x 2TP", bf16},
           {{"parallel=1DP x 2PP x 2TP", fp32},
            {"parallel=1DP x 1PP x 1TP", fp32},
            {"parallel=2DP x 1PP x 4TP", "parallel.zero=zero3", small, fp32}}},
          {"gpt2",
           R"("model_type": "gpt2", "vocab_size": 61, "n_embd": 8, "n_layer": 2, "n_head": 4, "n_positions": 32)",
           {"parallel=2DP x 1PP x 1TP", fp32},
           {{"parallel=2DP x 1PP x 1TP", fp32}, {"parallel=1DP x 2PP x 2TP", small, fp32}}}};
}

std::string config_of(const Committed& committed) {
  return R"({"model": {)" + committed.model + R"(}, "batch": {"global": 4, "micro": 1, "sequence": 16}, "optimizer": {"lr": 3e-3},
             "lr_schedule": {"type": "constant", "warmup_steps": 0}})";
}

std::string folder_of(const std::string& name) { return std::string(TRIDENT_FORMAT_1 "/") + name; }

LayoutRun go_on(const Committed& committed, const std::vector<std::string>& settings, const std::string& step) {
  return run_layout(config_of(committed), settings,
                    {.steps = kStepsAfter, .before_steps = [&](RankTrainer& trainer) { go_on_and_save(trainer, step, ""); }});
}

class FormatOne : public ::testing::TestWithParam<Committed> {};

TEST_P(FormatOne, LoadsForEver) {
  const Committed& committed = GetParam();
  const TemporaryFolder folder;
  std::filesystem::copy(folder_of(committed.name), folder.path(), std::filesystem::copy_options::recursive);
  const std::string step = folder / checkpoint_name(kStepsBefore);
  const JsonValue recorded = read_json_file(folder / "recorded.json", {.blame = ExitCode::kData});

  const Manifest manifest = open_manifest(step);
  EXPECT_EQ(manifest.state.updates, kStepsBefore);
  EXPECT_EQ(check_checkpoint(step, manifest), std::vector<std::string>());
  StoredTensors tensors(step);
  const JsonValue::Object& norms = recorded.find("norms")->members();
  ASSERT_EQ(norms.size(), manifest.tensors.size());
  for (std::size_t t = 0; t < norms.size(); ++t) {
    EXPECT_EQ(norms[t].key, manifest.tensors[t].name);
    EXPECT_NEAR(norms[t].value.as_number(), weight_norm(tensors, t), 1e-12 * norms[t].value.as_number()) << norms[t].key;
  }
  // As losses of other processors (docs/numerics.md), a little apart since the gradients are.
  for (const std::vector<std::string>& settings : committed.loaded_as) {
    const LayoutRun run = go_on(committed, settings, step);
    const JsonValue::Array& losses = recorded.find("losses")->items();
    ASSERT_EQ(run.losses.size(), losses.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(run.losses[i], losses[i].as_number(), 1e-5 * losses[i].as_number()) << settings.front();
  }
}

// How they were made: see the README. Not for the future: a format that can be read for ever is written once.
TEST_P(FormatOne, DISABLED_IsMade) {
  const Committed& committed = GetParam();
  const std::string folder = folder_of(committed.name), step = folder + "/" + checkpoint_name(kStepsBefore);
  ASSERT_FALSE(is_there(step)) << step << ": is there already";
  create_folder(folder);
  run_layout(config_of(committed), committed.saved,
             {.steps = kStepsBefore, .after_steps = [&](RankTrainer& trainer) { go_on_and_save(trainer, "", folder); }});
  StoredTensors tensors(step);
  JsonValue recorded, norms;
  for (std::size_t t = 0; t < tensors.manifest().tensors.size(); ++t)
    norms.set(tensors.manifest().tensors[t].name, weight_norm(tensors, t));
  const LayoutRun run = go_on(committed, committed.loaded_as.front(), step);
  recorded.set("norms", norms);
  recorded.set("losses", JsonValue::Array(run.losses.begin(), run.losses.end()));
  write_file(folder + "/recorded.json", to_json_text(recorded, 2) + "\n");
}

INSTANTIATE_TEST_SUITE_P(Committed, FormatOne, ::testing::ValuesIn(committed()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace trident::testing

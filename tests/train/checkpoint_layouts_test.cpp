// A checkpoint outlives its layout: saved under one, read under another, saved there again, nothing has changed; and the next steps
// are those of the run that never stopped.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_diff.h"
#include "checkpoint/checkpoint_folder.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/layout_run.h"
#include "tests/support/trainer_checkpoints.h"

namespace trident::testing {
namespace {

constexpr int kBefore = 2, kAfter = 10;  // steps

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

const std::string kTied = "model.tie_word_embeddings=true", kBf16 = "precision.compute=bf16";

std::vector<Pair> pairs() {
  const std::string sp = "parallel.sequence_parallel=true", ddp = "parallel.zero=ddp", zero2 = "parallel.zero=zero2",
                    zero3 = "parallel.zero=zero3", sgo = "parallel.zero=shard_grad_op", small = "parallel.bucket_mb=0.02",
                    rounded = "precision.stochastic_rounding=true";
  const std::vector<std::string> interleaved{"parallel.schedule=interleaved", "parallel.virtual_stages=2"};
  return {
      {"ToItself", layout(2, 2, 2), layout(2, 2, 2), Equal::kBits},
      {"ZeroToDdp", layout(2, 1, 2), layout(2, 1, 2, {ddp}), Equal::kBits},
      {"Zero2ToZero3", layout(2, 2, 1, {zero2}), layout(2, 2, 1, {zero3, small}), Equal::kBits},
      {"ShardGradOpToZero3OtherBuckets", layout(4, 1, 1, {sgo}), layout(4, 1, 1, {zero3, small}), Equal::kBits},
      {"PipelineToNone", layout(1, 4, 1), layout(1, 1, 1), Equal::kBits},
      {"TiedOneToFourStages", layout(2, 1, 1, {kTied}), layout(2, 4, 1, {kTied}), Equal::kBits},
      {"TiedFourStagesToOne", layout(1, 4, 2, {kTied, small}), layout(1, 1, 2, {kTied}), Equal::kBits},
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

  const LayoutRun whole = run_layout(config, pair.a, {.steps = kBefore + kAfter});
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
  if (pair.losses == Equal::kNotCompared) return;
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

}  // namespace
}  // namespace trident::testing

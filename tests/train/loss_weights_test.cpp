// Losses in which targets weigh differently: what a run computes is what its formula says, in every layout.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>

#include "data/document_starts.h"
#include "support/layout_run.h"
#include "support/parity_cases.h"

namespace trident::testing {
namespace {

constexpr std::int64_t kWeighedSequence = 16, kWeighedSamples = 8;
constexpr std::int32_t kSplit = 5;  // the token behind which a document begins

struct Place {
  std::int64_t sample = 0;
  std::int32_t start = 0;
  auto operator<=>(const Place&) const = default;
};

// Samples of 1 to 7 documents. Every third target does not count, nor does any of another document than `only`, if that is given.
LoadSamples samples_of_documents(std::optional<Place> only = {}, std::map<Place, int>* counted = nullptr) {
  return [=](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
    const LoadSamples random = random_tokens(97, kWeighedSequence);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(kWeighedSequence * count)), targets(tokens.size()),
        starts(tokens.size());
    random(first, count, {.tokens = tokens, .targets = targets});
    for (std::vector<std::int32_t>* ids : {&tokens, &targets})
      for (std::int32_t& id : *ids) id = id % 4 == 0 ? kSplit : id;
    for (std::int64_t i = 0; i < count; ++i) {
      std::vector<std::int32_t> inputs, begins;
      for (std::int64_t s = 0; s < kWeighedSequence; ++s) inputs.push_back(tokens[static_cast<std::size_t>(s * count + i)]);
      find_behind_eod(inputs, kSplit, begins);
      mark_documents(begins, true, kWeighedSequence, i, count, {.targets = targets, .document_starts = starts});
      for (std::int64_t s = 0; s < kWeighedSequence; ++s) {
        std::int32_t& target = targets[static_cast<std::size_t>(s * count + i)];
        const Place place{first + i, starts[static_cast<std::size_t>(i * kWeighedSequence + s)]};
        if ((s + first + i) % 3 == 0 || (only && place != *only)) target = -1;
        if (counted != nullptr && target >= 0) ++(*counted)[place];
      }
    }
    if (!spans.tokens.empty()) std::ranges::copy(tokens, spans.tokens.begin());
    if (!spans.targets.empty()) std::ranges::copy(targets, spans.targets.begin());
    if (!spans.document_starts.empty()) std::ranges::copy(starts, spans.document_starts.begin());
  };
}

const std::vector<std::string> kDocuments{"data.reset_attention_mask=true", "data.reset_position_ids=true",
                                          "data.eod_mask_loss=true", "data.eod=5"};

LayoutRun run_documents(const ParityCase& layout, const LoadSamples& load, std::vector<std::string> more, int steps = 3) {
  std::vector<std::string> settings = layout.settings();
  settings.insert(settings.end(), kDocuments.begin(), kDocuments.end());
  settings.insert(settings.end(), more.begin(), more.end());
  return run_layout(tiny_llama_config(), settings, {.steps = steps, .load = load});
}

// A run on each sequence alone, by the mean of its tokens, says what the mean over sequences is.
TEST(LossOfSequences, IsTheMeanOfTheLossesOfEachSequenceAlone) {
  std::map<Place, int> sequences;
  std::vector<std::int32_t> targets(static_cast<std::size_t>(kWeighedSequence * kWeighedSamples));
  samples_of_documents({}, &sequences)(0, kWeighedSamples, {.targets = targets});
  ASSERT_GT(sequences.size(), 12u);
  const LayoutRun together = run_documents({}, samples_of_documents(), {"loss.normalize=sequence"}, 1),
                  by_token = run_documents({}, samples_of_documents(), {}, 1);
  double loss = 0;
  NamedTensors gradients;
  const double share = 1.0 / static_cast<double>(sequences.size());
  std::map<std::string, std::vector<double>> sums;
  for (const auto& [place, counted] : sequences) {
    const LayoutRun alone = run_documents({}, samples_of_documents(place), {}, 1);
    loss += share * alone.losses[0];
    for (const auto& [name, values] : alone.gradients) {
      std::vector<double>& sum = sums[name];
      sum.resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) sum[i] += share * double{values[i]};
    }
  }
  for (const auto& [name, sum] : sums) gradients[name].assign(sum.begin(), sum.end());
  EXPECT_NEAR(together.losses[0], loss, 1e-6 * loss);
  EXPECT_EQ("", compare_gradients(together.gradients, gradients));
  EXPECT_GT(std::abs(by_token.losses[0] - loss), 1e-4) << "these sequences are not of one length";
}

TEST(LossOfSequences, IsThatOfTokensToTheBitWhereSequencesAreOfOneLength) {
  const LoadSamples random = random_tokens(97, kWeighedSequence);
  const LoadSamples load = [&](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
    random(first, count, spans);
    for (std::size_t i = 0; i < spans.document_starts.size(); ++i)
      spans.document_starts[i] = static_cast<std::int32_t>(i) % kWeighedSequence / 4 * 4;
  };
  EXPECT_EQ("", compare_bits(run_documents({}, load, {"loss.normalize=sequence"}), run_documents({}, load, {})));
}

TEST(LossOfSequences, IsTheSameInEveryLayout) {
  const std::vector<std::string> sequence{"loss.normalize=sequence"}, chunks{"loss.normalize=sequence", "recompute.head_chunk=5"};
  const LayoutRun one = run_documents({}, samples_of_documents(), sequence);
  for (const ParityCase& layout : {ParityCase{1, 2, 2, false, "zero3", "1f1b"}, {1, 4, 1, false, "zero1", "interleaved"},
                                   {2, 2, 2, true, "zero1", "gpipe"}, {1, 1, 4, false, "zero2", "1f1b"}}) {
    const LayoutRun other = run_documents(layout, samples_of_documents(), sequence);
    EXPECT_EQ("", compare_losses(other, one)) << layout.name();
    EXPECT_EQ("", compare_gradients(other.gradients, one.gradients)) << layout.name();
    EXPECT_EQ("", compare_bits(other, run_documents(layout.without_pipeline(), samples_of_documents(), sequence))) << layout.name();
    EXPECT_EQ(other.planned_bytes, other.high_water) << layout.name();
  }
  EXPECT_EQ("", compare_gradients(run_documents({}, samples_of_documents(), chunks).gradients, one.gradients));
}

}  // namespace
}  // namespace trident::testing

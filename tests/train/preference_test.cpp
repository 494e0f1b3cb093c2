// Preference optimisation: the loss of a pair and its derivatives, and runs that have it, in every layout.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numbers>
#include <optional>

#include "data/document_starts.h"
#include "support/layout_run.h"
#include "support/parity_cases.h"
#include "tests/support/error_text.h"
#include "train/run/preference_loss.h"

namespace trident::testing {
namespace {

LossConfig loss_of(DpoVariant variant, double smoothing, double nll_weight, bool normalized) {
  LossConfig config;
  config.type = LossType::kDpo;
  config.beta = 0.5;
  config.variant = variant;
  config.label_smoothing = smoothing, config.nll_weight = nll_weight, config.length_normalized = normalized;
  return config;
}

TEST(PairLoss, HasTheDerivativesOfItsFormula) {
  constexpr double kStep = 0x1p-9;  // nats and steps are numbers of f32
  for (const LossConfig& config :
       {loss_of(DpoVariant::kSigmoid, 0, 0, false), loss_of(DpoVariant::kSigmoid, 0.1, 0.7, false),
        loss_of(DpoVariant::kSigmoid, 0, 0, true), loss_of(DpoVariant::kIpo, 0, 0.2, false),
        loss_of(DpoVariant::kHinge, 0, 0, false)})
    for (const double nats : {2.25, 5.5, 12.0}) {
      const Answer chosen{nats, 3, -4.0f}, rejected{6.5, 5, -6.0f};
      const auto at = [&](double a, double b) {
        return pair_loss(config, {nats + a, 3, -4.0f}, {6.5 + b, 5, -6.0f}).loss;
      };
      const PairLoss pair = pair_loss(config, chosen, rejected);
      EXPECT_NEAR(pair.d_chosen, (at(kStep, 0) - at(-kStep, 0)) / (2 * kStep), 1e-5);
      EXPECT_NEAR(pair.d_rejected, (at(0, kStep) - at(0, -kStep)) / (2 * kStep), 1e-5);
      EXPECT_NEAR(pair.reward_chosen, 0.5 * (4.0 - nats), 1e-12);
      EXPECT_NEAR(pair.reward_rejected, 0.5 * (6.0 - 6.5), 1e-12);
    }
}

TEST(PairLoss, IsKnownWhereModelAndReferenceAgree) {
  const Answer chosen{4, 3, -4.0f}, rejected{6, 5, -6.0f};
  const auto loss = [&](DpoVariant variant, double smoothing) {
    return pair_loss(loss_of(variant, smoothing, 0, false), chosen, rejected).loss;
  };
  EXPECT_NEAR(loss(DpoVariant::kSigmoid, 0), std::numbers::ln2, 1e-15);
  EXPECT_NEAR(loss(DpoVariant::kSigmoid, 0.2), std::numbers::ln2, 1e-15);
  EXPECT_EQ(loss(DpoVariant::kIpo, 0), 1.0);
  EXPECT_EQ(loss(DpoVariant::kHinge, 0), 1.0);
  EXPECT_NEAR(pair_loss(loss_of(DpoVariant::kSigmoid, 0, 2, false), chosen, rejected).loss, std::numbers::ln2 + 2 * 4.0 / 3, 1e-12);
}

constexpr std::int64_t kPairSequence = 16, kPairs = 16;

// Each sample's pairs, side by side, and how many rows it has.
struct PairSamples {
  std::vector<std::vector<std::int64_t>> pairs;
  std::int64_t rows = kPairSequence;
};

PairSamples a_pair_each() {
  PairSamples samples;
  for (std::int64_t pair = 0; pair < kPairs; ++pair) samples.pairs.push_back({pair});
  return samples;
}

// The same pairs in half as many samples, so that half as many are the same batch.
PairSamples packs_of_pairs() {
  return {{{0, 1, 2}, {3}, {4, 5}, {6, 7}, {8}, {9, 10, 11}, {12, 13, 14}, {15}}, 3 * kPairSequence + 6};
}

// Pairs of answers of 4 to 9 and of 6 tokens, each behind a prompt of 2; `only`: targets of one of the two count.
LoadSamples answers_of(const PairSamples& samples, std::optional<int> only = {}) {
  return [=](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
    const LoadSamples random = random_tokens(97, kPairSequence);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto& pairs = samples.pairs[static_cast<std::size_t>(first + i) % samples.pairs.size()];
      const auto put = [&](std::int64_t row, std::int32_t token, std::int32_t target, std::int64_t start) {
        if (!spans.tokens.empty()) spans.tokens[static_cast<std::size_t>(row * count + i)] = token;
        if (!spans.targets.empty()) spans.targets[static_cast<std::size_t>(row * count + i)] = target;
        if (!spans.document_starts.empty())
          spans.document_starts[static_cast<std::size_t>(i * samples.rows + row)] = static_cast<std::int32_t>(start);
      };
      std::int64_t at = 0;
      for (const std::int64_t number : pairs) {
        const std::int64_t middle = 6 + number % 3;
        std::vector<std::int32_t> tokens(kPairSequence), targets(kPairSequence);
        random(number, 1, {.tokens = tokens, .targets = targets});
        for (std::int64_t s = 0; s < kPairSequence; ++s) {
          const bool counts = (s >= 2 && s < middle - 1) || (s >= middle + 2 && s < middle + 6);
          const bool hidden = only && *only != (s < middle ? 0 : 1);
          put(at + s, tokens[static_cast<std::size_t>(s)], counts && !hidden ? targets[static_cast<std::size_t>(s)] : -1,
              at + (s < middle ? 0 : middle));
        }
        at += kPairSequence;
      }
      for (; at < samples.rows; ++at) put(at, 0, -1, at);
      if (!spans.numbers.empty()) spans.numbers[static_cast<std::size_t>(i)] = 2 * pairs.front();
    }
  };
}

std::vector<float> asked_of(RankTrainer& trainer, const PairSamples& samples) {
  std::vector<float> values(2 * kPairs);
  trainer.refer(answers_of(samples), std::ssize(samples.pairs), values);
  const TensorView all(values.data(), DType::kF32, {std::ssize(values)});
  trainer.context().world().all_reduce(trainer.context().host_stream(), all, ReduceOp::kSum);
  trainer.context().host_stream().synchronize();
  return values;
}

LayoutRun run_pairs(const ParityCase& layout, int steps, std::vector<std::string> more = {},
                    const std::function<void(RankTrainer&)>& after = {}, const PairSamples& samples = a_pair_each()) {
  const std::vector<std::string> settings =
      plus(layout.settings(), {"data.samples=packed", "loss.type=dpo", "loss.beta=0.5",
                               fmt::format("batch.global={}", samples.pairs.size() / 2),
                               fmt::format("batch.sequence={}", samples.rows)});
  return run_layout(tiny_llama_config(), plus(settings, more),
                    {.steps = steps,
                     .load = answers_of(samples),
                     .before_steps = [&](RankTrainer& trainer) { trainer.set_reference(asked_of(trainer, samples)); },
                     .after_steps = after});
}

TEST(Preference, BeginsAtLn2WithTheGradientOfItsAnswers) {
  const LayoutRun run = run_pairs({}, 1);
  EXPECT_NEAR(run.losses[0], std::numbers::ln2, 1e-9);
  NamedTensors expected;
  for (const int answer : {0, 1}) {
    std::vector<std::int32_t> targets(kPairSequence * 8);
    answers_of(a_pair_each(), answer)(0, 8, {.targets = targets});
    const auto counted = static_cast<double>(std::ranges::count_if(targets, [](std::int32_t t) { return t >= 0; }));
    std::vector<std::string> settings = ParityCase{}.settings();
    settings.emplace_back("data.samples=packed");
    const LayoutRun alone = run_layout(tiny_llama_config(), settings, {.steps = 1, .load = answers_of(a_pair_each(), answer)});
    const double factor = (answer == 0 ? 1 : -1) * 0.5 * 0.5 / 8 * counted;
    for (const auto& [name, values] : alone.gradients) {
      std::vector<float>& sum = expected[name];
      sum.resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) sum[i] += static_cast<float>(factor * double{values[i]});
    }
  }
  EXPECT_EQ("", compare_gradients(run.gradients, expected));
}

TEST(Preference, LossOfALaterStepIsThatOfTheAnswersThen) {
  std::vector<float> before, after;
  run_pairs({}, 1, {"optimizer.lr=0.01"}, [&](RankTrainer& trainer) { after = asked_of(trainer, a_pair_each()); });
  const LayoutRun run = run_pairs({}, 2, {"optimizer.lr=0.01"});
  run_pairs({}, 1, {"optimizer.lr=1e-30"}, [&](RankTrainer& trainer) { before = asked_of(trainer, a_pair_each()); });
  double loss = 0;
  for (std::size_t p = 8; p < 16; ++p) {  // the second batch
    const double h = (double{after[2 * p]} - before[2 * p]) - (double{after[2 * p + 1]} - before[2 * p + 1]);
    loss += std::log1p(std::exp(-0.5 * h)) / 8;
  }
  EXPECT_NEAR(run.losses[1], loss, 1e-5);
  EXPECT_GT(std::abs(run.losses[1] - std::numbers::ln2), 1e-4);
}

TEST(Preference, IsTheSameInEveryLayout) {
  const std::vector<std::string> ipo{"loss.variant=ipo", "loss.nll_weight=0.1"};
  const LayoutRun one = run_pairs({}, 3), of_ipo = run_pairs({}, 3, ipo);
  for (const ParityCase& layout : {ParityCase{1, 2, 2, false, "zero3", "1f1b"}, {1, 4, 1, false, "zero1", "interleaved"},
                                   {2, 2, 2, true, "zero1", "gpipe"}, {1, 1, 4, false, "zero2", "1f1b"}}) {
    const LayoutRun other = run_pairs(layout, 3);
    EXPECT_EQ("", compare_losses(other, one)) << layout.name();
    EXPECT_EQ("", compare_gradients(other.gradients, one.gradients)) << layout.name();
    EXPECT_EQ("", compare_losses(run_pairs(layout, 3, ipo), of_ipo)) << layout.name();
    EXPECT_EQ("", compare_bits(other, run_pairs(layout.without_pipeline(), 3))) << layout.name();
    EXPECT_EQ(other.planned_bytes, other.high_water) << layout.name();
  }
  for (const ParityCase& layout : {ParityCase{}, ParityCase{2, 2, 2, true, "zero1", "gpipe"}}) {
    const LayoutRun chunks = run_pairs(layout, 3, {"recompute.policy=full", "recompute.head_chunk=5"});
    EXPECT_EQ("", compare_losses(chunks, one)) << layout.name();
    EXPECT_EQ("", compare_gradients(chunks.gradients, one.gradients)) << layout.name();
  }
}

void expect_same_pairs(const LayoutRun& packed, const LayoutRun& alone, const std::string& what) {
  ASSERT_EQ(packed.losses.size(), alone.losses.size()) << what;
  for (std::size_t i = 0; i < alone.losses.size(); ++i) {
    EXPECT_NEAR(packed.losses[i], alone.losses[i], 1e-6) << what << ", step " << i + 1;
    EXPECT_NEAR(packed.grad_norms[i], alone.grad_norms[i], 1e-5 * alone.grad_norms[i]) << what << ", step " << i + 1;
    EXPECT_NEAR(packed.rewards[i].chosen, alone.rewards[i].chosen, 1e-6) << what << ", step " << i + 1;
    EXPECT_NEAR(packed.rewards[i].rejected, alone.rewards[i].rejected, 1e-6) << what << ", step " << i + 1;
    EXPECT_EQ(packed.rewards[i].accuracy, alone.rewards[i].accuracy) << what << ", step " << i + 1;
  }
  EXPECT_EQ("", compare_gradients(packed.gradients, alone.gradients)) << what;
}

// Means are taken over pairs, whatever the number of them in a sample.
TEST(Preference, OfPacksIsThatOfTheirPairs) {
  for (const std::vector<std::string>& loss : std::vector<std::vector<std::string>>{
           {},
           {"loss.variant=ipo"},
           {"loss.variant=hinge"},
           {"loss.label_smoothing=0.2"},
           {"loss.nll_weight=0.7"},
           {"loss.length_normalized=true"}})
    expect_same_pairs(run_pairs({}, 3, loss, {}, packs_of_pairs()), run_pairs({}, 3, loss), loss.empty() ? "sigmoid" : loss[0]);
  const LayoutRun alone = run_pairs({}, 3);
  for (const ParityCase& layout : {ParityCase{1, 2, 2, false, "zero2", "1f1b"}, {2, 2, 1, true, "zero1", "gpipe"},
                                   {1, 1, 4, false, "zero3", "1f1b"}}) {
    const LayoutRun packed = run_pairs(layout, 3, {}, {}, packs_of_pairs());
    expect_same_pairs(packed, alone, layout.name());
    EXPECT_EQ("", compare_bits(packed, run_pairs(layout.without_pipeline(), 3, {}, {}, packs_of_pairs()))) << layout.name();
    EXPECT_EQ(packed.planned_bytes, packed.high_water) << layout.name();
  }
}

// A head that does not train holds what weighed pairs read in its backward, for each micro-batch in flight.
TEST(Preference, IsTheSameBesideAFrozenHead) {
  const std::string layers = "model.num_hidden_layers=4", only = "train.only=[\"model\\\\.layers\\\\.1\\\\..*\"]";
  for (const char* policy : {"recompute.policy=none", "recompute.policy=full"})
    for (const char* schedule : {"gpipe", "1f1b", "interleaved"}) {
      const ParityCase layout{1, 2, 1, false, "zero1", schedule};
      const LayoutRun other = run_pairs(layout, 3, {layers, only, policy});
      EXPECT_EQ("", compare_bits(other, run_pairs(layout.without_pipeline(), 3, {layers, only}))) << layout.name() << " " << policy;
      EXPECT_EQ(other.planned_bytes, other.high_water) << layout.name() << " " << policy;
    }
}

// Losses in which targets weigh differently: what a run computes is what its formula says, in every layout.

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
  return run_layout(tiny_llama_config(), plus(plus(layout.settings(), kDocuments), more), {.steps = steps, .load = load});
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

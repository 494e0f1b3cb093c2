#include "infer/generate/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "core/check.h"

namespace trident {
namespace {

std::vector<float> random_logits(std::mt19937& random, int count, bool with_ties) {
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(static_cast<std::size_t>(count));
  for (float& x : logits) x = with_ties ? std::round(normal(random)) : normal(random);
  return logits;
}

// As `parts` ranks do it: the row is cut into equal parts, padded where it does not divide.
Choice choose_in_parts(const SamplingOptions& options, const std::vector<float>& logits, std::span<const std::int32_t> seen,
                       const DrawKey& place, int parts) {
  const auto vocabulary = std::ssize(logits);
  const std::int64_t columns = (vocabulary + parts - 1) / parts;
  std::vector<float> padded = logits;
  padded.resize(static_cast<std::size_t>(columns * parts), 1000.0f);  // padding holds anything
  std::vector<Candidate> candidates;
  LogSumExp total{-INFINITY, 0};
  for (int part = 0; part < parts; ++part) {
    const LogitShard shard{std::span(padded).subspan(static_cast<std::size_t>(part * columns), static_cast<std::size_t>(columns)),
                           part * columns, vocabulary};
    const auto best = best_candidates(options, shard, seen, candidates_needed(options, columns));
    candidates.insert(candidates.end(), best.begin(), best.end());
    total = combine(total, log_sum_exp(shard));
  }
  return choose(options, candidates, total, place);
}

// The probabilities of the kept tokens, in double and by sorting everything: transformers' processors one after the other.
std::vector<double> reference(const SamplingOptions& options, const std::vector<float>& logits,
                              std::span<const std::int32_t> seen) {
  std::vector<double> scores(logits.begin(), logits.end());
  for (const std::int32_t id : std::set<std::int32_t>(seen.begin(), seen.end())) {
    double& s = scores[static_cast<std::size_t>(id)];
    s = s < 0 ? s * options.repetition_penalty : s / options.repetition_penalty;
  }
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  if (options.is_greedy()) {
    std::vector<double> one(scores.size());
    one[order[0]] = 1;
    return one;
  }
  if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(options.top_k)));
  double sum = 0;
  for (const std::size_t i : order) sum += std::exp((scores[i] - scores[order[0]]) / options.temperature);
  std::vector<double> p(scores.size());
  double before = 0, kept = 0;
  for (const std::size_t i : order) {
    if (before >= options.top_p && kept > 0) break;
    const double mine = std::exp((scores[i] - scores[order[0]]) / options.temperature) / sum;
    p[i] = mine;
    before += mine;
    kept += mine;
  }
  for (double& x : p) x /= kept;
  return p;
}

// The token in whose part of [0, 1) the draw lies, ids ascending; -1 within 1e-5 of a border, where rounding may decide.
std::int32_t reference_choice(const std::vector<double>& p, double draw) {
  double before = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) continue;
    if (std::abs(draw - before) < 1e-5 && before > 0) return -1;
    before += p[i];
    if (draw < before - 1e-5) return static_cast<std::int32_t>(i);
    if (draw < before + 1e-5 && before < 1 - 1e-5) return -1;
  }
  return -1;
}

TEST(Sampler, AgreesWithADoubleReferenceInAnyNumberOfParts) {
  std::mt19937 random(3);
  int compared = 0;
  for (int round = 0; round < 600; ++round) {
    SamplingOptions options;
    options.temperature = std::array{0.0, 0.3, 1.0, 1.7}[random() % 4];
    options.top_k = std::array<std::int64_t, 4>{0, 1, 5, 40}[random() % 4];
    options.top_p = std::array{1.0, 0.9, 0.4, 0.01}[random() % 4];
    options.repetition_penalty = std::array{1.0, 1.0, 1.3, 0.8}[random() % 4];
    options.seed = random();
    const std::vector<float> logits = random_logits(random, 3 + static_cast<int>(random() % 90), false);
    std::vector<std::int32_t> seen;
    for (unsigned n = random() % 6; n > 0; --n) seen.push_back(static_cast<std::int32_t>(random() % logits.size()));
    const DrawKey place{static_cast<std::uint32_t>(random() % 5), static_cast<std::uint32_t>(random() % 3), random() % 100};
    const std::vector<double> p = reference(options, logits, seen);
    const std::int32_t expected = reference_choice(p, options.is_greedy() ? 0.5 : uniform_draw(options.seed, place));
    double largest = *std::ranges::max_element(logits), sum = 0;
    for (const float x : logits) sum += std::exp(x - largest);
    for (const int parts : {1, 2, 3, 4}) {
      const Choice choice = choose_in_parts(options, logits, seen, place, parts);
      EXPECT_TRUE(expected < 0 || choice.id == expected)
          << "round " << round << " in " << parts << " parts: " << choice.id << ", not " << expected;
      EXPECT_GT(p[static_cast<std::size_t>(choice.id)], 0) << "round " << round << " in " << parts << " parts";
      EXPECT_NEAR(choice.log_probability, logits[static_cast<std::size_t>(choice.id)] - largest - std::log(sum), 1e-12);
    }
    compared += expected >= 0;
  }
  EXPECT_GT(compared, 550);
}

// More than are sorted at first.
TEST(Sampler, KeepsTheRightNucleusOfManyTokens) {
  std::mt19937 random(11);
  int compared = 0, larger_than_first_piece = 0;
  for (int round = 0; round < 120; ++round) {
    SamplingOptions options;
    options.temperature = std::array{0.2, 0.6, 1.5}[random() % 3];
    options.top_p = std::array{0.999, 0.95, 0.5, 0.1}[random() % 4];
    options.seed = random();
    const std::vector<float> logits = random_logits(random, 3000, false);
    const DrawKey place{1, 2, random() % 100};
    const std::vector<double> p = reference(options, logits, {});
    const std::int32_t expected = reference_choice(p, uniform_draw(options.seed, place));
    for (const int parts : {1, 3}) {
      const Choice choice = choose_in_parts(options, logits, {}, place, parts);
      EXPECT_TRUE(expected < 0 || choice.id == expected)
          << "round " << round << " in " << parts << " parts: " << choice.id << ", not " << expected;
    }
    compared += expected >= 0;
    larger_than_first_piece += std::ranges::count_if(p, [](double x) { return x > 0; }) > 256 * 4;
  }
  EXPECT_GT(compared, 80);
  EXPECT_GT(larger_than_first_piece, 10);
}

TEST(Sampler, TheLowerIdWinsWhereLogitsAreEqual) {
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round) {
    const std::vector<float> logits = random_logits(random, 40, true);
    const auto first = std::ranges::max_element(logits) - logits.begin();
    SamplingOptions greedy;
    greedy.temperature = 0;
    SamplingOptions best;
    best.top_k = 1;
    for (const int parts : {1, 2, 3, 5}) {
      EXPECT_EQ(choose_in_parts(greedy, logits, {}, {}, parts).id, first);
      EXPECT_EQ(choose_in_parts(best, logits, {}, {}, parts).id, first);
    }
  }
}

TEST(Sampler, DrawsFollowTheProbabilities) {
  const std::vector<float> logits = {0.3f, 2.0f, -1.5f, 1.1f, 0.9f, -4.0f, 1.6f, 0.0f, -0.7f, 2.4f, 0.5f, -2.0f};
  SamplingOptions options;
  options.temperature = 1.4;
  options.top_k = 9;
  options.top_p = 0.95;
  const std::vector<double> p = reference(options, logits, {});
  std::vector<int> counts(p.size());
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i)
    ++counts[static_cast<std::size_t>(choose_in_parts(options, logits, {}, {0, 0, static_cast<std::uint64_t>(i)}, 2).id)];
  double chi_square = 0;
  int kinds = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) {
      EXPECT_EQ(counts[i], 0);
      continue;
    }
    ++kinds;
    chi_square += (counts[i] - kDraws * p[i]) * (counts[i] - kDraws * p[i]) / (kDraws * p[i]);
  }
  ASSERT_GE(kinds, 4);
  EXPECT_LT(chi_square, 30) << kinds << " kinds";  // 99.9 % of 11 degrees of freedom
}

TEST(Sampler, EveryPlaceHasADrawOfItsOwn) {
  std::set<double> draws;
  for (std::uint64_t seed = 0; seed < 3; ++seed)
    for (std::uint32_t prompt = 0; prompt < 5; ++prompt)
      for (std::uint32_t sample = 0; sample < 5; ++sample)
        for (const std::uint64_t position : {0ull, 1ull, 2ull, 1ull << 32}) {
          const double u = uniform_draw(seed, {prompt, sample, position});
          EXPECT_GE(u, 0);
          EXPECT_LT(u, 1);
          draws.insert(u);
        }
  EXPECT_EQ(draws.size(), 3u * 5 * 5 * 4);
}

TEST(Sampler, RefusesOptionsByName) {
  const auto refused = [](auto change) {
    SamplingOptions options;
    change(options);
    try {
      validate(options);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused([](SamplingOptions&) {}), "");
  EXPECT_NE(refused([](SamplingOptions& o) { o.temperature = -1; }).find("--temperature = -1"), std::string::npos);
  EXPECT_NE(refused([](SamplingOptions& o) { o.temperature = NAN; }).find("--temperature"), std::string::npos);
  EXPECT_NE(refused([](SamplingOptions& o) { o.top_k = -2; }).find("--top-k = -2"), std::string::npos);
  EXPECT_NE(refused([](SamplingOptions& o) { o.top_p = 0; }).find("--top-p = 0"), std::string::npos);
  EXPECT_NE(refused([](SamplingOptions& o) { o.top_p = 1.5; }).find("--top-p = 1.5"), std::string::npos);
  EXPECT_NE(refused([](SamplingOptions& o) { o.repetition_penalty = 0; }).find("--repetition-penalty = 0"), std::string::npos);
}

}  // namespace
}  // namespace trident

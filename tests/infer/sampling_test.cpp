#include "infer/generate/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/utf8.h"
#include "infer/generate/generate_times.h"
#include "infer/generate/text_stream.h"
#include "tests/support/error_text.h"

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
    return error_of<ConfigError>([&] { validate(options); });
  };
  EXPECT_EQ(refused([](SamplingOptions&) {}), "no error");
  expect_parts(refused([](SamplingOptions& o) { o.temperature = -1; }), {"--temperature = -1"});
  expect_parts(refused([](SamplingOptions& o) { o.temperature = NAN; }), {"--temperature"});
  expect_parts(refused([](SamplingOptions& o) { o.top_k = -2; }), {"--top-k = -2"});
  expect_parts(refused([](SamplingOptions& o) { o.top_p = 0; }), {"--top-p = 0"});
  expect_parts(refused([](SamplingOptions& o) { o.top_p = 1.5; }), {"--top-p = 1.5"});
  expect_parts(refused([](SamplingOptions& o) { o.repetition_penalty = 0; }), {"--repetition-penalty = 0"});
}

std::string in_pieces(const std::string& bytes, const std::vector<std::string>& stops, std::mt19937& random, int most) {
  TextStream stream(stops);
  std::string shown;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t n = 1 + random() % static_cast<unsigned>(most);
    shown += stream.push(std::string_view(bytes).substr(at, n));
    EXPECT_EQ(valid_prefix(shown), shown.size()) << "what is shown ends inside a character";
    at += n;
  }
  return shown + stream.finish();
}

TEST(TextStream, HoldsACharacterBackUntilItIsWhole) {
  TextStream stream;
  EXPECT_EQ(stream.push("a\xE2\x82"), "a");
  EXPECT_EQ(stream.push("\xAC b"), "\xE2\x82\xAC b");
  EXPECT_EQ(stream.push("\xF0\x9F\x98"), "");
  EXPECT_EQ(stream.push("\x80"), "\xF0\x9F\x98\x80");
}

TEST(TextStream, WhatNoByteCanCompleteIsReplacedAtOnce) {
  TextStream stream;
  EXPECT_EQ(stream.push("\xE0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD");  // overlong
  EXPECT_EQ(stream.push("\xED\xA0"), "\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
  EXPECT_EQ(stream.push("\xC1"), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.push("\xF4\x8F"), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
}

TEST(TextStream, AnyCutOfAnyBytesReadsTheSame) {
  std::mt19937 random(7);
  static constexpr unsigned char kBytes[] = {'a',  'b',  0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2,
                                             0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF};
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    for (unsigned n = random() % 12; n > 0; --n) bytes.push_back(static_cast<char>(kBytes[random() % sizeof kBytes]));
    std::string expected;
    replace_ill_formed(bytes, &expected);
    EXPECT_EQ(in_pieces(bytes, {}, random, 3), expected) << ::testing::PrintToString(bytes);
  }
}

// Returns the text before the stop string that is complete first, found without holding anything back.
std::string cut(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops)
      if (std::string_view(text).substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(TextStream, StopsBeforeTheFirstStopStringWhereverTokensEnd) {
  std::mt19937 random(11);
  for (int round = 0; round < 4000; ++round) {
    const auto word = [&](unsigned length) {
      std::string s;
      for (unsigned i = 0; i < length; ++i) s.push_back("abc"[random() % 3]);
      return s;
    };
    const std::string text = word(random() % 16);
    std::vector<std::string> stops;
    for (unsigned n = 1 + random() % 3; n > 0; --n) stops.push_back(word(1 + random() % 4));
    EXPECT_EQ(in_pieces(text, stops, random, 4), cut(text, stops)) << text << " " << ::testing::PrintToString(stops);
  }
}

TEST(TextStream, SaysThatItStoppedAndIsSilentThen) {
  TextStream stream({"\n\n"});
  EXPECT_EQ(stream.push("one\n"), "one");
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(stream.push("two\n"), "\ntwo");
  EXPECT_EQ(stream.push("\nthree"), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.push("four"), "");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, AStopStringMayHaveCharactersOfManyBytes) {
  TextStream stream({"\xE2\x82\xAC"});
  EXPECT_EQ(stream.push("x\xE2"), "x");
  EXPECT_EQ(stream.push("\x82"), "");
  EXPECT_EQ(stream.push("\xAC!"), "");
  EXPECT_TRUE(stream.stopped());
}

TEST(TextStream, WhatWasHeldBackComesAtTheEnd) {
  TextStream stream({"END"});
  EXPECT_EQ(stream.push("the EN"), "the ");
  EXPECT_EQ(stream.finish(), "EN");
}

// Steps that read 1000 bytes of weights and 10 of each position; a prompt of t tokens takes 100 t + 7 + 4 t (t + 1) / 2 FLOPs.
GenerateTimes some_times() {
  GenerateTimes times;
  times.step_weight_bytes = 1000;
  times.cache_bytes_per_position = 10;
  times.flops_per_token = 100;
  times.flops_per_prompt = 7;
  times.flops_per_pair = 4;
  times.passes = {
      {.is_prompt = true, .seconds = 2, .cpu_seconds = 1, .tokens = 3, .machine_rate = 662, .machine_cpu_rate = 993},
      {.seconds = 1, .cpu_seconds = 0.5, .tokens = 2, .positions = 100, .machine_rate = 1000, .machine_cpu_rate = 8000},
      {.seconds = 4, .cpu_seconds = 1, .tokens = 2, .positions = 200, .machine_rate = 1500, .machine_cpu_rate = 6000},
      {.seconds = 2, .cpu_seconds = 2, .tokens = 1, .positions = 300, .machine_rate = 8000, .machine_cpu_rate = 8000},
  };
  return times;
}

TEST(GenerateTimes, SumUpPromptsByTheirFlops) {
  const PassSummary prompts = summarize_prompts(some_times());
  EXPECT_EQ(prompts.passes, 1);
  EXPECT_EQ(prompts.tokens, 3);
  EXPECT_EQ(prompts.work, 331);
  EXPECT_EQ(prompts.tokens_per_second, 1.5);
  EXPECT_EQ(prompts.rate, 165.5);
  EXPECT_EQ(prompts.share, 0.25);
  EXPECT_DOUBLE_EQ(prompts.cpu_share, 331.0 / 993);
}

TEST(GenerateTimes, SumUpStepsByMediansAndPairEachWithTheRateBesideIt) {
  const PassSummary steps = summarize_steps(some_times());
  EXPECT_EQ(steps.passes, 3);
  EXPECT_EQ(steps.tokens, 2);
  EXPECT_EQ(steps.seconds, 2);
  EXPECT_EQ(steps.cpu_seconds, 1);
  EXPECT_EQ(steps.tokens_per_second, 0.5);
  EXPECT_EQ(steps.work, 3000);             // of 2000, 3000, 4000
  EXPECT_EQ(steps.rate, 2000);             // of 2000, 750, 2000
  EXPECT_EQ(steps.machine_rate, 1500);     // of 1000, 1500, 8000
  EXPECT_EQ(steps.share, 0.5);             // of 2, 0.5, 0.25
  EXPECT_EQ(steps.cpu_share, 0.5);         // of 0.5, 0.5, 0.25
}

TEST(GenerateTimes, SayNothingOfAMachineThatWasNotMeasured) {
  GenerateTimes times = some_times();
  const std::string measured = to_text(times);
  expect_parts(measured, {"25 % of the 0.0 GFLOP/s that products reach", "50 % of the 0.0 GB/s at which memory is read"});
  EXPECT_EQ(to_json(times).find("steps")->find("share")->as_number(), 0.5);
  for (PassTime& pass : times.passes) pass.machine_rate = pass.machine_cpu_rate = 0;
  EXPECT_EQ(to_text(times).find('%'), std::string::npos) << to_text(times);
  EXPECT_EQ(to_json(times).find("steps")->find("share"), nullptr);
  EXPECT_EQ(to_json(times).find("prompts")->find("flops")->as_number(), 331);
  times.passes.resize(1);
  EXPECT_EQ(to_text(times).find("steps"), std::string::npos);
}

}  // namespace
}  // namespace trident

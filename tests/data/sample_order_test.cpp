#include "data/sample_order.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "data/blend.h"
#include "tests/data/temporary_folder.h"

namespace trident {
namespace {

TEST(SampleOrder, AnOrderWithoutShufflingWrapsAcrossEpochs) {
  const SampleOrder order(5, 1, Shuffle::kInOrder);
  for (std::int64_t g = 0; g < 23; ++g) EXPECT_EQ(order.sample_at(g), g % 5);
  EXPECT_THROW(order.sample_at(-1), InternalError);
  EXPECT_THROW(SampleOrder(0, 1, Shuffle::kInOrder), InternalError);
}

TEST(SampleOrder, EveryEpochIsAPermutation) {
  for (const std::int64_t n : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 100, 257, 1000, 4097}) {
    const SampleOrder order(n, 1234, Shuffle::kPerEpoch);
    for (const std::int64_t epoch : {std::int64_t{0}, std::int64_t{1}, std::int64_t{7}, std::int64_t{100'000}}) {
      std::vector<bool> seen(static_cast<std::size_t>(n));
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t sample = order.sample_at(epoch * n + i);
        ASSERT_TRUE(sample >= 0 && sample < n);
        ASSERT_FALSE(seen[static_cast<std::size_t>(sample)]) << "n " << n << " epoch " << epoch;
        seen[static_cast<std::size_t>(sample)] = true;
      }
    }
  }
}

std::vector<std::int64_t> first_epoch(const SampleOrder& order, std::int64_t epoch = 0) {
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < order.num_samples(); ++i) samples.push_back(order.sample_at(epoch * order.num_samples() + i));
  return samples;
}

TEST(SampleOrder, DependsOnSeedEpochAndStreamOnly) {
  const SampleOrder order(1000, 7, Shuffle::kPerEpoch);
  EXPECT_EQ(first_epoch(order), first_epoch(SampleOrder(1000, 7, Shuffle::kPerEpoch)));
  EXPECT_NE(first_epoch(order), first_epoch(order, 1));
  EXPECT_NE(first_epoch(order), first_epoch(SampleOrder(1000, 8, Shuffle::kPerEpoch)));
  EXPECT_NE(first_epoch(order), first_epoch(SampleOrder(1000, 7, Shuffle::kPerEpoch, 1)));
  EXPECT_NE(first_epoch(order, 1), first_epoch(SampleOrder(1000, 7, Shuffle::kPerEpoch, 1)));
}

// The order is part of what a run means: it may not change from version to version.
TEST(SampleOrder, IsPinned) {
  EXPECT_EQ(first_epoch(SampleOrder(10, 1234, Shuffle::kPerEpoch)), (std::vector<std::int64_t>{2, 4, 1, 5, 7, 0, 8, 9, 6, 3}));
}

TEST(SampleOrder, LooksRandom) {
  // Over many epochs every sample visits every place equally often: chi-square with 36 degrees of freedom, mean 36, deviation 8.5.
  constexpr std::int64_t n = 7, epochs = 7000;
  const SampleOrder order(n, 5, Shuffle::kPerEpoch);
  std::vector<int> visits(n * n);
  for (std::int64_t g = 0; g < n * epochs; ++g) ++visits[static_cast<std::size_t>(g % n * n + order.sample_at(g))];
  double chi_square = 0;
  for (const int v : visits) chi_square += std::pow(v - 1000.0, 2) / 1000.0;
  EXPECT_LT(chi_square, 36 + 5 * 8.5);
  // Neighbours in a long order are uncorrelated.
  const std::vector<std::int64_t> samples = first_epoch(SampleOrder(20'000, 5, Shuffle::kPerEpoch));
  double correlation = 0;
  for (std::size_t i = 1; i < samples.size(); ++i) {
    correlation += (static_cast<double>(samples[i]) / 20'000 - 0.5) * (static_cast<double>(samples[i - 1]) / 20'000 - 0.5);
  }
  EXPECT_LT(std::abs(correlation / 20'000 * 12), 5 / std::sqrt(20'000.0));
}

TEST(SampleOrder, HugeDatasetsHaveEverySampleOncePerEpoch) {
  const std::int64_t n = (std::int64_t{1} << 40) + 12345;
  const SampleOrder order(n, 5, Shuffle::kPerEpoch);
  std::set<std::int64_t> seen;
  for (std::int64_t g = n - 500; g < n + 500; ++g) {
    const std::int64_t sample = order.sample_at(g);
    EXPECT_TRUE(sample >= 0 && sample < n);
    seen.insert(sample);
  }
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_GT(*seen.rbegin(), std::int64_t{1} << 32);
}

TEST(SampleOrder, SamplesOfTokensAreCounted) {
  EXPECT_EQ(num_samples_of(0, 4), 0);
  EXPECT_EQ(num_samples_of(4, 4), 0);
  EXPECT_EQ(num_samples_of(5, 4), 1);
  EXPECT_EQ(num_samples_of(8, 4), 1);
  EXPECT_EQ(num_samples_of(9, 4), 2);
}

TEST(BatchSlicing, AGlobalBatchIsTheSameInEveryLayout) {
  for (const std::int64_t step : {std::int64_t{0}, std::int64_t{3}, std::int64_t{1} << 33}) {
    for (const auto& [micro, ranks] : {std::pair{1, 1}, {24, 1}, {1, 24}, {2, 3}, {4, 2}, {3, 8}, {1, 4}}) {
      const BatchSlicing slicing{.global = 24, .micro = micro, .data_ranks = ranks};
      std::set<std::int64_t> seen;
      for (std::int64_t j = 0; j < slicing.num_micro_batches(); ++j) {
        for (std::int64_t r = 0; r < ranks; ++r) {
          EXPECT_EQ(slicing.first_sample(step, j, r), step * 24 + j * micro * ranks + r * micro);
          for (std::int64_t i = 0; i < micro; ++i) seen.insert(slicing.first_sample(step, j, r) + i);
        }
      }
      EXPECT_EQ(seen.size(), 24u);
      EXPECT_EQ(*seen.begin(), slicing.global_sample(step, 0));
      EXPECT_EQ(*seen.rbegin(), slicing.global_sample(step, 23));
    }
  }
}

TEST(Split, RoundingIsMegatrons) {
  const auto expect = [](const std::string& split, std::int64_t n, std::int64_t a, std::int64_t b, std::int64_t c) {
    const auto ranges = split_documents(split, n);
    EXPECT_EQ(ranges[0].begin, 0);
    EXPECT_EQ(ranges[0].end, a) << split;
    EXPECT_EQ(ranges[1].begin, a);
    EXPECT_EQ(ranges[1].end, b) << split;
    EXPECT_EQ(ranges[2].begin, b);
    EXPECT_EQ(ranges[2].end, c) << split;
  };
  expect("969,30,1", 1000, 969, 999, 1000);
  expect("969,30,1", 100, 97, 100, 100);
  expect("1,1", 5, 2, 5, 5);     // 2.5 rounds to the even 2
  expect("1,1", 7, 4, 7, 7);     // 3.5 rounds to the even 4
  expect("1", 3, 3, 3, 3);
  expect("0.5,0.25,0.25", 8, 4, 6, 8);
  expect("0,1", 4, 0, 4, 4);
  expect("969,30,1", 0, 0, 0, 0);
}

TEST(Split, RefusesOtherText) {
  for (const char* text : {"", ",", "1,", "a", "1;2", "-1,2", "0,0,0", "1,2,3,4", "nan", "inf", "1 ,2", "1,,2", "1e308,1e308"}) {
    expect_error<ConfigError>([&] { split_documents(text, 10); }, {fmt::format("data.split = \"{}\"", text), "969,30,1"});
  }
}

TEST(Blend, TheGreedyRuleChooses) {
  Blend blend({3, 1});
  std::vector<std::int64_t> datasets, indices;
  for (std::int64_t i = 0; i < 9; ++i) {
    datasets.push_back(blend.at(i).dataset);
    indices.push_back(blend.at(i).index);
  }
  // By hand: i=0 (as 1): .75,.25 -> 0; i=1: -.25,.25 -> 1; i=2: .5,-.5 -> 0; i=3: .25,-.25 -> 0; i=4: 0,0 -> 0; i=5: -.25,.25 -> 1
  EXPECT_EQ(datasets, (std::vector<std::int64_t>{0, 1, 0, 0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(indices, (std::vector<std::int64_t>{0, 0, 1, 2, 3, 1, 4, 5, 6}));
}

TEST(Blend, SharesFollowWeightsAndIndicesCount) {
  const std::vector<double> weights = {0.5, 0.3, 0.2, 1e-6};
  Blend blend(weights);
  std::vector<std::int64_t> counts(4);
  for (std::int64_t i = 0; i < 10'000; ++i) {
    const BlendedSample sample = blend.at(i);
    EXPECT_EQ(sample.index, counts[static_cast<std::size_t>(sample.dataset)]++);
  }
  for (std::size_t d = 0; d < 4; ++d) EXPECT_NEAR(static_cast<double>(counts[d]), weights[d] * 10'000, 1.5);
}

// Returns how far a dataset is from its share after n samples, at the worst of a long run. The greedy rule keeps two datasets
// within one sample, so |share - weight| < 1/n; more of them within two.
double worst_lag(const std::vector<double>& weights, std::int64_t samples) {
  double sum = 0, worst = 0;
  for (const double weight : weights) sum += weight;
  Blend blend(weights);
  std::vector<std::int64_t> counts(weights.size());
  for (std::int64_t n = 1; n <= samples; ++n) {
    ++counts[static_cast<std::size_t>(blend.at(n - 1).dataset)];
    for (std::size_t d = 0; d < weights.size(); ++d)
      worst = std::max(worst, std::abs(static_cast<double>(counts[d]) - weights[d] / sum * static_cast<double>(n)));
  }
  return worst;
}

TEST(Blend, LongRunsKeepTheShares) {
  EXPECT_LT(worst_lag({0.7, 0.3}, 300'000), 1);
  EXPECT_LT(worst_lag({1, 1e-4}, 300'000), 1);
  EXPECT_LT(worst_lag({3.14159, 2.71828}, 300'000), 1);
  EXPECT_LT(worst_lag({1, 1, 1, 1}, 100'000), 1);
  EXPECT_LT(worst_lag({0.5, 0.3, 0.2}, 100'000), 2);
  EXPECT_LT(worst_lag({0.4, 0.3, 0.15, 0.1, 0.05}, 100'000), 2);
  std::vector<double> many;
  for (int d = 0; d < 40; ++d) many.push_back(1 + d * d % 17);
  EXPECT_LT(worst_lag(many, 50'000), 2);
}

TEST(Blend, IsAPureFunctionOfThePosition) {
  Blend forward({2, 5, 1}), jumping({2, 5, 1});
  std::vector<BlendedSample> samples;
  for (std::int64_t i = 0; i < 100; ++i) samples.push_back(forward.at(i));
  for (const std::int64_t i : {50, 3, 3, 99, 0, 42}) {
    EXPECT_EQ(jumping.at(i).dataset, samples[static_cast<std::size_t>(i)].dataset);
    EXPECT_EQ(jumping.at(i).index, samples[static_cast<std::size_t>(i)].index);
  }
  EXPECT_EQ(Blend({4}).at(1'000'000'000'000).index, 1'000'000'000'000);
  EXPECT_THROW(Blend({}), InternalError);
  EXPECT_THROW(Blend({1, 0}), InternalError);
}

}  // namespace
}  // namespace trident

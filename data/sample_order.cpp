#include "data/sample_order.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <string_view>

#include "core/check.h"
#include "core/philox.h"

namespace trident {

namespace {

constexpr int kRounds = 6;

// A permutation of 0 .. 4^half_bits - 1.
std::uint64_t feistel(std::uint64_t x, int half_bits, PhiloxKey key) {
  const auto mask = static_cast<std::uint32_t>((std::uint64_t{1} << half_bits) - 1);
  auto left = static_cast<std::uint32_t>(x >> half_bits), right = static_cast<std::uint32_t>(x) & mask;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const std::uint32_t mixed = left ^ (philox4x32({right, round, 0, 0}, key)[0] & mask);
    left = right;
    right = mixed;
  }
  return std::uint64_t{left} << half_bits | right;
}

[[noreturn]] void refuse_split(const std::string& split, std::string_view why) {
  throw ConfigError(fmt::format("data.split = \"{}\": {}; write shares of train, valid and test such as \"969,30,1\"", split, why));
}

}  // namespace

std::int64_t steps_of_epochs(double epochs, std::int64_t samples, std::int64_t global) {
  const double steps = epochs * static_cast<double>(samples) / static_cast<double>(global);
  constexpr double kRounding = 1e-12;  // of such a product: 0.1 epochs of 10 samples are one sample
  constexpr double kMost = 9007199254740992;  // 2^53: a double has every whole number up to it
  if (!(steps <= kMost))
    throw ConfigError(fmt::format("run.epochs = {}: of {} samples that is more than 2^53 steps of batch.global = {}; lower it",
                                  epochs, samples, global));
  return std::max<std::int64_t>(1, std::llround(std::ceil(steps - kRounding * steps)));
}

SampleOrder::SampleOrder(std::int64_t num_samples, std::uint64_t seed, Shuffle shuffle, std::uint32_t stream)
    : num_samples_(num_samples), seed_(seed), shuffle_(shuffle), stream_(stream) {
  TRIDENT_CHECK(num_samples > 0, "no samples to order");
  const auto bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(num_samples - 1)));
  half_bits_ = std::max(1, (bits + 1) / 2);
}

std::int64_t SampleOrder::sample_at(std::int64_t position) const {
  TRIDENT_CHECK(position >= 0, "position {}", position);
  const std::int64_t index = position % num_samples_;
  if (shuffle_ == Shuffle::kInOrder) return index;
  const auto epoch = static_cast<std::uint64_t>(position / num_samples_);
  // Epochs of one stream, and streams of one seed, differ in the 64-bit number that is hashed into the key.
  const PhiloxKey key = random_key(seed_, RandomPurpose::kShuffle, std::uint64_t{stream_} << 40 | epoch);
  auto x = static_cast<std::uint64_t>(index);
  do {  // fewer than four rounds on average: the domain is less than four times n
    x = feistel(x, half_bits_, key);
  } while (x >= static_cast<std::uint64_t>(num_samples_));
  return static_cast<std::int64_t>(x);
}

std::array<IndexRange, 3> split_documents(const std::string& split, std::int64_t num_documents) {
  std::array<double, 3> shares{};
  std::size_t count = 0;
  double sum = 0;
  for (const char *at = split.data(), *end = at + split.size();; ++at) {
    if (count == shares.size()) refuse_split(split, "more than three numbers");
    const auto [next, error] = std::from_chars(at, end, shares[count]);
    if (error != std::errc{} || !std::isfinite(shares[count]) || shares[count] < 0)
      refuse_split(split, "not a list of non-negative numbers");
    sum += shares[count++];
    at = next;
    if (at == end) break;
    if (*at != ',') refuse_split(split, "numbers are separated by commas");
  }
  if (!(sum > 0) || !std::isfinite(sum)) refuse_split(split, "the shares add up to nothing");

  std::array<IndexRange, 3> ranges;
  double cumulative = 0;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    cumulative += shares[i] / sum;
    const auto end = static_cast<std::int64_t>(std::nearbyint(cumulative * static_cast<double>(num_documents)));
    ranges[i] = {begin, std::clamp(end, begin, num_documents)};
    begin = ranges[i].end;
  }
  return ranges;
}

}  // namespace trident

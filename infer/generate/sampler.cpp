#include "infer/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/philox.h"

namespace trident {
namespace {

bool is_better(const Candidate& a, const Candidate& b) { return a.score != b.score ? a.score > b.score : a.id < b.id; }

// The best `count` come first, in no particular order.
std::span<Candidate> keep_best(std::span<Candidate> candidates, std::int64_t count) {
  if (count >= std::ssize(candidates)) return candidates;
  std::nth_element(candidates.begin(), candidates.begin() + count, candidates.end(), is_better);
  return candidates.first(static_cast<std::size_t>(count));
}

// exp(score / temperature) as a share of the best one's.
class Weights {
 public:
  Weights(std::span<const Candidate> candidates, double temperature) : temperature_(temperature) {
    for (const Candidate& c : candidates) best_ = std::max(best_, static_cast<double>(c.score));
  }
  double operator()(const Candidate& c) const { return std::exp((static_cast<double>(c.score) - best_) / temperature_); }

 private:
  double temperature_, best_ = -std::numeric_limits<double>::infinity();
};

// The fewest of the best candidates that have `share` of all probability, or one.
std::span<Candidate> keep_nucleus(std::span<Candidate> candidates, const Weights& weight, double share) {
  if (share >= 1) return candidates;
  double total = 0;
  for (const Candidate& c : candidates) total += weight(c);
  // Sorted piece by piece, because few are kept of many as a rule.
  double before = 0;
  std::size_t kept = 0, sorted = 0;
  while (kept < candidates.size() && (kept == 0 || before < share * total)) {
    if (kept == sorted) {
      const std::span<Candidate> rest = candidates.subspan(sorted);
      const std::size_t more = std::min(rest.size(), std::max<std::size_t>(256, 3 * sorted));
      std::ranges::sort(keep_best(rest, static_cast<std::int64_t>(more)), is_better);
      sorted += more;
    }
    before += weight(candidates[kept++]);
  }
  return candidates.first(kept);
}

}  // namespace

void validate(const SamplingOptions& options) {
  const auto refuse = [](const char* name, double value, const char* allowed) {
    throw ConfigError(fmt::format("{} = {}: is not allowed; use {}", name, value, allowed));
  };
  if (!(options.temperature >= 0) || std::isinf(options.temperature))
    refuse("--temperature", options.temperature, "a number >= 0; 0 takes the likeliest token");
  if (options.top_k < 0) refuse("--top-k", static_cast<double>(options.top_k), "a number >= 0; 0 keeps all tokens");
  if (!(options.top_p > 0) || options.top_p > 1) refuse("--top-p", options.top_p, "a number in (0, 1]; 1 keeps all tokens");
  if (!(options.repetition_penalty >= 1e-6) || !(options.repetition_penalty <= 1e6))  // beyond, f32 has no numbers for scores
    refuse("--repetition-penalty", options.repetition_penalty, "a number from 1e-6 to 1e6; 1 changes nothing");
}

LogSumExp log_sum_exp(const LogitShard& shard) {
  const std::int64_t tokens = std::clamp<std::int64_t>(shard.vocabulary - shard.first_id, 0, std::ssize(shard.logits));
  const auto logits = shard.logits.first(static_cast<std::size_t>(tokens));
  LogSumExp result{-std::numeric_limits<double>::infinity(), 0};
  if (logits.empty()) return result;
  result.largest = *std::ranges::max_element(logits);
  for (const float logit : logits) result.sum += std::exp(logit - result.largest);
  return result;
}

LogSumExp combine(const LogSumExp& a, const LogSumExp& b) {
  if (a.sum == 0) return b;
  if (b.sum == 0) return a;
  const double largest = std::max(a.largest, b.largest);
  return {largest, a.sum * std::exp(a.largest - largest) + b.sum * std::exp(b.largest - largest)};
}

std::int64_t candidates_needed(const SamplingOptions& options, std::int64_t columns) {
  if (options.is_greedy()) return std::min<std::int64_t>(1, columns);
  return options.top_k == 0 ? columns : std::min(options.top_k, columns);
}

std::vector<Candidate> best_candidates(const SamplingOptions& options, const LogitShard& shard, std::span<const std::int32_t> seen,
                                       std::int64_t count) {
  const std::int64_t tokens = std::clamp<std::int64_t>(shard.vocabulary - shard.first_id, 0, std::ssize(shard.logits));
  std::vector<Candidate> all(static_cast<std::size_t>(tokens));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const float logit = shard.logits[i];
    all[i] = {static_cast<std::int32_t>(shard.first_id + static_cast<std::int64_t>(i)), logit, logit};
  }
  if (options.repetition_penalty != 1) {
    const auto penalty = static_cast<float>(options.repetition_penalty);
    for (const std::int32_t id : seen) {
      if (id < shard.first_id || id >= shard.first_id + tokens) continue;
      Candidate& c = all[static_cast<std::size_t>(id - shard.first_id)];
      c.score = c.logit > 0 ? c.logit / penalty : c.logit * penalty;
    }
  }
  all.resize(keep_best(all, count).size());
  return all;
}

double uniform_draw(std::uint64_t seed, const DrawKey& place) {
  const PhiloxKey key = random_key(seed, RandomPurpose::kSampling, std::uint64_t{0});
  const PhiloxCounter words = philox4x32(
      {place.prompt, place.sample, static_cast<std::uint32_t>(place.position), static_cast<std::uint32_t>(place.position >> 32)},
      key);
  const std::uint64_t bits = std::uint64_t{words[0]} << 32 | words[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

Choice choose(const SamplingOptions& options, std::span<Candidate> candidates, const LogSumExp& total, const DrawKey& place) {
  TRIDENT_CHECK(!candidates.empty(), "no token to choose from");
  const auto chosen = [&](const Candidate& c) -> Choice { return {c.id, c.logit - total.largest - std::log(total.sum)}; };
  // min_element: whoever is better than all others comes first.
  if (options.is_greedy()) return chosen(*std::ranges::min_element(candidates, is_better));
  std::span<Candidate> kept = options.top_k > 0 ? keep_best(candidates, options.top_k) : candidates;
  const Weights weight(kept, options.temperature);
  kept = keep_nucleus(kept, weight, options.top_p);
  if (!std::ranges::is_sorted(kept, {}, &Candidate::id)) std::ranges::sort(kept, {}, &Candidate::id);
  double sum = 0;
  for (const Candidate& c : kept) sum += weight(c);
  const double target = uniform_draw(options.seed, place) * sum;
  double before = 0;
  for (const Candidate& c : kept) {
    before += weight(c);
    if (target < before) return chosen(c);
  }
  return chosen(kept.back());
}

}  // namespace trident

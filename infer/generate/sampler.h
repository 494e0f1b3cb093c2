// Which token comes next: from a row of logits, whole or in parts that tensor-parallel ranks hold, to one id.
//
// Pure functions. The filters are those of transformers and come in its order (generation/logits_process.py): repetition penalty,
// temperature, top-k, top-p. A draw is a function of (seed, prompt, sample, position) and looks for its place among the kept tokens
// in the order of their ids, so neither the batch nor the layout changes it, and logits that differ by rounding move only its
// borders.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trident {

struct SamplingOptions {
  double temperature = 1;  // 0: greedy, the largest logit
  std::int64_t top_k = 0;  // how many of the largest logits are kept, the lower id first where they are equal; 0: all
  double top_p = 1;        // of those, the fewest of the largest whose probabilities sum to at least this; in (0, 1]
  double repetition_penalty =
      1;  // logits of tokens that were there are divided by it if positive, else multiplied (Keskar et al. 2019)
  std::uint64_t seed = 0;

  bool is_greedy() const { return temperature == 0; }
};

// Throws ConfigError naming the option, its value and what is allowed.
void validate(const SamplingOptions& options);

// Columns of a row of logits that one rank holds: column i is token first_id + i; from `vocabulary` on they are padding, which does
// not count. Logits are f32; a NaN is the caller's to refuse.
struct LogitShard {
  std::span<const float> logits;
  std::int64_t first_id = 0, vocabulary = 0;
};

struct Candidate {
  std::int32_t id = 0;
  float logit = 0;  // as the model says
  float score = 0;  // after the repetition penalty
};

// The logarithm of a sum of exponentials: largest + log(sum). Nothing: -infinity and 0.
struct LogSumExp {
  double largest, sum;
};
LogSumExp log_sum_exp(const LogitShard& shard);
// Combines two parts.
LogSumExp combine(const LogSumExp& a, const LogSumExp& b);

// How many candidates a shard of `columns` columns must offer, so that all shards' together hold what choose() can choose from.
std::int64_t candidates_needed(const SamplingOptions& options, std::int64_t columns);

// The best `count` of the shard by score, the lower id first where they are equal; fewer where it holds fewer tokens. In no
// particular order. `seen`: which tokens the repetition penalty meets: ids, in any order, doubles allowed.
std::vector<Candidate> best_candidates(const SamplingOptions& options, const LogitShard& shard, std::span<const std::int32_t> seen,
                                       std::int64_t count);

// Who draws: the prompt's number in the run, the number of its continuation, and how many tokens stand before the new one.
struct DrawKey {
  std::uint32_t prompt = 0, sample = 0;
  std::uint64_t position = 0;
};

// Uniform in [0, 1), 53 bits.
double uniform_draw(std::uint64_t seed, const DrawKey& place);

struct Choice {
  std::int32_t id = 0;
  double log_probability = 0;  // of the id, in nats, by the model's logits as they are
};

// `candidates`: of all shards, at least one; reordered. `total`: of all logits.
Choice choose(const SamplingOptions& options, std::span<Candidate> candidates, const LogSumExp& total, const DrawKey& place);

}  // namespace trident

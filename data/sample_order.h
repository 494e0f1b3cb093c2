// Which sample is seen when: pure functions of (seed, position), the same in every layout.
//
// Positions count the samples of a run: position g is sample g % n of epoch g / n of a dataset with n samples. Step s (0-based) of
// a global batch of G samples takes positions s*G .. s*G + G-1. Sample i of a dataset holds its tokens i*T .. i*T+T (T+1 of them).
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "core/index_range.h"

namespace trident {

enum class Shuffle : std::uint8_t { kInOrder, kPerEpoch };

// G/(b*D) micro-batches of b samples on each of D data-parallel ranks. Micro-batch j of rank r in step s takes the b positions from
// s*G + j*b*D + r*b (Megatron-LM, data_samplers.py), so what a global batch holds depends on neither b, D nor the layout.
struct BatchSlicing {
  std::int64_t global = 1;      // G
  std::int64_t micro = 1;       // b
  std::int64_t data_ranks = 1;  // D
  std::int64_t offset = 0;      // added to every position: step 0 would be there, had G always been what it is

  std::int64_t num_micro_batches() const { return global / (micro * data_ranks); }
  std::int64_t global_sample(std::int64_t step, std::int64_t index_in_global_batch) const {
    return offset + step * global + index_in_global_batch;
  }
  std::int64_t first_sample(std::int64_t step, std::int64_t micro_batch, std::int64_t data_rank) const {
    return global_sample(step, (micro_batch * data_ranks + data_rank) * micro);
  }
};

// Samples of T+1 tokens that overlap by one: how many `num_tokens` hold.
constexpr std::int64_t num_samples_of(std::int64_t num_tokens, std::int64_t sequence) {
  return num_tokens > sequence ? (num_tokens - 1) / sequence : 0;
}

// How many batches of `global` samples hold so many epochs of `samples` samples; the last one may reach into the next epoch.
std::int64_t steps_of_epochs(double epochs, std::int64_t samples, std::int64_t global);

// Epoch after epoch of one dataset, each a permutation of 0 .. n-1 of its own: a Feistel network over the smallest power of 4 that
// holds n, keyed by Philox and walked until it falls below n (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). No
// tables.
class SampleOrder {
 public:
  // Datasets of a blend take different `stream`s, so that equal sizes do not mean equal orders.
  SampleOrder(std::int64_t num_samples, std::uint64_t seed, Shuffle shuffle, std::uint32_t stream = 0);

  std::int64_t num_samples() const { return num_samples_; }
  std::int64_t sample_at(std::int64_t position) const;  // position >= 0, any number of epochs

 private:
  std::int64_t num_samples_;
  std::uint64_t seed_;
  Shuffle shuffle_;
  std::uint32_t stream_;
  int half_bits_;
};

// "969,30,1": train, valid, test as shares of the documents, one to three non-negative numbers. Boundaries are cumulative shares
// times the number of documents, rounded half to even (Megatron-LM). Other text: ConfigError for data.split.
std::array<IndexRange, 3> split_documents(const std::string& split, std::int64_t num_documents);

}  // namespace trident

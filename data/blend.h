// Several datasets mixed by weight.
#pragma once

#include <cstdint>
#include <vector>

namespace trident {

struct BlendedSample {
  std::int64_t dataset;
  std::int64_t index;  // the dataset's how-manieth sample this is
};

// Megatron-LM's greedy rule (blended_dataset.py): output i comes from the dataset d with the largest w_d * max(i, 1) - count_d, the
// first among equals, and is that dataset's sample number count_d. Weights are normalised to sum 1. A pure function of (weights,
// i).
//
// The rule may begin at a later position, as where the weights changed: it counts outputs from there, and each dataset goes on behind
// the samples that were taken of it.
struct BlendStart {
  std::int64_t position = 0;
  std::vector<std::int64_t> taken;  // by dataset; empty: nothing
  bool operator==(const BlendStart&) const = default;
};

// Walks forward from the last position asked for, so a rank that asks in ascending order pays O(datasets) per position; a step back
// starts again at 0. Not shared between threads.
class Blend {
 public:
  // Weights: finite, > 0, at least one.
  explicit Blend(std::vector<double> weights, BlendStart start = {});
  BlendedSample at(std::int64_t position);  // not before the start
  // Samples of each dataset at positions below `position`.
  std::vector<std::int64_t> taken_before(std::int64_t position);

 private:
  BlendedSample next();

  std::vector<double> weights_;
  BlendStart start_;
  std::vector<std::int64_t> counts_;  // since the start
  std::int64_t position_ = -1;  // of last_, counted from the start
  BlendedSample last_{};
};

}  // namespace trident

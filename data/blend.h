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
// Walks forward from the last position asked for, so a rank that asks in ascending order pays O(datasets) per position; a step back
// starts again at 0. Not shared between threads.
class Blend {
 public:
  explicit Blend(std::vector<double> weights);  // finite, > 0, at least one
  BlendedSample at(std::int64_t position);

 private:
  BlendedSample next();

  std::vector<double> weights_;
  std::vector<std::int64_t> counts_;
  std::int64_t position_ = -1;  // of last_
  BlendedSample last_{};
};

}  // namespace trident

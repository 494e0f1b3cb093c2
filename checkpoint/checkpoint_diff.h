// Two checkpoints element by element, whatever layouts wrote them; and the size of what one holds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_index.h"

namespace trident {

// A tensor of a kind that differs.
struct TensorDifference {
  std::string key = {};        // "exp_avg/model.norm.weight"; "model.norm.weight" for the weights
  std::int64_t different = 0;  // elements, of so many
  std::int64_t elements = 0;
  std::vector<std::int64_t> first = {};  // where the first of them is, row-major
  double first_a = 0, first_b = 0;       // its values
  std::string what = {};                 // in place of all that: why the two were not compared
};

struct CheckpointDifference {
  std::int64_t compared = 0;  // tensors, of all kinds
  std::vector<TensorDifference> tensors;
  std::vector<std::string> state;  // "updates: 100 and 200", of TrainingState
  std::vector<std::string> notes;  // what could not be compared, and why; what differs and makes no difference to training
  bool is_equal() const { return tensors.empty() && state.empty(); }
};

// Bit by bit: masters where both have them (f32 weights are their own), weights as stored where both have one dtype, as f32 where
// they have two and one has no masters. States of the optimizer that only one has are a difference, unless that one alone is
// complete: then a note says so. Streams: memory as StoredTensors', and a few pages. `progress` is called with tensors done and
// all.
CheckpointDifference compare_checkpoints(StoredTensors& a, StoredTensors& b,
                                         const std::function<void(std::int64_t, std::int64_t)>& progress = {});

// The 2-norm of a tensor's weights, as stored, summed in f64.
double weight_norm(StoredTensors& checkpoint, std::size_t tensor);

}  // namespace trident

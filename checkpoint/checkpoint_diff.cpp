#include "checkpoint/checkpoint_diff.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "checkpoint/box_copy.h"
#include "checkpoint/save_plan.h"
#include "core/check.h"
#include "core/json_reader.h"

namespace trident {

namespace {

constexpr std::int64_t kChunk = 1 << 16;  // elements at a time

// Reads elements of a box from element `begin` on as f32, which holds each of the three formats exactly.
void read_floats(StoredTensors& from, const StoredBox& box, DType dtype, std::int64_t begin, std::span<float> out,
                 ReadScratch& scratch) {
  scratch.resize(out.size() * static_cast<std::size_t>(size_of(dtype)));
  from.read(box, begin * size_of(dtype), scratch);
  convert_values(scratch.data(), dtype, reinterpret_cast<std::byte*>(out.data()), DType::kF32, std::ssize(out));
}

// A tensor's values of one kind in one of the checkpoints.
struct Side {
  StoredTensors& from;
  std::size_t kind, tensor;

  const std::vector<StoredBox>& boxes() const { return from.index().boxes(kind, tensor); }
  DType dtype() const { return from.index().kinds()[kind].dtype; }
};

class TensorComparison {
 public:
  TensorComparison(Side a, Side b, const std::vector<std::int64_t>& shape)
      : a_(a), b_(b), shape_(shape), values_a_(kChunk), values_b_(kChunk) {}

  TensorDifference run() {
    for (const StoredBox& of_a : a_.boxes())
      for (const StoredBox& of_b : b_.boxes())
        if (const std::optional<TensorBox> both = intersection(of_a.box, of_b.box))
          for_each_run(*both, of_a.box, of_b.box, [&](std::int64_t in_a, std::int64_t in_b, std::int64_t count) {
            compare(of_a, in_a, of_b, in_b, count);
          });
    difference_.elements = whole(shape_).elements();
    return difference_;
  }

 private:
  void compare(const StoredBox& of_a, std::int64_t in_a, const StoredBox& of_b, std::int64_t in_b, std::int64_t count) {
    for (std::int64_t done = 0; done < count; done += kChunk) {
      const auto size = static_cast<std::size_t>(std::min(kChunk, count - done));
      read_floats(a_.from, of_a, a_.dtype(), in_a + done, std::span(values_a_).first(size), scratch_);
      read_floats(b_.from, of_b, b_.dtype(), in_b + done, std::span(values_b_).first(size), scratch_);
      if (std::memcmp(values_a_.data(), values_b_.data(), size * sizeof(float)) == 0) continue;
      for (std::size_t i = 0; i < size; ++i)
        if (std::memcmp(&values_a_[i], &values_b_[i], sizeof(float)) != 0)
          note(place_of(of_a.box, in_a + done + static_cast<std::int64_t>(i)), values_a_[i], values_b_[i]);
    }
  }
  // Where in the tensor element number `index` of a box lies.
  static std::vector<std::int64_t> place_of(const TensorBox& box, std::int64_t index) {
    std::vector<std::int64_t> at = box.offset;
    for (std::size_t d = at.size(); d-- > 0; index /= box.shape[d]) at[d] += index % box.shape[d];
    return at;
  }
  // Places compare as their row-major numbers do.
  void note(std::vector<std::int64_t> at, double a, double b) {
    if (difference_.different++ > 0 && at >= difference_.first) return;
    difference_.first = std::move(at);
    difference_.first_a = a;
    difference_.first_b = b;
  }

  Side a_, b_;
  const std::vector<std::int64_t>& shape_;
  std::vector<float> values_a_, values_b_;
  ReadScratch scratch_;
  TensorDifference difference_;
};

std::optional<std::size_t> find_kind(const StoredTensors& checkpoint, std::string_view prefix) {
  const std::vector<StoredKind>& kinds = checkpoint.index().kinds();
  for (std::size_t k = 0; k < kinds.size(); ++k)
    if (kinds[k].prefix == prefix) return k;
  return std::nullopt;
}

// Weights in f32 are their own masters.
std::optional<std::size_t> masters_of(const StoredTensors& checkpoint) {
  return checkpoint.manifest().weights == DType::kF32 ? 0 : find_kind(checkpoint, kMasterPrefix);
}

struct KindPair {
  std::string prefix;  // in what is said
  std::size_t a, b;
};

// Pairs the kinds that both checkpoints hold; *result names the kinds that only one holds.
std::vector<KindPair> kinds_to_compare(const StoredTensors& a, const StoredTensors& b, CheckpointDifference* result) {
  std::vector<KindPair> pairs;
  const DType weights_a = a.manifest().weights, weights_b = b.manifest().weights;
  const auto masters_a = masters_of(a), masters_b = masters_of(b);
  if (weights_a == weights_b) pairs.push_back({"", 0, 0});
  if (masters_a && masters_b) {
    if (*masters_a != 0 || *masters_b != 0) pairs.push_back({std::string(kMasterPrefix), *masters_a, *masters_b});
  } else if (weights_a != weights_b) {
    pairs.push_back({"", 0, 0});
    result->notes.push_back(fmt::format("weights are {} and {}, without masters on both sides: compared as f32",
                                        to_string(weights_a), to_string(weights_b)));
  }
  const bool both_complete = a.manifest().complete && b.manifest().complete;
  const auto only_in = [&](const StoredTensors& one, const StoredTensors& other, std::string_view side) {
    for (const StoredKind& kind : one.index().kinds()) {
      if (kind.prefix.empty() || kind.prefix == kMasterPrefix || find_kind(other, kind.prefix)) continue;
      const std::string state = kind.prefix.substr(0, kind.prefix.size() - 1);
      if (both_complete)
        result->tensors.push_back({.key = state, .what = fmt::format("is a state of the optimizer in {} only", side)});
      else
        result->notes.push_back(fmt::format("{} is in {} only: the other has weights alone", state, side));
    }
  };
  only_in(a, b, "A");
  only_in(b, a, "B");
  for (std::size_t k = 0; k < a.index().kinds().size(); ++k) {
    const std::string& prefix = a.index().kinds()[k].prefix;
    if (prefix.empty() || prefix == kMasterPrefix) continue;
    if (const auto of_b = find_kind(b, prefix)) pairs.push_back({prefix, k, *of_b});
  }
  return pairs;
}

void compare_states(const TrainingState& a, const TrainingState& b, CheckpointDifference* result) {
  const JsonValue of_a = to_json(a), of_b = to_json(b);
  const auto compare = [&](const char* name, std::vector<std::string>& lines, std::string_view more) {
    const JsonValue &in_a = of_a.get(name), &in_b = of_b.get(name);
    if (in_a != in_b) lines.push_back(fmt::format("{}: {} and {}{}", name, to_json_text(in_a), to_json_text(in_b), more));
  };
  for (const char* name : {"updates", "position", "batches", "skipped", "skipped_in_a_row", "samples", "tokens", "loss_scale",
                           "loss_scale_clean_steps", "loss_scale_overflows_left", "blend_start", "blend_taken", "blend_now",
                           "last_eval"})
    compare(name, result->state, "");
  // A slow or full disk leaves saves out, and with them values that were better.
  for (const char* name : {"best_valid_loss", "best_valid_step"})
    compare(name, result->notes, ", of the steps that each run saved: not counted");
}

}  // namespace

CheckpointDifference compare_checkpoints(StoredTensors& a, StoredTensors& b,
                                         const std::function<void(std::int64_t, std::int64_t)>& progress) {
  CheckpointDifference result;
  compare_states(a.manifest().state, b.manifest().state, &result);
  const std::vector<KindPair> kinds = kinds_to_compare(a, b, &result);
  std::unordered_map<std::string_view, std::size_t> in_b;
  for (std::size_t t = 0; t < b.manifest().tensors.size(); ++t) in_b.emplace(b.manifest().tensors[t].name, t);
  std::int64_t all = std::ssize(a.manifest().tensors) * std::ssize(kinds);
  for (std::size_t t = 0; t < a.manifest().tensors.size(); ++t) {
    const ManifestTensor& tensor = a.manifest().tensors[t];
    const auto found = in_b.find(tensor.name);
    if (found == in_b.end()) {
      result.tensors.push_back({.key = tensor.name, .what = "is in A only"});
      continue;
    }
    const std::size_t of_b = found->second;
    in_b.erase(found);
    if (const auto& shape = b.manifest().tensors[of_b].shape; shape != tensor.shape) {
      result.tensors.push_back(
          {.key = tensor.name,
           .what = fmt::format("has the shapes {} and {}", to_string(whole(tensor.shape)), to_string(whole(shape)))});
      continue;
    }
    const auto &base_of_a = tensor.base, &base_of_b = b.manifest().tensors[of_b].base;
    if (base_of_a || base_of_b) {
      all -= std::ssize(kinds) - 1;
      if (!base_of_a || !base_of_b)
        result.notes.push_back(fmt::format("{} lies in the base of {} only: not compared", tensor.name, base_of_a ? "A" : "B"));
      else if (*base_of_a != *base_of_b)
        result.tensors.push_back({.key = tensor.name, .what = "has other values in the base of B than in that of A"});
      else
        ++result.compared;
      continue;
    }
    const bool frozen = tensor.frozen, frozen_in_b = b.manifest().tensors[of_b].frozen;
    if (frozen != frozen_in_b)
      result.notes.push_back(
          fmt::format("{} is frozen in {} only: its weights alone are compared", tensor.name, frozen ? "A" : "B"));
    for (const KindPair& kind : kinds) {
      if (!kind.prefix.empty() && (frozen || frozen_in_b)) {
        --all;
        continue;
      }
      TensorDifference difference = TensorComparison({a, kind.a, t}, {b, kind.b, of_b}, tensor.shape).run();
      difference.key = kind.prefix + tensor.name;
      if (difference.different > 0) result.tensors.push_back(std::move(difference));
      ++result.compared;
      if (progress) progress(result.compared, all);
    }
  }
  for (const ManifestTensor& tensor : b.manifest().tensors)
    if (in_b.contains(tensor.name)) result.tensors.push_back({.key = tensor.name, .what = "is in B only"});
  return result;
}

double weight_norm(StoredTensors& checkpoint, std::size_t tensor) {
  ReadScratch scratch;
  std::vector<float> values(kChunk);
  double sum = 0;
  for (const StoredBox& box : checkpoint.index().boxes(0, tensor)) {
    for (std::int64_t done = 0, all = box.box.elements(); done < all; done += kChunk) {
      const std::span<float> chunk = std::span(values).first(static_cast<std::size_t>(std::min(kChunk, all - done)));
      read_floats(checkpoint, box, checkpoint.manifest().weights, done, chunk, scratch);
      for (const float value : chunk) sum += static_cast<double>(value) * static_cast<double>(value);
    }
  }
  return std::sqrt(sum);
}

}  // namespace trident

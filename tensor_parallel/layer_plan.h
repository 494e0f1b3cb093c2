// The layers of a rank share its geometry, the numbers of their parameters, and where their tensors lie.
//
// A unit's passes are written once (tensor_parallel/pass.h). Run dry, they tell what they save, keep, multiply and need as scratch:
// the unit's UnitMemory. Run for real, they find their tensors there: nothing allocates. Letters: S sequence, B micro-batch, H
// hidden, t tensor-parallel ranks. Activations between layers are T[S', B, H] with S' = S/t under sequence parallelism (this rank's
// rows are s in [rank*S', (rank+1)*S')), else S' = S.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/named_enum.h"
#include "core/recompute_policy.h"
#include "core/tensor_view.h"
#include "core/tuning.h"
#include "parallel/zero/shard_spec.h"

namespace trident {

// Parameter layouts depend on these values, which are the same on every rank.
struct TensorLayout {
  int degree = 1;
  bool sequence_parallel = false;  // over one rank it changes nothing

  bool shards_sequence() const { return sequence_parallel && degree > 1; }
};

// The shapes every layer of a rank shares.
struct LayerGeometry {
  std::int64_t sequence = 0, micro_batch = 0;
  int tensor_degree = 1, tensor_rank = 0;
  bool sequence_parallel = false;
  DType compute = DType::kF32;
  RecomputePolicy recompute = RecomputePolicy::kNone;
  std::int64_t head_chunk = 0;  // rows of logits that exist at a time, made in backward; 0: all of them, kept
  bool leaves_rows_out = false;  // of logits: those whose target does not count. head_chunk is then all rows
  std::uint64_t seed = 0;        // of dropout
  // Keys that a query of a layer that sees whole documents sees on average; 0: all up to itself.
  std::int64_t document_interval = 0;
  bool positions_restart = false;  // within a sequence: tables that turn by its length have rows for shorter ones

  TensorLayout layout() const { return {tensor_degree, sequence_parallel}; }
  bool shards_sequence() const { return layout().shards_sequence(); }
  std::int64_t local_sequence() const { return shards_sequence() ? sequence / tensor_degree : sequence; }
  std::int64_t position_offset() const { return shards_sequence() ? tensor_rank * local_sequence() : 0; }
  std::int64_t full_rows() const { return sequence * micro_batch; }
  std::int64_t local_rows() const { return local_sequence() * micro_batch; }
  // First of the local rows among the full ones.
  std::int64_t row_offset() const { return position_offset() * micro_batch; }
  Shape activation_shape(std::int64_t hidden) const { return {local_sequence(), micro_batch, hidden}; }
  Shape full_shape(std::int64_t width) const { return {sequence, micro_batch, width}; }
};

struct ParamId {
  int index = -1;  // in the unit's spec list; -1: there is no such parameter
  bool present() const { return index >= 0; }
};

// A unit's parameters in declaration order. Pure: the same list on every rank.
class ParamList {
 public:
  explicit ParamList(const TensorLayout& layout) : layout_(layout) {}

  const TensorLayout& layout() const { return layout_; }
  // Parameters that are added from now on train as `tuning` says; null: all do.
  void follow(std::shared_ptr<const Tuning> tuning) { tuning_ = std::move(tuning); }
  // A parameter trains if one of its parts does.
  ParamId add(ParamSpec spec);
  const std::vector<ParamSpec>& specs() const { return specs_; }

 private:
  TensorLayout layout_;
  std::shared_ptr<const Tuning> tuning_;
  std::vector<ParamSpec> specs_;
};

// ---- tensors that outlive a call ------------------------------------------------------------------------------------------------

// Which policies recompute a saved tensor: the attention core only, the whole block, or it is always kept.
enum class RecomputeClass : std::uint8_t { kAttention, kBlock, kNever };

// The last call that reads a tensor: backward_input or backward_weight, where all weights train. With frozen ones a dry run finds
// it (UnitPlan::run).
enum class LastUse : std::uint8_t { kB, kW };

// The part of a model that an activation belongs to, for memory reports; no computation depends on it.
enum class ActivationKind : std::uint8_t {
  kInputs,     // of units: the residual stream, which full recomputation restarts from
  kAttention,  // queries, keys, values, the core's output and statistics
  kMlp,
  kNorms,      // outputs and statistics of norms, and the residual between a block's phases
  kLoss,       // logits and the loss' statistics
  kGradients,  // from the input gradients of a split backward to its weight gradients
};
inline constexpr std::size_t kNumActivationKinds = 6;
using BytesByKind = std::array<std::int64_t, kNumActivationKinds>;

// A member of a layer that names a tensor from forward to its last use. Its address is what a pass knows it by.
struct Saved {
  std::string_view name;
  ActivationKind kind;
  LastUse last_use;
  RecomputeClass recompute = RecomputeClass::kBlock;
};
// The same of a tensor that backward_input makes and backward_weight of the same unit and micro-batch uses last.
struct BetweenIW {
  std::string_view name;
};
// The same of a tensor that derive makes of the unit's weights alone, whenever these have changed, and all other calls read.
struct Derived {
  std::string_view name;
};

// Where a tensor lives.
enum class Region : std::uint8_t {
  kSaved,       // in a slot of the micro-batch, from forward to backward_input, which uses it last
  kSavedForW,   // likewise, to backward_weight: in the same slot, or in another one where schedules split the two
  // In an area that all units share: recomputed before backward_input, which uses it last (recompute policies); or used by no
  // backward at all, beside frozen weights.
  kRecomputed,
  kRecomputedForW,  // the same for tensors that backward_weight uses last: as long as kKept
  kKept,        // from backward_input to backward_weight: in an area that all units share, or in a slot where schedules split them
  kScratch,     // within one call
  kWorkspace,   // of one operation
  kDerived,     // of each unit, as long as its weights
};
template <>
inline constexpr std::array<std::string_view, 8> kNamesOf<Region>{
    "saved activations", "saved activations for weight gradients", "recomputed activations",
    "recomputed activations for weight gradients", "kept gradients", "scratch", "workspace", "derived from weights"};
inline constexpr int kNumRegions = 8;

// Which of a layer's calls a pass is in.
enum class PassKind : std::uint8_t { kForward, kRecompute, kBackward, kBackwardInput, kBackwardWeight, kDerive };
template <>
inline constexpr std::array<std::string_view, 6> kNamesOf<PassKind>{
    "forward", "recompute", "backward", "backward_input", "backward_weight", "derive"};
inline constexpr int kNumPassKinds = 6;

struct RegionTensor {
  Region region = Region::kScratch;
  std::int64_t offset = 0;  // bytes within the region
  DType dtype = DType::kF32;
  Shape shape;
  bool operator==(const RegionTensor&) const = default;

  std::int64_t num_bytes() const { return shape.num_elements() * size_of(dtype); }
};

// The scratch of one kind of call, in the order in which it is taken.
struct ScratchOfCall {
  bool known = false;  // a dry call has ended
  std::vector<RegionTensor> tensors;
};

// A unit's memory, as a dry run of its passes found it.
struct UnitMemory {
  std::vector<std::pair<const void*, RegionTensor>> places;  // of each Saved, BetweenIW and Derived
  std::array<ScratchOfCall, kNumPassKinds> scratch;          // by PassKind
  std::array<std::int64_t, kNumRegions> bytes{};             // by Region
  std::array<RegionTensor, kNumRegions> largest{};           // for messages; of shape [] where there is none
  bool weight_gradient_reads_weights = false;                // whether backward_weight, alone, reads parameters
  std::vector<const void*> weight_gradient_reads;            // what Saved and BetweenIW it reads
  std::vector<const void*> backward_reads;                   // and what all calls but forward do
  bool held_as_read = false;  // tensors are held as these lists say, which were made before, and not as they are declared

  std::int64_t region_bytes(Region region) const { return bytes[static_cast<std::size_t>(region)]; }
  bool derives() const { return region_bytes(Region::kDerived) > 0; }
  const RegionTensor& largest_of(Region region) const { return largest[static_cast<std::size_t>(region)]; }
  // Bytes by kind in a region of Saved or BetweenIW; they add up to the region's bytes.
  BytesByKind bytes_by_kind(Region region) const;
};

// [.., C] as [rows, C].
template <class View>
View as_rows(View x) {
  const std::int64_t columns = x.shape()[-1];
  return x.reshape({x.num_elements() / columns, columns});
}

}  // namespace trident

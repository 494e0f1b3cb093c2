// One rank's parameters: laid out in buckets, gathered for use, their gradients reduced, under one ZeRO policy.
//
// Three things that are not the same: a *unit* (layer, embedding, head) is what is gathered and freed; a *bucket* is one flat buffer
// of parameters of one unit that are reduced alike; the *formats* are f32 master, compute dtype on the wire and in use.
// Offsets and cuts are pure (make_buckets), the store only moves bytes. Within a bucket every parameter starts at a multiple of
// kParamAlignment elements and is dense, so gathered weights are GEMM operands as they are; rank i of the N = dp x cp ranks owns
// the i-th of N equal slices, wherever that cuts. The gaps are zero in every format.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/zero_policy.h"
#include "device/arena.h"
#include "device/device.h"
#include "parallel/parallel_context.h"
#include "parallel/shard_spec.h"

namespace trident {

inline constexpr std::int64_t kParamAlignment = 64;  // elements; also the block of the gradient norm

// ---- layout (pure) -----------------------------------------------------------------------------------------------------------

struct BucketLayout {
  struct Entry {
    int param = 0;            // index in the unit's spec list
    std::int64_t offset = 0;  // elements
    Shape shape;              // dense local shape
  };
  std::vector<Entry> entries;
  std::int64_t elements = 0;        // padded: shards * shard_elements
  std::int64_t shard_elements = 0;  // a multiple of kParamAlignment
  std::vector<SubAxis> partial_over;
  TieGroup tie = TieGroup::kNone;
  bool trainable = true;
};

// Buckets of one unit: parameters in declaration order, split where (partial axes, tie, trainable) change or `bucket_bytes` of f32
// gradients are reached; a tied weight is alone in its bucket, so that its cuts are the same wherever it is held.
std::vector<BucketLayout> make_buckets(const std::vector<ParamSpec>& specs, int tensor_degree, int shards, std::int64_t bucket_bytes);

// ---- the store ------------------------------------------------------------------------------------------------------------------

// What a rank holds: the units in model order with their parameters.
struct UnitParams {
  int unit = 0;
  std::vector<ParamSpec> specs;
};

struct ParamStoreConfig {
  ZeroPolicy policy;
  DType compute = DType::kF32;
  std::int64_t bucket_bytes = 25 << 20;
  std::uint64_t seed = 0;
  int num_gather_slots = 0;  // buffers for gathered units (0 when resident); from the step program
  int num_grad_slots = 0;    // buffers for a unit's transient full gradients (0 when gradients are kept full)
};

class ParamStore {
 public:
  // Books all memory in `plan`; nothing is usable before bind().
  ParamStore(ParamStoreConfig config, std::vector<UnitParams> units, ParallelContext& context, ArenaPlan& plan);

  // Grants the memory, draws the initial weights (each element a pure function of seed, tensor name and global index), and
  // gathers resident units.
  void bind(Arena& arena);

  // ---- weights -----------------------------------------------------------------------------------------------------------------
  // Starts gathering `unit` into `slot` (ignored when resident) on the gather stream; the buffer's earlier use must be over.
  void gather(int unit, int slot);
  // The compute stream waits for the gather of `unit`. No-op when nothing is pending.
  void wait_gathered(int unit);
  // The slot may be overwritten by a later gather.
  void free(int unit, int slot);
  // The dense compute-dtype weight; the unit must be gathered or resident.
  ConstTensorView weight(int unit, int param) const;

  // ---- gradients ----------------------------------------------------------------------------------------------------------------
  // Before a backward of `unit`: `first` = the first since the last reduction (gradients are overwritten), in transient buffer
  // `slot` when gradients are not kept full. Waits until an earlier reduction has left that buffer.
  void begin_backward(int unit, int slot, Accumulate accumulate);
  // f32, dense, to be written with grad_mode(unit).
  TensorView grad(int unit, int param);
  Accumulate grad_mode(int unit) const;
  // Starts the sum over dp (x cp), then over the bucket's partial axes once `last`, on the reduce stream.
  void reduce(int unit, int slot, bool first, bool last);
  // Adds the lookup and the head gradient of the tied weight (both reduced), on both ranks that hold it, in that order.
  void exchange_tied();
  // The compute stream waits for all reductions.
  void wait_reduced();

  // ---- shards: what the optimizer works on -------------------------------------------------------------------------------------------
  struct Shard {
    int unit = 0;
    const BucketLayout* bucket = nullptr;
    std::int64_t begin = 0;      // first element of the bucket that this rank owns
    TensorView master;           // f32 [n]
    TensorView param;            // compute dtype [n]: where the updated values go (wire shard or slice of the resident weights)
    TensorView grad;             // f32 [n], reduced; valid after wait_reduced()
    bool norm_owner = true;      // this rank counts the shard in the gradient norm (not a tp replica, not the tied copy)
    bool update = true;          // false for the head's view of a tied weight that the embedding's shard already updates
  };
  std::span<Shard> shards() { return shards_; }
  const ParamSpec& spec(int unit, int param) const;

  // Logical bytes this rank sends per step for gradients and parameters by the formulas of docs/communication.md are derived
  // outside; here only sizes: sum of bucket elements of a unit.
  std::int64_t unit_elements(int unit) const;

 private:
  struct Bucket;
  struct Unit;
  std::vector<Shard> shards_;
};

}  // namespace trident

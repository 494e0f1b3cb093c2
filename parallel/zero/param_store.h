// One rank's parameters under one ZeRO policy: gathered for use, their gradients reduced.
//
// Three things that are not the same: a *unit* (layer, embedding, head) is what is gathered and freed; a *bucket* (param_layout.h) is
// one flat buffer that is reduced at once; the *formats* are f32 master, and the compute dtype on the wire and in use. Offsets and
// cuts are pure; the store only moves bytes, in the order the step program says.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/at.h"
#include "core/zero_policy.h"
#include "device/arena.h"
#include "device/op_flags.h"
#include "device/device.h"
#include "parallel/grid/parallel_context.h"
#include "parallel/zero/param_layout.h"
#include "parallel/zero/shard_spec.h"

namespace trident {

// A rank's units in model order with their parameters.
struct UnitParams {
  int unit = 0;
  std::vector<ParamSpec> specs;
};

struct ParamStoreConfig {
  ZeroPolicy policy;
  DType compute = DType::kF32;
  std::int64_t bucket_bytes = 25 << 20;
  std::uint64_t seed = 0;
  // The sizes of the regions in which the step program places gathered units (0: weights are resident) and transient full gradients (0: gradients
  // are kept full). A place is a multiple of kArenaAlignment.
  std::int64_t gather_bytes = 0, grad_bytes = 0;
  // False: for forwards alone. No master weights beside those in use, no gradients, and the weights are 0 until they are written.
  // Buckets of frozen parameters are kept so in training, too, but with initial values.
  bool trains = true;
};

// A shard as the optimizer sees it. The views are there after ParamStore::bind().
struct ParamShard {
  int unit = 0;
  std::int64_t elements = 0;  // n
  TensorView master;  // f32 [n]; where nothing trains of nothing, unless it is `param` itself
  TensorView param;   // compute dtype [n]: where updated values go; is `master` itself in f32
  TensorView grad;    // f32 [n]: reduced, valid after wait_reduced(); of nothing where nothing trains
  std::vector<ShardPiece> pieces;
  bool counts_in_norm = true;  // false: another rank (ddp), or the embedding's copy of a tied weight, counts it
  // False: frozen, or the head's gradient of a tied weight whose one copy the embedding's shard updates.
  bool updated = true;
};

class ParamStore {
 public:
  ParamStore(const ParamStore&) = delete;  // shards point into the units' specs
  ParamStore& operator=(const ParamStore&) = delete;

  // Books all memory in `plan`; nothing is usable before bind().
  ParamStore(const ParamStoreConfig& config, std::vector<UnitParams> units, ParallelContext& context, ArenaPlan& plan);

  // Grants the memory, draws the initial weights where it trains and makes resident units complete. Collective over dp.
  void bind(Arena& arena);

  // Brings the compute-dtype weights up to date after the f32 masters were written from outside a step (initial values, loaded
  // ones): converts this rank's shards and, where weights are resident, gathers them. Collective over dp.
  void publish_masters();
  // The same where the compute-dtype values of the shards were written, too. Collective over dp.
  void publish_weights();

  // ---- weights ---------------------------------------------------------------------------------------------------------------
  // Starts gathering `unit` on the gather stream, all its buckets as one group, to `place` (ignored when weights are
  // resident), where no other unit may be.
  void gather(int unit, int place);
  // The compute stream waits for the gather of `unit` to `place`, unless it has; weight() may then be read.
  void wait_gathered(int unit, int place);
  // Work given so far may read the unit; later gathers, which may overwrite it, wait for that work.
  void free(int unit, int place);
  // The masters were written on the compute stream: later gathers wait for that.
  void masters_updated();
  // Grows whenever masters or weights have been written, on all ranks alike.
  std::int64_t weights_version() const { return weights_version_; }
  // The dense compute-dtype weight; the unit must be gathered or resident.
  ConstTensorView weight(int unit, int param) const;

  // ---- gradients --------------------------------------------------------------------------------------------------------------
  // Before a backward of `unit`: with Accumulate::kNo its gradients are overwritten (the first backward since they were reduced),
  // at `place` when gradients are not kept full. Waits until earlier reductions have left that memory.
  void begin_backward(int unit, int place, Accumulate mode);
  // Whether a parameter has a gradient.
  bool trains(int unit, int param) const { return trains() && at(unit_of(unit).specs, param).trainable; }
  // f32, dense; written by the layers in grad_mode().
  TensorView grad(int unit, int param) const;
  Accumulate grad_mode(int unit) const;
  // Starts the sum over dp x cp on the reduce stream, of all its buckets as one group; with `last` (the unit's gradients are
  // complete) also over the partial axes.
  void reduce(int unit, bool last);
  // Lookup gradient + head gradient of the tied weight, both reduced, added in this order on every rank that holds the weight. `peer`:
  // the pipeline rank of the other end; this rank's own where it holds both.
  void exchange_tied(int peer);
  // The compute stream waits for all reductions.
  void wait_reduced();

  std::span<const ParamShard> shards() const { return shards_; }
  const ParamStoreConfig& config() const { return config_; }
  bool resident() const { return config_.gather_bytes == 0; }
  bool trains() const { return config_.trains; }

 private:
  struct Bucket {
    BucketLayout layout;
    std::size_t unit_index = 0;    // in units_
    bool trains = false;           // its parameters have masters, gradients and optimizer states
    std::int64_t unit_offset = 0, grad_offset = 0;  // elements, within the unit's contiguous weights and gradients
    std::size_t shard = 0;         // index in shards_ (one per bucket)
    std::int64_t owned_begin = 0, owned = 0;  // the elements whose optimizer state is here
    int shares_weight_with = -1;   // bucket index: the one copy of a tied weight when this rank holds both ends
    ArenaSlot master_slot, accumulated_slot;
    TensorView wire;         // compute dtype: what gathers send; this rank's shard, or all of it under ddp
    TensorView accumulated;  // f32: sums of reduced micro-batches (only when grad_sync_every > 0)
    bool has_accumulated = false;
    Event reduced;           // its reduction in progress
    bool reduction_pending = false, reduction_last = false;
  };
  struct Place {  // of a parameter, in elements
    Shape shape;
    std::int64_t grad_offset = 0;    // within its unit's gradients
    std::size_t weight_unit = 0;     // index of the unit whose weights hold it: another one's where a tied weight has one copy
    std::int64_t weight_offset = 0;  // within those
  };
  struct Unit {
    int id = 0;
    std::vector<ParamSpec> specs;
    std::vector<Place> places;  // by parameter
    std::vector<int> buckets;
    std::int64_t elements = 0, grad_elements = 0;  // of all buckets, and of those that train
    ArenaSlot weight_slot, grad_slot;
    TensorView weights, grads;  // the unit's own, or in a region: of nothing while not gathered, before the first backward
    Accumulate mode = Accumulate::kNo;
    Event gathered;  // its gather in progress
    bool gather_pending = false;
  };
  struct Region {
    ArenaSlot slot;
    TensorView memory;
    TensorView place(int number, std::int64_t elements) const;
  };

  std::size_t index_of(int id) const;
  Unit& unit_of(int id) { return units_[index_of(id)]; }
  const Unit& unit_of(int id) const { return units_[index_of(id)]; }
  void make_shards();
  std::int64_t held_elements(const Unit& unit) const;
  void book(ArenaPlan& plan);
  void grant(Arena& arena);
  void draw_weights(const Bucket& bucket);
  // A resident unit gathers all its buckets, or the ones whose weights change in steps.
  enum class Gathers : std::uint8_t { kAll, kUpdated };
  void gather_buckets(Unit& unit, Gathers which);
  TensorView bucket_grad(const Bucket& bucket) const;
  TensorView reduced_grad(const Bucket& bucket) const;  // this rank's reduced part of the local gradient buffer
  TensorView owned_grad(const Bucket& bucket) const;    // the same, or the sum of such parts
  void check_place(const Unit& unit, int place) const;
  void zero_gaps(const Unit& unit);
  void finish_reduction(Bucket& bucket);
  void finish_unit(Unit& unit);
  void sum_partial(Bucket& bucket, TensorView grad);
  Bucket* tied_bucket(TiedEnd end);

  ParamStoreConfig config_;
  ParallelContext& context_;
  int shard_count_ = 1, shard_index_ = 0;
  std::vector<Unit> units_;
  std::vector<int> unit_index_;  // by unit id; -1: not on this rank
  Event masters_updated_;        // the optimizer has written what gathers send
  std::int64_t weights_version_ = 0;
  std::vector<Bucket> buckets_;
  std::vector<ParamShard> shards_;
  Region gathered_, transient_;  // units' parameters, units' gradients
  Event released_;               // the compute stream has read all units that were freed
  ArenaSlot wires_slot_, tied_slot_;
  TensorView tied_received_;
};

}  // namespace trident

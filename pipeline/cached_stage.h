// One pipeline rank's units, run forward over a cache of keys and values: pieces of a prompt for one slot, or one token for each.
//
// A slot is a place for one sequence in the caches. All ranks make the same passes in the same order; activations travel from stage
// to stage as in training, and units that are not resident are gathered for each pass, one at a time. Memory is booked before, and
// the passes of every size are planned before: nothing is allocated.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "device/arena.h"
#include "model/cached_step.h"
#include "model/config/model_config.h"
#include "model/gpt.h"
#include "model/layer.h"
#include "model/model_constants.h"
#include "model/sequence_rotations.h"
#include "parallel/grid/parallel_context.h"
#include "parallel/zero/param_store.h"
#include "pipeline/kv_cache_shape.h"
#include "pipeline/schedule/partition.h"

namespace trident {

// The pieces of a prompt of `tokens` tokens, each a size of `rows`: the largest that are nearly full, and at last the smallest,
// however few are left. Of the prompt's length alone, so that a prompt is computed alike in every batch.
std::vector<std::int64_t> pieces_of_prompt(std::int64_t tokens, std::span<const std::int64_t> rows);
// The sizes that prompts of up to `longest` tokens make use of.
std::vector<std::int64_t> piece_rows_for(std::int64_t longest);

// The caches for `slots` sequences at once of up to `longest` + `new_tokens` tokens. ConfigError naming `key`, which asks for
// the new tokens, where that is more than the model's positions.
KvCacheShape shapes_for(const ModelConfig& model, std::int64_t longest, std::int64_t new_tokens, std::int64_t slots,
                        std::string_view key);

class CachedStage {
 public:
  // `geometry`: of the rank. Its sequence, micro_batch, recomputation and sequence parallelism do not count: nothing of a pass is
  // kept, and its rows are too few to share out.
  CachedStage(const ModelConfig& model, const LayerGeometry& geometry, const UnitsOfStage& units_of_stage,
              const KvCacheShape& shapes, ParallelContext& context, ArenaPlan& plan);

  std::vector<UnitParams> unit_params() const;
  // `store`, which outlives the object, has this rank's units. In passes it is between steps: where weights are gathered on use,
  // all data ranks make the same passes.
  void bind(Arena& arena, ParamStore& store);

  // Before the passes of a sequence of `tokens` tokens in the slot: its prompt, later also what was made. True: its keys turn by
  // other angles from this length on (longrope), and those in the slot are of no use: all its tokens are to be given anew.
  bool set_length(std::int64_t slot, std::int64_t tokens);
  // The tokens at positions first .. of the sequence in `slot`: at most `rows`, which is one of the piece sizes. With `choose`
  // logits() are those of the last one.
  void extend(std::int64_t slot, std::int64_t first, std::span<const std::int32_t> tokens, std::int64_t rows, bool choose);
  // Every slot's next token and its position. Slots without a sequence may hold anything.
  struct Next {
    std::int32_t token = 0;
    std::int64_t position = 0;
  };
  void step(std::span<const Next> next);

  // Waits until all that was sent has arrived. Call it after the last pass.
  void drain() { sent_.wait_host(); }

  // f32 [1 or slots, padded V/t] after such a pass, on the last stage; on the compute stream.
  ConstTensorView logits() const { return logits_; }
  bool is_last_stage() const { return context_.coordinates().pipeline == context_.grid().degrees().pipeline - 1; }
  double logit_softcap() const { return model_.logit_softcap; }  // not yet applied to logits()
  // Bytes of keys and values for one position, in all layers.
  std::int64_t cache_bytes_per_position() const { return cache_bytes_per_position_; }
  // Positions of a text of `tokens` tokens that a step's attention sees, on average over this rank's blocks.
  std::int64_t positions_seen(std::int64_t tokens) const;
  // Bytes of weights that one token alone reads: all but the embedding's rows, unless they are the head's, too.
  std::int64_t weight_bytes_per_token() const;

 private:
  struct Unit {
    int number = 0;
    std::unique_ptr<Layer> layer;
    std::vector<ParamSpec> params;
    BookedTensor keys, values;  // of blocks: T [slots, K, capacity, D]
    ArenaSlot derived_slot;
    std::int64_t derived_bytes = 0;
    std::byte* derived = nullptr;
    std::int64_t derived_version = -1;  // of the weights that `derived` is made of
  };
  struct Chunk {  // a virtual stage
    int virtual_stage = 0;
    std::vector<Unit> units;
  };
  // Passes of S rows and B samples.
  struct Variant {
    LayerGeometry geometry;
    std::vector<UnitMemory> memory;  // by unit of the rank, chunk by chunk
  };

  Unit planned_unit(int number);
  // Units that have a cache.
  template <class F> void for_each_block(F&& f) {
    for (Chunk& chunk : chunks_)
      for (Unit& unit : chunk.units)
        if (unit.number != 0 && unit.number != head_unit(model_)) f(unit);
  }
  bool slides(const Unit& unit) const { return capacities_.window > 0 && model_.slides(unit.number - 1); }
  std::int64_t capacity_of(const Unit& unit) const { return slides(unit) ? capacities_.window : capacities_.all; }
  void book(ArenaPlan& plan);
  // The pass's places from firsts_ and counts_, of samples from `slot` on.
  CachedStep step_of(std::int64_t slot, std::span<const LayerCache> caches, TensorView logits);
  // `slot`: of sample 0.
  void run(const Variant& variant, const CachedStep& step, std::int64_t slot, std::span<const std::int32_t> tokens, bool choose);
  void run_unit(Unit& unit, std::size_t index, const Variant& variant, const MicroBatch& batch, ConstTensorView x,
                TensorView y);
  void receive(TensorView activation);
  void send(ConstTensorView activation);
  void write_batch(const Variant& variant, const CachedStep& step, std::int64_t slot, std::span<const std::int32_t> tokens);

  ModelConfig model_;
  KvCacheShape shapes_;
  CacheCapacities capacities_;
  ParallelContext& context_;
  ModelConstants constants_;
  SequenceRotations prompt_angles_;  // of the prompt in work
  std::vector<std::int64_t> first_rows_;  // by slot: of the rotation's tables
  std::vector<std::int64_t> lengths_;  // by slot
  std::vector<Chunk> chunks_;  // in the order in which a pass meets them
  int last_virtual_stage_ = 0;  // of the model
  std::vector<Variant> variants_;  // of the piece sizes, then of step()
  std::int64_t most_rows_ = 0;     // of a pass
  std::array<std::int64_t, kNumRegions> region_bytes_{};
  std::array<ArenaSlot, kNumRegions> region_slots_{};
  std::array<std::byte*, kNumRegions> regions_{};
  std::array<BookedTensor, 2> activations_;  // T [rows * H]: what a unit reads and what it writes
  BookedTensor tokens_, by_row_, by_sample_, first_key_, samples_, all_logits_;
  TensorView logits_;
  std::vector<LayerCache> caches_;       // by unit of the model
  std::vector<LayerCache> slot_caches_;  // of the slot in work
  std::vector<std::int32_t> positions_by_row_, positions_by_sample_, first_keys_, token_rows_;
  std::vector<std::int64_t> firsts_, counts_;
  std::vector<std::int64_t> window_bases_;                // by slot: the position of the first place in caches of windows
  std::vector<std::int64_t> window_firsts_, window_moved_;  // of the pass
  std::int64_t cache_bytes_per_position_ = 0;
  Event sent_;  // the last message to the next stage
  ParamStore* store_ = nullptr;
};

}  // namespace trident

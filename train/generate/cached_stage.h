// One pipeline rank's units, run forward over a cache of keys and values: pieces of a prompt for one slot, or one token for each.
//
// A slot is a place for one sequence in the caches. All ranks make the same passes in the same order; activations travel from stage
// to stage as in training. Memory is booked before, and the passes of every size are planned before: nothing is allocated.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/arena.h"
#include "model/cached_step.h"
#include "model/layer.h"
#include "model/model_config.h"
#include "model/model_constants.h"
#include "parallel/grid/parallel_context.h"
#include "parallel/zero/param_store.h"
#include "train/generate/inference_weights.h"

namespace trident {

struct CachedShapes {
  std::int64_t capacity = 0;             // positions of a sequence
  std::int64_t slots = 1;                // sequences at once
  std::vector<std::int64_t> piece_rows;  // ascending: of which sizes a prompt's pieces are
};

// The pieces of a prompt of `tokens` tokens, each a size of `rows`: the largest that are full, and at last the smallest, which may
// not be. Of the prompt's length alone, so that a prompt is computed alike in every batch.
std::vector<std::int64_t> pieces_of_prompt(std::int64_t tokens, std::span<const std::int64_t> rows);
// The sizes that prompts of up to `longest` tokens make use of.
std::vector<std::int64_t> piece_rows_for(std::int64_t longest);

class CachedStage {
 public:
  // `geometry`: of the rank; its sequence and micro_batch do not count, and sequence parallelism is off.
  CachedStage(const ModelConfig& model, const LayerGeometry& geometry, const std::vector<int>& units, const CachedShapes& shapes,
              ParallelContext& context, ArenaPlan& plan);

  std::vector<UnitParams> unit_params() const;
  // `weights` outlives the object.
  void bind(Arena& arena, const InferenceWeights& weights);

  // The tokens at positions first .. of the sequence in `slot`: at most `rows`, which is one of the piece sizes. With `choose`
  // logits() are those of the last one.
  void extend(std::int64_t slot, std::int64_t first, std::span<const std::int32_t> tokens, std::int64_t rows, bool choose);
  // Of every slot the token that comes next, and its position. One for each slot; what is in a slot of no sequence does not matter.
  struct Next {
    std::int32_t token = 0;
    std::int64_t position = 0;
  };
  void step(std::span<const Next> next);

  // What was sent has arrived. After the last pass.
  void drain() { sent_.wait_host(); }

  // f32 [1 or slots, padded V/t] after such a pass, on the last stage; on the compute stream.
  ConstTensorView logits() const { return logits_; }
  bool is_first_stage() const { return context_.coordinates().pipeline == 0; }
  bool is_last_stage() const { return context_.coordinates().pipeline == context_.grid().degrees().pipeline - 1; }
  // Of keys and values, for one position.
  std::int64_t cache_bytes_per_position() const { return cache_bytes_per_position_; }
  std::int64_t cache_bytes() const { return cache_bytes_per_position_ * shapes_.capacity * shapes_.slots; }

 private:
  struct Unit {
    int number = 0;
    std::unique_ptr<Layer> layer;
    std::vector<ParamSpec> params;
    ArenaSlot keys_slot, values_slot;
  };
  // Passes of S rows and B samples.
  struct Variant {
    LayerGeometry geometry;
    std::vector<UnitMemory> memory;  // by unit of the rank
  };

  void book(ArenaPlan& plan);
  void run(const Variant& variant, const CachedStep& step, std::span<const std::int32_t> tokens, bool choose);
  void write_batch(const Variant& variant, const CachedStep& step, std::span<const std::int32_t> tokens);

  ModelConfig model_;
  CachedShapes shapes_;
  ParallelContext& context_;
  ModelConstants constants_;
  std::vector<Unit> units_;
  std::vector<Variant> variants_;  // of the piece sizes, then of step()
  std::int64_t most_rows_ = 0;     // of a pass
  std::array<std::int64_t, kNumRegions> region_bytes_{};
  std::array<ArenaSlot, kNumRegions> region_slots_{};
  std::array<std::byte*, kNumRegions> regions_{};
  std::array<ArenaSlot, 2> activation_slots_;
  std::array<TensorView, 2> activations_;  // T [rows * H]: what a unit reads and what it writes
  ArenaSlot tokens_slot_, by_row_slot_, by_sample_slot_, samples_slot_, logits_slot_;
  TensorView tokens_, by_row_, by_sample_, samples_, all_logits_, logits_;
  std::vector<LayerCache> caches_;       // by unit of the model; T [slots, K, capacity, D]
  std::vector<LayerCache> slot_caches_;  // of the slot in work
  std::vector<std::int32_t> positions_by_row_, positions_by_sample_, token_rows_;
  std::vector<std::int64_t> firsts_, counts_;
  std::int64_t cache_bytes_per_position_ = 0;
  Event sent_;  // the last message to the next stage
  const InferenceWeights* weights_ = nullptr;
};

}  // namespace trident

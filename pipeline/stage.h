// One pipeline rank's part of the model: its units' layers, the activations of micro-batches in flight, and the tensors that cross
// stage boundaries. It computes what an instruction says and decides nothing.
//
// Activations and their gradients are T[S', B, H] (model/layer.h). The input of every unit is kept in the micro-batch's activation
// block, so that a unit can be recomputed from it. The gradient runs through the stage's units in place, in one of two buffers
// that take turns, so that one may still be on its way while the next micro-batch is computed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/at.h"
#include "model/config/model_config.h"
#include "model/layer.h"
#include "model/model_constants.h"
#include "parallel/grid/parallel_context.h"
#include "parallel/zero/param_store.h"
#include "pipeline/schedule/step_program.h"
#include "tensor_parallel/layer_plan.h"
#include "tensor_parallel/store_views.h"

namespace trident {

// The blocks that a micro-batch in flight holds of a virtual stage; StepProgram says how many there are at once.
struct ActivationBlocks {
  int virtual_stage = 0;
  std::int64_t saved = 0;        // until its input gradients
  std::int64_t for_weights = 0;  // until its weight gradients; 0 where backwards are not split
  std::int64_t kept = 0;         // between the two, likewise
};

class Stage {
 public:
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // Plans the layers of this rank's units. `programs`: the step programs of this rank that will run (training, evaluation); they
  // say how many activation blocks and receive buffers there are, and whether anything is kept for backwards. Books all memory in
  // `arena_plan`.
  Stage(const ModelConfig& model, const LayerGeometry& geometry, const UnitsOfStage& units_of_stage,
        std::span<const StepProgram* const> programs, ParallelContext& context, ArenaPlan& arena_plan);

  // The parameters of this rank's units, in model order.
  std::vector<UnitParams> unit_params() const;

  // Bytes of this rank's activations that are logits, which recompute.head_chunk would keep to a chunk.
  std::int64_t logits_bytes() const { return logits_bytes_; }
  std::vector<ActivationBlocks> activation_blocks() const;  // by chunk
  // The bytes of all blocks and slots that micro-batches hold; zeros where no backward runs.
  const BytesByKind& held_by_kind() const { return held_by_kind_; }
  // Which rows of rotation tables a sequence's positions are; where nothing trains it may be shorter than the geometry's.
  const ModelConstants& constants() const { return constants_; }

  void bind(Arena& arena, ParamStore& store);
  // The micro-batches of the step about to run, indexed by Instruction::micro_batch; they outlive it.
  void set_micro_batches(std::span<const MicroBatch> micro_batches, const StepProgram& program);

  // ---- instructions -----------------------------------------------------------------------------------------------------------
  void forward(const Instruction& instruction);
  // Backward, or BackwardInput, which leaves in the micro-batch's kept slot what its BackwardWeight needs.
  void backward(const Instruction& instruction);
  void backward_weight(const Instruction& instruction);
  void send_activation(const Instruction& instruction);
  void recv_activation(const Instruction& instruction);
  void send_gradient(const Instruction& instruction);
  void recv_gradient(const Instruction& instruction);

 private:
  struct UnitPart {
    int unit = 0;
    std::unique_ptr<Layer> layer;
    std::vector<ParamSpec> params;
    UnitMemory memory;
    std::optional<StoreViews> views;  // of its parameters, once there is a store
    std::int64_t input_offset = 0;      // bytes within the block that has the input
    bool input_for_weights = false;     // backward_weight reads it last
    bool shares_input = false;          // with the unit before the one before: neither runs backward
    // Bytes within what a micro-batch holds: of kSaved, kSavedForW, kRecomputedForW and kKept.
    std::array<std::int64_t, kNumRegions> offset{};
    ArenaSlot derived_slot;
    std::byte* derived = nullptr;
    std::int64_t derived_version = -1;  // of the weights that `derived` is made of
  };
  struct Slots {  // of `bytes` for each of some micro-batches
    std::int64_t bytes = 0;
    std::vector<ArenaSlot> ranges;
    std::vector<TensorView> views;  // u8
    // The offset of what lies behind everything that was added before.
    std::int64_t add(std::int64_t more);
    TensorView at(int slot) const { return trident::at(views, slot); }
  };
  struct Chunk {  // a virtual stage
    int virtual_stage = 0;
    std::vector<UnitPart> units;
    // Activations until the input gradients. Where I and W are apart: what weight gradients read, and what lies between the two;
    // else the one is in the blocks, too, and the other in areas that all units share.
    Slots blocks, for_weights, kept;
  };
  // A boundary tensor and the message that may still use it.
  struct Boundary {
    ArenaSlot slot;
    TensorView view;
    Event message;
    // Whose tensor it holds: what is handed over between two virtual stages of this rank is checked against what is expected.
    int virtual_stage = Instruction::kNone, micro_batch = Instruction::kNone;
  };

  Chunk& chunk_of(int virtual_stage);
  bool is_first(int virtual_stage) const { return virtual_stage == 0; }
  bool is_last(int virtual_stage) const { return virtual_stage == num_virtual_stages_ - 1; }
  bool is_local(int virtual_stage) const;  // whether `virtual_stage` exists and lives on this rank
  UnitPart& part_of(Chunk& chunk, int unit, std::size_t& index);
  TensorView block(const Chunk& chunk, int micro_batch) const;
  TensorView block_for_weights(const Chunk& chunk, int micro_batch) const;
  TensorView input_of(const Chunk& chunk, std::size_t index, int micro_batch) const;
  void count_held(const Chunk& chunk);
  static bool has(std::span<const StepProgram* const> programs, InstructionKind kind);
  static bool runs_backward(std::span<const StepProgram* const> programs, int unit);
  static bool forward_only(std::span<const StepProgram* const> programs);
  std::int64_t activation_bytes() const;  // of one boundary or input, aligned
  void plan_chunk(int stage, const ModelConfig& model, const std::vector<int>& units, std::span<const StepProgram* const> programs,
                  ArenaPlan& arena_plan);
  void book_regions(const ModelConfig& model, ArenaPlan& arena_plan);
  void book_boundaries(std::span<const StepProgram* const> programs, ArenaPlan& arena_plan);
  static void overlay(Chunk& chunk, std::int64_t activation_bytes);
  void book_slots(Chunk& chunk, std::span<const StepProgram* const> programs, const std::string& largest, ArenaPlan& arena_plan);
  // kApart: one of the halves of a backward; what lies between them is in the kept slot.
  enum class Halves : std::uint8_t { kTogether, kApart };
  LayerPass pass_over(const Chunk& chunk, const UnitPart& part, int micro_batch, Halves halves = Halves::kTogether) const;
  // The first backward of a micro-batch here: takes a gradient buffer and fills it.
  void begin_backward(const Chunk& chunk, int micro_batch);
  TensorView output_of(Chunk& chunk, std::size_t index, int micro_batch);
  void take_received(TensorView out, std::vector<Boundary>& receives, int virtual_stage, int micro_batch);
  void send(Boundary& boundary, const Instruction& instruction, Direction direction);
  void recv(Boundary& boundary, const Instruction& instruction, Direction direction);
  const Boundary& handed_over(const Boundary& boundary, int virtual_stage, int micro_batch) const;
  void copy(TensorView out, ConstTensorView in) const;
  // Gives the pass of a unit to Device::run_capturable(), but not where hosts drive collectives within it.
  void run(FunctionRef<void()> calls) const;

  LayerGeometry geometry_;
  ModelConstants constants_;
  Shape activation_shape_;
  ParallelContext& context_;
  int num_virtual_stages_ = 1;
  bool splits_backwards_ = false;  // a program does: I and W are apart
  std::int64_t logits_bytes_ = 0;
  BytesByKind held_by_kind_{};
  std::vector<Chunk> chunks_;
  std::array<std::int64_t, kNumRegions> region_bytes_{};
  std::array<ArenaSlot, kNumRegions> region_slots_{};
  std::array<std::byte*, kNumRegions> regions_{};
  std::vector<Boundary> activation_receives_, gradient_receives_;
  std::array<Boundary, 2> sends_, gradients_;  // outputs on their way; gradients in work or on their way
  std::size_t current_send_ = 0, current_gradient_ = 0;
  std::span<const MicroBatch> micro_batches_;
  const StepProgram* program_ = nullptr;
  const ParamStore* store_ = nullptr;
};

}  // namespace trident

// A rank's need of device memory, by part, and how sure each part is.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/named_enum.h"
#include "pipeline/schedule/step_program.h"
#include "planner/price/step_price.h"
#include "train/plan/step_record.h"
#include "train/run/dry_run.h"

namespace trident {

enum class Certainty : std::uint8_t {
  kExact,     // what a dry rank books is what a real one does, to the byte
  kMost,      // of workspaces the most that libraries take: it may be anything down to nothing
  kEstimate,  // outside of the arena, by a constant of the hardware's profile
};

enum class MemoryPartKind : std::uint8_t {
  kParameters,
  kGradients,
  kOptimizer,
  kBlockInputs,    // activations from here on; full recomputation restarts from these
  kAttention,
  kMlp,
  kNorms,          // and the residual between the phases of a block
  kLoss,           // and logits
  kSplitBackward,  // gradients that wait for weight gradients
  kRecomputed,      // the area that units share for what they make again
  kSampledText,    // keys and values of eval.samples
  kScratch,        // of layers
  kWorkspaces,     // of libraries
  kCommunication,  // buffers
  kData,
  kContext,        // outside the arena: driver and libraries
  kCommunicators,  // likewise: channels of groups
};
template <>
inline constexpr std::array<std::string_view, 17> kNamesOf<MemoryPartKind>{
    "parameters", "gradients", "optimizer", "activations: block inputs", "activations: attention", "activations: MLP",
    "activations: norms + residual", "activations: logits + loss", "activations: split backward", "activations: made again",
    "activations: sampled text", "scratch", "workspaces", "communication buffers", "data", "context", "communicators"};

struct MemoryPart {
  MemoryPartKind kind{};
  std::int64_t bytes = 0;
  Certainty certainty = Certainty::kExact;
};

struct PlanHardware;

struct RankMemory {
  int stage = 0, rank = 0;
  std::vector<MemoryPart> parts;  // one of each kind, in their order; they add up to what it needs
  std::int64_t held = 0;          // of them activations that micro-batches in flight hold
  std::int64_t total() const;
  std::int64_t of(MemoryPartKind kind) const;
  std::int64_t all_of(Certainty certainty) const;
};

// Outside of the arena lie the hardware's `context_bytes`, and its `communicator_bytes` of each group of more than one that the
// rank calls. On GPUs workspaces of libraries are the most that they may take.
RankMemory rank_memory(const DryRun& run, const StepRecord& record, int stage, const PlanHardware& hardware);

// Memory over the time of a step. From `seconds` to the next entry's, `bytes` are held.
struct HeldBytes {
  double seconds = 0;
  std::int64_t bytes = 0;
};

// A rank holds a block of a virtual stage from its first forward of a micro-batch to the end of its last backward of it. By rising
// time, beginning with 0 bytes at 0 s; what changes at one moment is one entry. Where backwards are split: what input gradients
// read until the last of these, the rest until the last weight gradient. The most that is ever held is what the arena has blocks
// for, if chunks reach their mosts together.
std::vector<HeldBytes> held_activations(const StepProgram& program, std::span<const ActivationBlocks> blocks,
                                        std::span<const TaskTimes> spans);

}  // namespace trident

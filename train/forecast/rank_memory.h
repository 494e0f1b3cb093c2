// What a rank needs of its device, by part, and how sure each part is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/step_record.h"
#include "train/run/dry_run.h"

namespace trident {

enum class Certainty : std::uint8_t {
  kExact,     // what a dry rank books is what a real one does, to the byte
  kMost,      // of workspaces the most that libraries take: it may be anything down to nothing
  kEstimate,  // outside of the arena, by a constant of the hardware's profile
};

struct MemoryPart {
  std::string name;
  std::int64_t bytes = 0;
  Certainty certainty = Certainty::kExact;
};

struct RankMemory {
  int stage = 0, rank = 0;
  std::vector<MemoryPart> parts;  // the same ones, in the same order, for all ranks; they add up to what it needs
  std::int64_t held = 0;          // of them activations that micro-batches in flight hold
  std::int64_t total() const;
  std::int64_t of(std::string_view part) const;     // 0 where there is none
  std::int64_t all_of(Certainty certainty) const;
};

// Bytes outside the arena.
struct OutsideBytes {
  double context = 0;       // driver and libraries
  double communicator = 0;  // of each group of more than one that the rank calls
};

// Parts: "parameters", "gradients", "optimizer"; "activations: block inputs" (which full recomputation restarts from), "...:
// attention", "...: MLP", "...: norms + residual", "...: logits + loss", "...: split backward" (gradients that wait for weight
// gradients), "...: made again" (the area that units share for what they make again), "...: sampled text" (eval.samples' keys and
// values); "scratch" of layers, "workspaces" of libraries, "communication buffers", "data", "context", "communicators".
RankMemory rank_memory(const DryRun& run, const StepRecord& record, int stage, Certainty workspaces, const OutsideBytes& outside);

}  // namespace trident

#include "train/forecast/rank_memory.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <set>
#include <utility>
#include <variant>

#include "core/int_math.h"

namespace trident {
namespace {

// Groups of more than one that the rank calls: each has channels of its own.
std::int64_t communicators_of(const StepRecord& record) {
  std::set<std::pair<Axis, std::string>> groups;
  for (const PassRecord& pass : record.passes) {
    for (const auto& call : pass.calls) {
      const auto* const collective = std::get_if<RecordedCollective>(&call);
      if (collective != nullptr && collective->size > 1) groups.insert({collective->axis, collective->group});
    }
  }
  return std::ssize(groups);
}

// By the names that a stage books the areas of its units under.
std::int64_t bytes_of_region(const ArenaPlan& arena, Region region) {
  std::int64_t bytes = 0;
  for (const ArenaPlan::Entry& entry : arena.entries())
    if (entry.name.starts_with(to_string(region))) bytes += round_up(entry.slot.bytes, kArenaAlignment);
  return bytes;
}

}  // namespace

std::int64_t RankMemory::total() const {
  return std::accumulate(parts.begin(), parts.end(), std::int64_t{0},
                         [](std::int64_t sum, const MemoryPart& part) { return sum + part.bytes; });
}

std::int64_t RankMemory::of(std::string_view part) const {
  const auto found = std::find_if(parts.begin(), parts.end(), [&](const MemoryPart& it) { return it.name == part; });
  return found == parts.end() ? 0 : found->bytes;
}

std::int64_t RankMemory::all_of(Certainty certainty) const {
  std::int64_t bytes = 0;
  for (const MemoryPart& part : parts) bytes += part.certainty == certainty ? part.bytes : 0;
  return bytes;
}

RankMemory rank_memory(const DryRun& run, const StepRecord& record, int stage, Certainty workspaces, const OutsideBytes& outside) {
  const auto booked = [&](MemoryUse use) { return run.arena.total_bytes(use); };
  const auto kind = [&](ActivationKind it) { return run.held_by_kind[static_cast<std::size_t>(it)]; };
  const std::int64_t held = std::reduce(run.held_by_kind.begin(), run.held_by_kind.end());
  const std::int64_t library = bytes_of_region(run.arena, Region::kWorkspace);
  const std::int64_t remade = bytes_of_region(run.arena, Region::kRecomputed);  // and kRemadeForW, whose name begins alike
  // Entries end at a multiple of the alignment, uses are counted without.
  std::int64_t rest = run.arena.total_bytes();
  for (const MemoryUse use : kMemoryUses) rest -= booked(use);
  const double channels = static_cast<double>(communicators_of(record)) * outside.communicator;
  return {stage,
          run.rank,
          {{"parameters", booked(MemoryUse::kParameters)},
           {"gradients", booked(MemoryUse::kGradients)},
           {"optimizer", booked(MemoryUse::kOptimizer)},
           {"activations: block inputs", kind(ActivationKind::kInputs)},
           {"activations: attention", kind(ActivationKind::kAttention)},
           {"activations: MLP", kind(ActivationKind::kMlp)},
           {"activations: norms + residual", kind(ActivationKind::kNorms)},
           {"activations: logits + loss", kind(ActivationKind::kLoss)},
           {"activations: split backward", kind(ActivationKind::kGradients)},
           {"activations: made again", remade},
           {"activations: sampled text", booked(MemoryUse::kActivations) - held - remade},
           {"scratch", booked(MemoryUse::kWorkspace) - library},
           {"workspaces", library, workspaces},
           {"communication buffers", booked(MemoryUse::kCommunication)},
           {"data", booked(MemoryUse::kData) + rest},
           {"context", static_cast<std::int64_t>(outside.context), Certainty::kEstimate},
           {"communicators", static_cast<std::int64_t>(channels), Certainty::kEstimate}},
          held};
}

}  // namespace trident

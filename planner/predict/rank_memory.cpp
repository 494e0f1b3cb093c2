#include "planner/predict/rank_memory.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <variant>

#include "core/at.h"
#include "core/check.h"
#include "core/int_math.h"
#include "planner/predict/cluster_forecast.h"

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

std::int64_t RankMemory::of(MemoryPartKind kind) const {
  const auto found = std::ranges::find(parts, kind, &MemoryPart::kind);
  return found == parts.end() ? 0 : found->bytes;
}

std::int64_t RankMemory::all_of(Certainty certainty) const {
  std::int64_t bytes = 0;
  for (const MemoryPart& part : parts) bytes += part.certainty == certainty ? part.bytes : 0;
  return bytes;
}

RankMemory rank_memory(const DryRun& run, const StepRecord& record, int stage, const PlanHardware& hardware) {
  const auto booked = [&](MemoryUse use) { return run.arena.total_bytes(use); };
  const auto kind = [&](ActivationKind it) { return at(run.held_by_kind, it); };
  const std::int64_t held = std::reduce(run.held_by_kind.begin(), run.held_by_kind.end());
  const std::int64_t library = bytes_of_region(run.arena, Region::kWorkspace);
  const std::int64_t recomputed = bytes_of_region(run.arena, Region::kRecomputed);  // and kRecomputedForW, whose name begins alike
  const double channels = static_cast<double>(communicators_of(record)) * hardware.communicator_bytes;
  return {stage,
          run.rank,
          {{MemoryPartKind::kParameters, booked(MemoryUse::kParameters)},
           {MemoryPartKind::kGradients, booked(MemoryUse::kGradients)},
           {MemoryPartKind::kOptimizer, booked(MemoryUse::kOptimizer)},
           {MemoryPartKind::kBlockInputs, kind(ActivationKind::kInputs)},
           {MemoryPartKind::kAttention, kind(ActivationKind::kAttention)},
           {MemoryPartKind::kMlp, kind(ActivationKind::kMlp)},
           {MemoryPartKind::kNorms, kind(ActivationKind::kNorms)},
           {MemoryPartKind::kLoss, kind(ActivationKind::kLoss)},
           {MemoryPartKind::kSplitBackward, kind(ActivationKind::kGradients)},
           {MemoryPartKind::kRecomputed, recomputed},
           {MemoryPartKind::kSampledText, booked(MemoryUse::kActivations) - held - recomputed},
           {MemoryPartKind::kScratch, booked(MemoryUse::kWorkspace) - library},
           {MemoryPartKind::kWorkspaces, library, hardware.on_gpus() ? Certainty::kMost : Certainty::kExact},
           {MemoryPartKind::kCommunication, booked(MemoryUse::kCommunication)},
           {MemoryPartKind::kData, booked(MemoryUse::kData)},
           {MemoryPartKind::kContext, static_cast<std::int64_t>(hardware.context_bytes), Certainty::kEstimate},
           {MemoryPartKind::kCommunicators, static_cast<std::int64_t>(channels), Certainty::kEstimate}},
          held};
}

namespace {

// When a micro-batch's activations of a virtual stage are there.
struct Lifetime {
  bool has_forward = false;
  double begin = 0;
  double input_begin = -1, input_end = 0;  // of its input gradients
  double weight_end = 0;
};

}  // namespace

std::vector<HeldBytes> held_activations(const StepProgram& program, std::span<const ActivationBlocks> blocks,
                                        std::span<const TaskTimes> spans) {
  TRIDENT_CHECK(program.instructions.size() == spans.size(), "{} instructions, {} spans", program.instructions.size(),
                spans.size());
  std::map<std::pair<int, int>, Lifetime> lifetimes;  // by virtual stage and micro-batch
  for (std::size_t at = 0; at < spans.size(); ++at) {
    const Instruction& i = program.instructions[at];
    if (!i.is_compute()) continue;
    Lifetime& life = lifetimes[{i.virtual_stage, i.micro_batch}];
    if (i.is_forward() && !life.has_forward) life.has_forward = true, life.begin = spans[at].start;
    if (i.computes_input_gradient()) {
      if (life.input_begin < 0) life.input_begin = spans[at].start;
      life.input_end = std::max(life.input_end, spans[at].end);
    }
    if (i.computes_weight_gradient()) life.weight_end = std::max(life.weight_end, spans[at].end);
  }
  std::map<double, std::int64_t> changes{{0, 0}};
  const auto hold = [&changes](double from, double to, std::int64_t bytes) { changes[from] += bytes, changes[to] -= bytes; };
  for (const auto& [key, life] : lifetimes) {
    const int virtual_stage = key.first;
    if (life.input_begin < 0) continue;  // a stage without a backward keeps nothing
    const auto block =
        std::find_if(blocks.begin(), blocks.end(), [&](const ActivationBlocks& it) { return it.virtual_stage == virtual_stage; });
    TRIDENT_CHECK(block != blocks.end(), "no block of virtual stage {}", virtual_stage);
    hold(life.begin, life.input_end, block->saved);
    hold(life.begin, life.weight_end, block->for_weights);
    if (block->kept > 0) hold(life.input_begin, life.weight_end, block->kept);
  }
  std::vector<HeldBytes> held;
  std::int64_t now = 0;
  for (const auto& [seconds, change] : changes) {
    now += change;
    if (held.empty() || change != 0) held.push_back({seconds, now});
  }
  return held;
}

}  // namespace trident

#include "planner/predict/held_activations.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "core/check.h"

namespace trident {
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

std::int64_t most_held(std::span<const HeldBytes> held) {
  std::int64_t most = 0;
  for (const HeldBytes& it : held) most = std::max(most, it.bytes);
  return most;
}

}  // namespace trident

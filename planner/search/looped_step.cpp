#include "planner/search/looped_step.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/price/program_loops.h"

namespace trident {

LoopedStep looped_step(LayoutCosts& costs, const SearchLayout& layout) {
  const int all = costs.micro_batches(layout);
  const std::int64_t sync_every = layout.policy().grad_sync_every;
  const int few = short_micro_batches(layout.schedule, layout.pipeline, sync_every, all);
  LoopedStep looped{costs.looked_at_step(layout, few), {}, all};
  const int turn = loop_turn(layout.schedule, layout.pipeline, sync_every);
  for (std::size_t rank = 0; rank < looped.step.programs.size(); ++rank) {
    if (few == all) {
      looped.loops.emplace_back();
      continue;
    }
    looped.loops.push_back(find_loops(looped.step.programs[rank], looped.step.records[rank].pass_of, turn, all - few));
    if (looped.loops.back().empty())
      return {costs.looked_at_step(layout, all), std::vector<ProgramLoops>(looped.step.programs.size()), all};
  }
  return looped;
}

}  // namespace trident

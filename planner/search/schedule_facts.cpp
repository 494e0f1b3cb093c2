#include "planner/search/schedule_facts.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "pipeline/schedule/step_program.h"

namespace trident {
namespace {

std::vector<Succession> successions_of(const Schedule& schedule, const std::vector<Action>& actions) {
  std::set<Succession> all;
  for (std::size_t i = 0; i + 1 < actions.size(); ++i) {
    const Action &a = actions[i], &b = actions[i + 1];
    all.insert({a.kind, b.kind, schedule.chunk_of(a.virtual_stage), schedule.chunk_of(b.virtual_stage)});
  }
  return {all.begin(), all.end()};
}

ScheduleFacts make_facts(const ScheduleKey& key, bool early) {
  StepProgramSpec spec;
  const int m = ScheduleBook::laid_out(key.pipeline, key.micro_batches);
  spec.schedule = make_schedule(key.kind, key.pipeline, key.chunks, m);
  for (int stage = 0; stage < spec.schedule.num_virtual_stages(); ++stage) spec.units_of_stage.push_back({stage});
  spec.overlap = early;
  const std::vector<StepProgram> training = build_step_programs(spec);
  ScheduleFacts facts;
  for (std::size_t rank = 0; rank < training.size(); ++rank) {
    RankFacts& of = facts.emplace_back();
    of.slots = training[rank].num_activation_slots;
    if (key.kind == ScheduleKind::kGpipe) of.slots.assign(1, key.micro_batches);
    of.activation_receives = training[rank].num_activation_receive_slots;
    of.gradient_receives = training[rank].num_gradient_receive_slots;
    of.successions = successions_of(spec.schedule, spec.schedule.ranks[rank]);
  }
  spec.schedule = make_forward_only(key.pipeline, key.chunks, m);
  const std::vector<StepProgram> evaluation = build_step_programs(spec);
  for (std::size_t rank = 0; rank < evaluation.size(); ++rank) {
    int& receives = facts[rank].activation_receives;
    receives = std::max(receives, evaluation[rank].num_activation_receive_slots);
  }
  return facts;
}

}  // namespace

int ScheduleBook::laid_out(int pipeline, int micro_batches) {
  const int most = (pipeline < kFewRanks ? kRoundsOfFew : kRounds) * pipeline;
  return micro_batches <= most ? micro_batches : most;
}

const ScheduleFacts& ScheduleBook::facts(const ScheduleKey& key) {
  ScheduleKey asked = key;
  // Only gpipe's memory grows with every micro-batch.
  if (key.kind != ScheduleKind::kGpipe) asked.micro_batches = laid_out(key.pipeline, key.micro_batches);
  const std::scoped_lock lock(mutex_);
  const auto found = facts_.find(asked);
  if (found != facts_.end()) return found->second;
  return facts_.emplace(asked, make_facts(asked, early_)).first->second;
}

}  // namespace trident

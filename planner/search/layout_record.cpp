#include "planner/search/layout_record.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "core/at.h"
#include "core/check.h"
#include "pipeline/schedule/step_waits.h"

namespace trident {
namespace {

using Kind = InstructionKind;

void append(PassRecord& pass, const PassRecord& more) { pass.calls.insert(pass.calls.end(), more.calls.begin(), more.calls.end()); }

// Follows a rank's program as its ParamStore does: which reductions a backward has to add before it overwrites their memory.
class Recorder {
 public:
  Recorder(const StepProgram& program, const StepProgramSpec& spec, const UnitPasses& passes, const StorePasses& stores,
           int pipeline)
      : program_(program),
        spec_(spec),
        passes_(passes),
        stores_(stores),
        pipeline_(pipeline),
        has_accumulated_(program.unit_bytes.size(), false) {
    record_.passes.push_back(passes.outside);
    if (std::ranges::find(program.units, spec.head_unit()) != program.units.end()) append(record_.passes.front(), stores.count);
  }

  StepRecord run() {
    record_.pass_of.reserve(program_.instructions.size());
    for (const Instruction& i : program_.instructions) record_.pass_of.push_back(pass_of(i));
    return std::move(record_);
  }

 private:
  // Passes of this rank differ by these: instruction, unit kind, whether it overwrites, copies, and the reductions that it adds.
  using Key = std::tuple<Kind, UnitKind, bool, bool, std::vector<std::pair<UnitKind, bool>>>;
  struct Pending {
    int unit = 0;
    GradientPlace place;
  };

  UnitKind kind_of(int unit) const {
    return unit == 0 ? UnitKind::kEmbedding : unit == spec_.head_unit() ? UnitKind::kHead : UnitKind::kBlock;
  }
  const std::vector<int>& units_of(const Instruction& i) const {
    return at(spec_.units_of_stage, i.virtual_stage);
  }

  std::int32_t pass_of(const Instruction& i) {
    Key key{i.kind, i.unit >= 0 ? kind_of(i.unit) : UnitKind::kBlock, false, false, {}};
    auto& [kind, unit, overwrites, copies, finished] = key;
    if (i.kind == Kind::kForward) copies = i.unit == units_of(i).front() && i.virtual_stage > 0;
    if (i.kind == Kind::kBackward) {
      overwrites = i.overwrites();
      copies = i.unit == units_of(i).back() && i.unit != spec_.head_unit();
      if (overwrites) finish(i, finished);
    }
    if (i.kind == Kind::kReduceGradients && spec_.zero.grad_sync_every > 0)
      pending_.push_back({i.unit, gradient_place(program_, i)});
    if (i.kind == Kind::kGradNorm) finish_all(finished);
    if (i.kind == Kind::kTieExchange) has_exchanged_ = true;
    const auto [found, is_new] = numbers_.try_emplace(key, static_cast<std::int32_t>(record_.passes.size()));
    if (is_new) record_.passes.push_back(make(key, i));
    return found->second;
  }

  void finish(const Instruction& i, std::vector<std::pair<UnitKind, bool>>& finished) {
    const GradientPlace mine = gradient_place(program_, i);
    const auto met = [&](const Pending& p) {
      if (p.unit != i.unit && !p.place.meets(mine)) return false;
      add(p, finished);
      return true;
    };
    std::erase_if(pending_, met);
    std::sort(finished.begin(), finished.end());
  }
  void finish_all(std::vector<std::pair<UnitKind, bool>>& finished) {
    for (const Pending& p : pending_) add(p, finished);
    pending_.clear();
  }
  void add(const Pending& p, std::vector<std::pair<UnitKind, bool>>& finished) {
    finished.emplace_back(kind_of(p.unit), at(has_accumulated_, p.unit));
    at(has_accumulated_, p.unit) = true;
  }

  PassRecord make(const Key& key, const Instruction& i) const {
    const auto& [kind, unit, overwrites, copies, finished] = key;
    PassRecord pass;
    for (const auto& [of, again] : finished) {
      PassRecord added = again ? stores_.units[of].finish : stores_.units[of].first_finish;
      const int tied = stores_.units[of].tied_call;
      // That one came before the exchange.
      if (kind == Kind::kGradNorm && has_exchanged_ && tied >= 0) added.calls.erase(added.calls.begin() + tied);
      append(pass, added);
    }
    if (kind == Kind::kTieExchange) append_tied(pass);
    if (overwrites) append(pass, stores_.units[unit].gaps);
    if (copies) append(pass, passes_.copy);
    switch (kind) {
      case Kind::kForward: append(pass, passes_.forward[unit]); break;
      case Kind::kBackward: append(pass, overwrites ? passes_.first_backward[unit] : passes_.backward[unit]); break;
      case Kind::kSendActivation:
      case Kind::kSendGradient: append(pass, passes_.send); break;
      case Kind::kGather: append(pass, stores_.units[unit].gather); break;
      case Kind::kReduceGradients: append(pass, stores_.units[unit].reduce); break;
      case Kind::kOptimizerStep: append(pass, stores_.units[unit].update); break;
      case Kind::kTieExchange: append(pass, program_.rank == 0 ? stores_.tie_embedding : stores_.tie_head); break;
      case Kind::kGradNorm: append_norm(pass); break;
      default: break;
    }
    TRIDENT_CHECK(kind != Kind::kBackwardInput && kind != Kind::kBackwardWeight, "a split backward of unit {}", i.unit);
    return over_pipeline(std::move(pass), pipeline_);
  }

  // The exchange adds what is pending of the tied weight; the rest of its units waits for the norm.
  void append_tied(PassRecord& pass) const {
    for (const Pending& p : pending_) {
      const UnitStore& unit = stores_.units[kind_of(p.unit)];
      if (unit.tied_call < 0) continue;
      const PassRecord& added = at(has_accumulated_, p.unit) ? unit.finish : unit.first_finish;
      pass.calls.push_back(at(added.calls, unit.tied_call));
    }
  }

  void append_norm(PassRecord& pass) const {
    for (const int u : program_.units) {
      append(pass, stores_.units[kind_of(u)].partial);
      append(pass, stores_.units[kind_of(u)].norm);
    }
    append(pass, stores_.norm);
  }

  const StepProgram& program_;
  const StepProgramSpec& spec_;
  const UnitPasses& passes_;
  const StorePasses& stores_;
  int pipeline_;
  bool has_exchanged_ = false;
  std::vector<bool> has_accumulated_;
  std::vector<Pending> pending_;
  std::map<Key, std::int32_t> numbers_;
  StepRecord record_;
};

}  // namespace

PassRecord over_pipeline(PassRecord pass, int pipeline) {
  for (auto& call : pass.calls) {
    auto* const collective = std::get_if<RecordedCollective>(&call);
    if (collective == nullptr || collective->axis != Axis::kPipeline || collective->size == pipeline) continue;
    // A message is sent whole; a sum over n ranks sends 2 (n-1)/n of it.
    collective->sent_bytes_times_n = collective->operation == CommOperation::kAllReduce
                                         ? 2 * (pipeline - 1) * collective->operand_bytes
                                         : collective->sent_bytes_times_n / collective->size * pipeline;
    collective->size = pipeline;
  }
  return pass;
}

StepRecord make_record(const StepProgram& program, const StepProgramSpec& spec, const UnitPasses& passes, const StorePasses& stores,
                       int pipeline) {
  return Recorder(program, spec, passes, stores, pipeline).run();
}

}  // namespace trident

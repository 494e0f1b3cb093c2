#include "tests/contracts/graph_price.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "pipeline/schedule/step_waits.h"
#include "tests/contracts/instruction_graph.h"

namespace trident::contracts {
namespace {

using Kind = InstructionKind;

// The step as a graph: a node for every instruction, and one for each barrier.
class StepGraph {
 public:
  StepGraph(const RecordedStep& step, const std::vector<std::vector<TimeParts>>& passes)
      : step_(step), waits_(find_waits(step.programs)) {
    const auto ranks = static_cast<int>(step.programs.size());
    for (int rank = 0; rank < ranks; ++rank) {
      compute_.push_back(graph_.add_stream(rank, StreamKind::kCompute));
      beside_.push_back(graph_.add_stream(rank, StreamKind::kCommunication));
    }
    // Traffic over the wires neither slows the ranks down nor is slowed; each direction of a rank sends one after the other.
    for (int rank = 0; rank < 2 * ranks; ++rank) wires_.push_back(graph_.add_stream(ranks + rank, StreamKind::kCommunication));
    barriers_ = graph_.add_stream(3 * ranks, StreamKind::kCompute);
    for (int rank = 0; rank < ranks; ++rank) add_instructions(rank, passes[static_cast<std::size_t>(rank)]);
    for (int rank = 0; rank < ranks; ++rank) add_waits(rank);
    add_barriers();
  }

  const InstructionGraph& graph() const { return graph_; }
  const StepWaits& waits() const { return waits_; }
  // In line with computes, not beside them or over a wire.
  bool computes(int rank, std::size_t at) const {
    const Instruction& i = step_.programs[static_cast<std::size_t>(rank)].instructions[at];
    return !i.is_send() && !beside(waits_.ranks[static_cast<std::size_t>(rank)][at]);
  }

 private:
  bool beside(const StepWaits::Of& of) const { return of.overlaps && step_.overlap == Overlap::kOn; }

  int stream_of(int rank, const Instruction& i, const StepWaits::Of& of) const {
    const auto r = static_cast<std::size_t>(rank);
    if (i.is_send()) return wires_[2 * r + (i.kind == Kind::kSendActivation ? 0 : 1)];
    return beside(of) ? beside_[r] : compute_[r];
  }

  void add_instructions(int rank, const std::vector<TimeParts>& passes) {
    const auto r = static_cast<std::size_t>(rank);
    const StepProgram& program = step_.programs[r];
    int before = StepWaits::kNone;  // what the rank has issued last in line
    for (std::size_t at = 0; at < program.instructions.size(); ++at) {
      const Instruction& i = program.instructions[at];
      const TimeParts& price = passes[static_cast<std::size_t>(step_.records[r].pass_of[at])];
      // A receive is free: its message was priced where it was sent.
      const int node = graph_.add_instruction(stream_of(rank, i, waits_.ranks[r][at]), i.is_receive() ? 0 : price.total());
      if (computes(rank, at))
        before = node;
      else if (before != StepWaits::kNone)
        graph_.add_dependency(before, node);
    }
  }

  void add_waits(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    std::vector<int> beside_so_far;  // the last gather or reduction is behind all before it
    for (std::size_t at = 0; at < waits_.ranks[r].size(); ++at) {
      const StepWaits::Of& of = waits_.ranks[r][at];
      const int node = waits_.number(rank, at);
      for (const int other : {of.send, of.gather, of.reduction}) {
        if (other != StepWaits::kNone) graph_.add_dependency(other, node);
      }
      if (beside(of)) beside_so_far = {node};
      if (of.barrier == StepWaits::kNone) continue;
      std::vector<int> ready = beside_so_far;
      if (const int line = last_in_line(rank, at); line != StepWaits::kNone) ready.push_back(line);
      entered_[of.barrier].push_back({node, std::move(ready)});
    }
  }

  int last_in_line(int rank, std::size_t at) const {
    while (at-- > 0) {
      if (computes(rank, at)) return waits_.number(rank, at);
    }
    return StepWaits::kNone;
  }

  void add_barriers() {
    for (const auto& entered : entered_) {
      if (entered.empty()) continue;
      const int gate = graph_.add_instruction(barriers_, 0);
      for (const Entry& entry : entered) {
        for (const int before : entry.ready) graph_.add_dependency(before, gate);
        graph_.add_dependency(gate, entry.node);
      }
    }
  }

  struct Entry {
    int node = 0;
    std::vector<int> ready;  // of its rank: what has to be finished
  };
  const RecordedStep& step_;
  StepWaits waits_;
  InstructionGraph graph_;
  std::vector<int> compute_, beside_, wires_;  // streams
  int barriers_ = 0;
  std::array<std::vector<Entry>, 2> entered_;  // by barrier
};

// Divides a rank's step into parts: what its instructions in line take, and why it waited between them.
class Account {
 public:
  Account(const RecordedStep& step, const StepGraph& graph, const SimulatedTimes& times, const std::vector<TimeParts>& passes,
          int rank)
      : step_(step), graph_(graph), times_(times), passes_(passes), rank_(static_cast<std::size_t>(rank)) {}

  // `makespan` of all ranks.
  TimeParts of_step(double makespan) {
    const StepProgram& program = step_.programs[rank_];
    double now = 0;
    for (std::size_t at = 0; at < program.instructions.size(); ++at) {
      const auto node = static_cast<std::size_t>(graph_.waits().number(static_cast<int>(rank_), at));
      const bool in_line = graph_.computes(static_cast<int>(rank_), at);
      if (graph_.waits().ranks[rank_][at].overlaps && !in_line) beside_end_ = std::max(beside_end_, times_.end[node]);
      if (!in_line) continue;
      wait(at, now, times_.start[node]);
      work(at, times_.end[node] - times_.start[node]);
      now = times_.end[node];
    }
    const double own_end = std::max(now, beside_end_);
    parts_[TimePart::kData] += own_end - now;
    parts_[TimePart::kBubble] += makespan - own_end;
    return parts_;
  }

 private:
  // From `from` to `to` nothing ran in line, because of what instruction `at` waits for.
  void wait(std::size_t at, double from, double to) {
    if (to <= from) return;
    const StepWaits::Of& of = graph_.waits().ranks[rank_][at];
    double data_until = from;  // own gathers and reductions still run
    for (const int other : {of.gather, of.reduction}) {
      if (other != StepWaits::kNone) data_until = std::max(data_until, times_.end[static_cast<std::size_t>(other)]);
    }
    if (of.barrier != StepWaits::kNone) data_until = std::max(data_until, beside_end_);
    data_until = std::min(data_until, to);
    parts_[TimePart::kData] += data_until - from;
    const double sent = of.send == StepWaits::kNone ? to : times_.start[static_cast<std::size_t>(of.send)];
    const double under_way_from = std::clamp(sent, data_until, to);
    parts_[TimePart::kBubble] += under_way_from - data_until;
    parts_[TimePart::kPipeline] += to - under_way_from;
  }

  void work(std::size_t at, double seconds) {
    const Instruction& i = step_.programs[rank_].instructions[at];
    if (i.is_receive()) return;
    const TimeParts& alone = passes_[static_cast<std::size_t>(step_.records[rank_].pass_of[at])];
    if (i.is_compute()) {
      for (std::size_t part = 0; part < kNumTimeParts; ++part) parts_.seconds[part] += alone.seconds[part];
      parts_[TimePart::kData] += std::max(0.0, seconds - alone.total());  // slower beside gathers and reductions
    } else if (i.kind == Kind::kGather || i.kind == Kind::kReduceGradients || i.kind == Kind::kFree) {
      parts_[TimePart::kData] += seconds;
    } else {
      const bool message = i.kind == Kind::kTieExchange && i.peer != step_.programs[rank_].rank;
      parts_[message ? TimePart::kPipeline : TimePart::kOptimizer] += seconds;
    }
  }

  const RecordedStep& step_;
  const StepGraph& graph_;
  const SimulatedTimes& times_;
  const std::vector<TimeParts>& passes_;
  std::size_t rank_;
  double beside_end_ = 0;  // of gathers and reductions that the rank has issued so far
  TimeParts parts_;
};

}  // namespace

StepPrice price_by_graph(const RecordedStep& step, const WorkPrices& prices) {
  std::vector<std::vector<TimeParts>> passes;
  double outside = 0;
  for (const StepRecord& record : step.records) {
    auto& list = passes.emplace_back();
    for (const PassRecord& pass : record.passes) list.push_back(price_pass(pass, step.grid, prices));
    outside = std::max(outside, list.front().total());
  }
  outside += prices.step_seconds();
  const StepGraph graph(step, passes);
  const SimulatedTimes times = simulate(graph.graph(), prices.slowdown());
  const double makespan = *std::max_element(times.end.begin(), times.end.end());
  StepPrice price;
  price.seconds = makespan + outside;
  for (std::size_t rank = 0; rank < step.programs.size(); ++rank) {
    price.ranks.push_back(Account(step, graph, times, passes[rank], static_cast<int>(rank)).of_step(makespan));
    price.ranks.back()[TimePart::kOther] += outside;
    auto& spans = price.spans.emplace_back();
    for (std::size_t at = 0; at < step.programs[rank].instructions.size(); ++at) {
      const auto node = static_cast<std::size_t>(graph.waits().number(static_cast<int>(rank), at));
      spans.push_back({times.start[node], times.end[node]});
    }
  }
  return price;
}

}  // namespace trident::contracts

#include "planner/price/step_simulation.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "core/at.h"
#include "core/check.h"
#include "planner/price/overlapped_streams.h"

namespace trident {
namespace {

using Stream = StreamOp::Stream;
using Cause = StreamOp::Cause;

constexpr double kNotSent = -1;
constexpr std::size_t kNoSlot = static_cast<std::size_t>(-1);

struct Message {
  double sent = 0, arrives = kNotSent;
};

// A barrier: all that enter it start together, when each has finished everything before it.
struct Gate {
  int ranks = 0, entered = 0;
  double opens = 0;
};

// One rank on its way through its ops.
class RankWalk {
 public:
  RankWalk(const RankOps& ops, const OverlapSlowdown& slowdown, std::int64_t keep)
      : ops_(ops), streams_(slowdown, keep), loop_(ops.loops.begin()), turns_left_(loop_ == ops.loops.end() ? 0 : loop_->times) {}

  bool done() const { return at_ == ops_.ops.size(); }
  const StreamOp& op() const { return ops_.ops[at_]; }
  double now() const { return streams_.now(); }
  int micro_batch() const { return op().micro_batch + at(shift_, op().channel & 1); }
  OverlappedStreams& streams() { return streams_; }
  RankTimeline& timeline() { return timeline_; }
  double& wire(int channel) { return at(wires_, channel & 1); }

  void next() {
    ++at_;
    if (loop_ == ops_.loops.end() || at_ != loop_->end) return;
    if (turns_left_ > 0) {
      --turns_left_;
      for (std::size_t kind = 0; kind < shift_.size(); ++kind) shift_[kind] += loop_->micro_batches[kind];
      at_ = loop_->begin;
    } else if (++loop_ != ops_.loops.end()) {
      turns_left_ = loop_->times;
    }
  }

  // Runs an op of the line once all it waits for is there. `cores` says when each is free, and the first to be so is taken; where
  // it is empty, the op needs no core.
  TaskTimes run_line(const StreamOp& op, const Message* message, const Gate* gate, std::span<double> cores, double load) {
    const double from = streams_.now();
    if (op.back > 0) streams_.wait_for(streams_.issued() - op.back);
    if (gate != nullptr) streams_.wait_until(std::min(gate->opens, streams_.finish_overlapped()));
    const double data_until = streams_.now();
    if (message != nullptr) streams_.wait_until(message->arrives);
    if (gate != nullptr) streams_.wait_until(gate->opens);
    const double ready = streams_.now();
    timeline_.data += data_until - from;
    const double under_way_from = message == nullptr ? ready : std::clamp(message->sent, data_until, ready);
    timeline_.bubble += under_way_from - data_until;
    timeline_.message += ready - under_way_from;
    const auto core = std::ranges::min_element(cores);
    if (core != cores.end()) streams_.wait_until(*core);
    const double start = streams_.now();
    timeline_.bubble += start - ready;
    const auto at_once = 1 + std::ranges::count_if(cores, [&](double busy_until) { return busy_until > start; });
    streams_.compute(op.seconds * std::max(1.0, static_cast<double>(at_once) * load));
    const double end = streams_.now();
    if (core != cores.end()) *core = end;
    count(op, start, end);
    return {start, end};
  }

  // A rank that has ended idles until the others have.
  void finish() {
    const double now = streams_.now();
    timeline_.end = streams_.finish_overlapped();
    timeline_.data += timeline_.end - now;
  }

 private:
  void count(const StreamOp& op, double start, double end) {
    switch (op.cause) {
      case Cause::kCompute:
        if (!has_computed_) timeline_.first = start;
        has_computed_ = true;
        timeline_.busy += end - start;
        timeline_.last = end;
        timeline_.data += std::max(0.0, end - start - op.seconds);
        break;
      case Cause::kData: timeline_.data += end - start; break;
      case Cause::kMessage: timeline_.message += end - start; break;
      case Cause::kUpdate: timeline_.update += end - start; break;
    }
  }

  const RankOps& ops_;
  OverlappedStreams streams_;
  RankTimeline timeline_;
  std::size_t at_ = 0;
  std::vector<RankOps::Loop>::const_iterator loop_;
  int turns_left_ = 0;
  std::array<int, 2> shift_{};     // micro-batches that turns have gone on, by kind of message
  std::array<double, 2> wires_{};  // of gradients, of activations: busy until
  bool has_computed_ = false;
};

class Simulation {
 public:
  Simulation(const std::vector<RankOps>& ranks, const SimulationSize& size, const OverlapSlowdown& slowdown, Spans spans)
      : ranks_(ranks),
        micro_batches_(static_cast<std::size_t>(size.micro_batches)),
        spans_(spans),
        load_(size.cores.load),
        core_free_(static_cast<std::size_t>(size.cores.at_once)) {
    TRIDENT_CHECK(slowdown.compute >= 1 && slowdown.communication >= 1, "{} {}", slowdown.compute, slowdown.communication);
    messages_.resize(2 * static_cast<std::size_t>(size.virtual_stages) * micro_batches_);
    waits_for_.assign(ranks.size(), kNoSlot);
    for (const RankOps& rank : ranks) {
      TRIDENT_CHECK(spans == Spans::kOff || rank.loops.empty(), "spans of {} loops", rank.loops.size());
      runs_.emplace_back(rank, slowdown, spans == Spans::kOn ? std::int64_t(rank.ops.size()) : rank.most_back);
      if (spans == Spans::kOn) times_.spans.emplace_back(rank.ops.size());
      for (const StreamOp& op : rank.ops)
        if (op.barrier != StreamOp::Barrier::kNone) ++gate(op).ranks;
    }
  }

  SimulatedStep run() {
    for (std::size_t rank = ranks_.size(); rank-- > 0;) ready_.push_back(rank);
    while (!ready_.empty()) {
      if (shares_cores()) {
        const auto first = std::ranges::min_element(ready_, {}, [this](std::size_t rank) { return goes_on_at(rank); });
        std::swap(*first, ready_.back());
      }
      const std::size_t rank = ready_.back();
      ready_.pop_back();
      run(rank);
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) finish(rank);
    for (RankWalk& run : runs_) times_.ranks.push_back(run.timeline());
    return std::move(times_);
  }

 private:
  Gate& gate(const StreamOp& op) { return gates_[op.barrier == StreamOp::Barrier::kTie ? 0 : 1]; }

  std::size_t slot(const StreamOp& op, int micro_batch) const {
    return static_cast<std::size_t>(op.channel) * micro_batches_ + static_cast<std::size_t>(micro_batch);
  }

  bool shares_cores() const { return !core_free_.empty(); }

  // Says when a rank can go on that has what it waits for on its way.
  double goes_on_at(std::size_t rank) {
    const RankWalk& run = runs_[rank];
    if (run.done()) return run.now();
    const StreamOp& op = run.op();
    const double arrives = op.stream == Stream::kLine && op.receives ? messages_[slot(op, run.micro_batch())].arrives : 0;
    const double opens = op.barrier == StreamOp::Barrier::kNone ? 0 : gate(op).opens;
    return std::max({run.now(), arrives, opens});
  }

  // It goes as far as it gets; a rank that shares cores stops when it has had one.
  void run(std::size_t rank) {
    RankWalk& run = runs_[rank];
    for (; !run.done(); run.next()) {
      const StreamOp& op = run.op();
      TaskTimes span;
      switch (op.stream) {
        case Stream::kOverlapped: run.streams().issue_overlapped(op.seconds); continue;
        case Stream::kWire: span = send(rank, run, op); break;
        case Stream::kLine: {
          const Message* message = nullptr;
          if (op.receives) {
            const std::size_t wanted = slot(op, run.micro_batch());
            message = &messages_[wanted];
            if (message->arrives == kNotSent) {
              waits_for_[rank] = wanted;
              return;
            }
          }
          if (op.barrier != StreamOp::Barrier::kNone && !passes(rank, run, gate(op))) return;
          const bool takes_core = shares_cores() && op.seconds > 0;
          span = run.run_line(op, message, op.barrier == StreamOp::Barrier::kNone ? nullptr : &gate(op),
                              takes_core ? std::span(core_free_) : std::span<double>(), load_);
          times_.makespan = std::max(times_.makespan, span.end);
        }
      }
      if (spans_ == Spans::kOn) times_.spans[rank][op.instruction] = span;
      if (shares_cores() && op.stream == Stream::kLine && op.seconds > 0) {
        run.next();
        ready_.push_back(rank);
        return;
      }
    }
  }

  TaskTimes send(std::size_t rank, RankWalk& run, const StreamOp& op) {
    double& wire = run.wire(op.channel);
    const double start = std::max(wire, run.streams().now());
    wire = start + op.seconds;
    times_.makespan = std::max(times_.makespan, wire);
    const std::size_t at = slot(op, run.micro_batch());
    messages_[at] = {start, wire};
    const std::size_t to = static_cast<std::size_t>(op.channel / 2) % ranks_.size();
    if (to != rank && waits_for_[to] == at) {
      waits_for_[to] = kNoSlot;
      ready_.push_back(to);
    }
    return {start, wire};
  }

  // Whether all that enter the barrier have. The last one lets the others go on.
  bool passes(std::size_t rank, RankWalk& run, Gate& gate) {
    if (gate.entered == gate.ranks) return true;
    gate.opens = std::max(gate.opens, run.streams().finish_overlapped());
    if (++gate.entered < gate.ranks) {
      waits_at_[&gate - gates_.data()].push_back(rank);
      return false;
    }
    auto& waiting = waits_at_[&gate - gates_.data()];
    ready_.insert(ready_.end(), waiting.begin(), waiting.end());
    waiting.clear();
    return true;
  }

  void finish(std::size_t rank) {
    RankWalk& run = runs_[rank];
    TRIDENT_CHECK(run.done(), "pipeline rank {} can never go on at instruction {}: ranks wait for each other", rank,
                  run.op().instruction);
    run.finish();
    times_.makespan = std::max(times_.makespan, run.timeline().end);
    if (spans_ == Spans::kOff) return;
    std::int64_t item = 0;
    for (const StreamOp& op : ranks_[rank].ops) {
      if (op.stream != Stream::kOverlapped) continue;
      times_.spans[rank][op.instruction] = {run.streams().start_of(item), run.streams().end_of(item)};
      ++item;
    }
  }

  const std::vector<RankOps>& ranks_;
  std::size_t micro_batches_;
  Spans spans_;
  double load_;
  std::vector<double> core_free_;  // when each is; none: every rank has its own
  std::vector<RankWalk> runs_;
  std::vector<Message> messages_;       // by channel and micro-batch
  std::vector<std::size_t> waits_for_;  // by rank: the message that it stands still for
  std::array<Gate, 2> gates_;
  std::array<std::vector<std::size_t>, 2> waits_at_;
  std::vector<std::size_t> ready_;  // ranks that may go on
  SimulatedStep times_;
};

}  // namespace

SimulatedStep simulate(const std::vector<RankOps>& ranks, const SimulationSize& size, const OverlapSlowdown& slowdown,
                       Spans spans) {
  return Simulation(ranks, size, slowdown, spans).run();
}

}  // namespace trident

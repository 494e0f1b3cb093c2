#include "tests/contracts/instruction_graph.h"

#include <algorithm>
#include <cstdint>
#include <queue>

#include "core/check.h"

namespace trident {
namespace {

struct StreamState {
  std::size_t next = 0;  // position of the instruction that runs or comes next
  bool running = false;
  double remaining = 0;  // of the running one: seconds alone, as of `since`
  double since = 0;
  double slowdown = 1;
  int version = 0;  // of the end that was announced last
};

struct RankState {
  int computing = 0, communicating = 0;  // streams that run
  bool overlapped() const { return computing > 0 && communicating > 0; }
};

struct GraphEvent {
  double time = 0;
  std::int64_t order = 0;  // events of one time in the order in which they were announced: one result whatever the heap does
  int stream = 0;
  int version = 0;  // kWakeUp: the stream may start what it waits for; otherwise the end of what runs, if it is still the latest
};
constexpr int kWakeUp = -1;

struct Later {
  bool operator()(const GraphEvent& a, const GraphEvent& b) const { return a.time != b.time ? a.time > b.time : a.order > b.order; }
};

class GraphSimulation {
 public:
  GraphSimulation(const InstructionGraph& graph, const OverlapSlowdown& slowdown);
  SimulatedTimes run();

 private:
  void announce(double time, int stream, int version) { events_.push({time, num_events_++, stream, version}); }
  void announce_end(int stream);
  void start_next(int stream, double now);
  void finish(int stream, double now);
  void change_speeds(int rank, double now);
  double slowdown_of(const InstructionGraph::Stream& stream) const;

  const InstructionGraph& graph_;
  const OverlapSlowdown slowdown_;
  const bool uniform_;  // overlapping costs nothing
  std::vector<StreamState> streams_;
  std::vector<RankState> ranks_;
  std::vector<std::vector<int>> streams_of_rank_;
  std::vector<int> missing_;        // by instruction: dependencies that have not ended
  std::vector<double> earliest_;    // by instruction
  std::vector<int> first_, edges_;  // dependencies by `before`
  std::priority_queue<GraphEvent, std::vector<GraphEvent>, Later> events_;
  std::int64_t num_events_ = 0;
  int num_finished_ = 0;
  SimulatedTimes times_;
};

GraphSimulation::GraphSimulation(const InstructionGraph& graph, const OverlapSlowdown& slowdown)
    : graph_(graph),
      slowdown_(slowdown),
      uniform_(slowdown.compute == 1 && slowdown.communication == 1),
      streams_(graph.streams().size()),
      ranks_(static_cast<std::size_t>(graph.num_ranks())),
      streams_of_rank_(ranks_.size()) {
  TRIDENT_CHECK(slowdown.compute >= 1 && slowdown.communication >= 1, "{} {}", slowdown.compute, slowdown.communication);
  const auto n = static_cast<std::size_t>(graph.num_instructions());
  missing_.assign(n, 0);
  earliest_.assign(n, 0);
  times_.start.assign(n, 0);
  times_.end.assign(n, 0);
  for (int s = 0; s < graph.num_streams(); ++s)
    streams_of_rank_[static_cast<std::size_t>(graph.streams()[static_cast<std::size_t>(s)].rank)].push_back(s);

  const auto& dependencies = graph.dependencies();
  first_.assign(n + 1, 0);
  edges_.resize(dependencies.size());
  for (const auto& d : dependencies) {
    ++first_[static_cast<std::size_t>(d.before) + 1];
    ++missing_[static_cast<std::size_t>(d.after)];
  }
  for (std::size_t i = 0; i < n; ++i) first_[i + 1] += first_[i];
  std::vector<int> at(first_.begin(), first_.end() - 1);
  for (std::size_t d = 0; d < dependencies.size(); ++d)
    edges_[static_cast<std::size_t>(at[static_cast<std::size_t>(dependencies[d].before)]++)] = static_cast<int>(d);
}

double GraphSimulation::slowdown_of(const InstructionGraph::Stream& stream) const {
  if (!ranks_[static_cast<std::size_t>(stream.rank)].overlapped()) return 1;
  return stream.kind == StreamKind::kCompute ? slowdown_.compute : slowdown_.communication;
}

void GraphSimulation::announce_end(int stream) {
  StreamState& state = streams_[static_cast<std::size_t>(stream)];
  announce(state.since + state.remaining * state.slowdown, stream, ++state.version);
}

// Work on `rank` goes on at the speed that is right from now on.
void GraphSimulation::change_speeds(int rank, double now) {
  if (uniform_) return;
  for (const int s : streams_of_rank_[static_cast<std::size_t>(rank)]) {
    StreamState& state = streams_[static_cast<std::size_t>(s)];
    const double slowdown = slowdown_of(graph_.streams()[static_cast<std::size_t>(s)]);
    if (!state.running || slowdown == state.slowdown) continue;
    state.remaining = std::max(0.0, state.remaining - (now - state.since) / state.slowdown);
    state.since = now;
    state.slowdown = slowdown;
    announce_end(s);
  }
}

void GraphSimulation::start_next(int stream, double now) {
  StreamState& state = streams_[static_cast<std::size_t>(stream)];
  const InstructionGraph::Stream& of = graph_.streams()[static_cast<std::size_t>(stream)];
  if (state.running || state.next == of.instructions.size()) return;
  const auto instruction = static_cast<std::size_t>(of.instructions[state.next]);
  if (missing_[instruction] > 0) return;
  if (earliest_[instruction] > now) {
    announce(earliest_[instruction], stream, kWakeUp);
    return;
  }
  times_.start[instruction] = now;
  RankState& rank = ranks_[static_cast<std::size_t>(of.rank)];
  ++(of.kind == StreamKind::kCompute ? rank.computing : rank.communicating);
  state.running = true;
  state.remaining = graph_.instructions()[instruction].seconds;
  state.since = now;
  state.slowdown = slowdown_of(of);
  announce_end(stream);
  change_speeds(of.rank, now);
}

void GraphSimulation::finish(int stream, double now) {
  StreamState& state = streams_[static_cast<std::size_t>(stream)];
  const InstructionGraph::Stream& of = graph_.streams()[static_cast<std::size_t>(stream)];
  const auto instruction = static_cast<std::size_t>(of.instructions[state.next]);
  times_.end[instruction] = now;
  ++num_finished_;
  RankState& rank = ranks_[static_cast<std::size_t>(of.rank)];
  --(of.kind == StreamKind::kCompute ? rank.computing : rank.communicating);
  state.running = false;
  ++state.next;
  for (int e = first_[instruction]; e < first_[instruction + 1]; ++e) {
    const auto& dependency = graph_.dependencies()[static_cast<std::size_t>(edges_[static_cast<std::size_t>(e)])];
    const auto after = static_cast<std::size_t>(dependency.after);
    earliest_[after] = std::max(earliest_[after], now + dependency.lag);
    if (--missing_[after] > 0) continue;
    const int waiting = graph_.instructions()[after].stream;
    const StreamState& other = streams_[static_cast<std::size_t>(waiting)];
    const auto& list = graph_.streams()[static_cast<std::size_t>(waiting)].instructions;
    if (waiting != stream && other.next < list.size() && list[other.next] == dependency.after) start_next(waiting, now);
  }
  start_next(stream, now);
  change_speeds(of.rank, now);
}

SimulatedTimes GraphSimulation::run() {
  for (int s = 0; s < graph_.num_streams(); ++s) start_next(s, 0);
  while (!events_.empty()) {
    const GraphEvent event = events_.top();
    events_.pop();
    const StreamState& state = streams_[static_cast<std::size_t>(event.stream)];
    if (event.version == kWakeUp)
      start_next(event.stream, event.time);
    else if (state.running && event.version == state.version)
      finish(event.stream, event.time);
  }
  TRIDENT_CHECK(num_finished_ == graph_.num_instructions(), "{} of {} instructions can never start: they wait for each other",
                graph_.num_instructions() - num_finished_, graph_.num_instructions());
  return std::move(times_);
}

}  // namespace

int InstructionGraph::add_stream(int rank, StreamKind kind) {
  TRIDENT_CHECK(rank >= 0, "rank {}", rank);
  streams_.push_back({rank, kind, {}});
  num_ranks_ = std::max(num_ranks_, rank + 1);
  return num_streams() - 1;
}

int InstructionGraph::add_instruction(int stream, double seconds) {
  TRIDENT_CHECK(stream >= 0 && stream < num_streams() && seconds >= 0, "stream {} of {}, {} s", stream, num_streams(), seconds);
  instructions_.push_back({stream, seconds});
  streams_[static_cast<std::size_t>(stream)].instructions.push_back(num_instructions() - 1);
  return num_instructions() - 1;
}

void InstructionGraph::add_dependency(int before, int after, double lag) {
  const int n = num_instructions();
  TRIDENT_CHECK(before >= 0 && before < n && after >= 0 && after < n && lag >= 0, "{} -> {} of {}, {} s", before, after, n, lag);
  dependencies_.push_back({before, after, lag});
}

SimulatedTimes simulate(const InstructionGraph& graph, const OverlapSlowdown& slowdown) {
  return GraphSimulation(graph, slowdown).run();
}

}  // namespace trident

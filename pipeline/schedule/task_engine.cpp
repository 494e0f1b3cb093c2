#include "pipeline/schedule/task_engine.h"

#include <algorithm>

#include "core/at.h"

namespace trident {
namespace {

// Something ranks wait for: a token, or a barrier that completes with its last arrival.
struct Gate {
  int missing = 1;  // arrivals still to come
  double time = 0;  // of the latest arrival so far
  std::vector<int> waiting;
};

class Engine {
 public:
  Engine(const std::vector<std::vector<Task>>& tasks, int num_tokens, const std::vector<int>& barrier_sizes)
      : tasks_(tasks), ranks_(tasks.size()), tokens_(static_cast<std::size_t>(num_tokens)) {
    for (const int size : barrier_sizes) barriers_.push_back({size, 0, {}});
    timeline_.ranks.resize(tasks.size());
  }

  TaskTimeline run() {
    for (std::size_t rank = 0; rank < tasks_.size(); ++rank) runnable_.push_back(static_cast<int>(rank));
    while (!runnable_.empty()) {
      const int rank = runnable_.back();
      runnable_.pop_back();
      while (advance(rank)) {
      }
    }
    for (std::size_t rank = 0; rank < tasks_.size(); ++rank) {
      const bool done = ranks_[rank].next == tasks_[rank].size();
      timeline_.blocked_at.push_back(done ? Task::kNone : static_cast<int>(ranks_[rank].next));
    }
    return std::move(timeline_);
  }

 private:
  struct RankState {
    std::size_t next = 0;
    double compute_free = 0, background_free = 0;
    bool in_barrier = false;
  };

  // Runs the rank's next task; false if there is none or it must wait (the rank is then queued at what it waits for).
  bool advance(int rank) {
    RankState& state = at(ranks_, rank);
    const auto& list = at(tasks_, rank);
    if (state.next == list.size()) return false;
    const Task& task = list[state.next];

    double start = state.compute_free;
    if (task.background) start = std::max(start, state.background_free);
    for (const int token : task.waits) {
      if (token == Task::kNone) continue;
      Gate& gate = at(tokens_, token);
      if (gate.missing > 0) return wait_at(gate, rank);
      start = std::max(start, gate.time);
    }
    if (task.barrier != Task::kNone) {
      Gate& gate = at(barriers_, task.barrier);
      if (!state.in_barrier) arrive(gate, std::max(start, state.background_free));
      state.in_barrier = gate.missing > 0;
      if (state.in_barrier) return wait_at(gate, rank);
      start = gate.time;
    }

    const double end = start + task.seconds;
    (task.background ? state.background_free : state.compute_free) = end;
    if (task.gives != Task::kNone) arrive(at(tokens_, task.gives), end + task.transit);
    at(timeline_.ranks, rank).push_back({start, end});
    ++state.next;
    return true;
  }

  static bool wait_at(Gate& gate, int rank) {
    gate.waiting.push_back(rank);
    return false;
  }

  void arrive(Gate& gate, double time) {
    gate.time = std::max(gate.time, time);
    if (--gate.missing > 0) return;
    runnable_.insert(runnable_.end(), gate.waiting.begin(), gate.waiting.end());
    gate.waiting.clear();
  }

  const std::vector<std::vector<Task>>& tasks_;
  std::vector<RankState> ranks_;
  std::vector<Gate> tokens_, barriers_;
  std::vector<int> runnable_;
  TaskTimeline timeline_;
};

}  // namespace

bool TaskTimeline::complete() const {
  return std::all_of(blocked_at.begin(), blocked_at.end(), [](int task) { return task == Task::kNone; });
}

TaskTimeline run_tasks(const std::vector<std::vector<Task>>& ranks, int num_tokens, const std::vector<int>& barrier_sizes) {
  return Engine(ranks, num_tokens, barrier_sizes).run();
}

}  // namespace trident

// The event engine below the simulators: ranks work through lists of tasks, tokens travel between them.
//
// A rank starts its tasks in list order. A compute task occupies the rank; a background task (a collective that overlaps)
// starts no earlier than the rank reaches it, queues behind earlier background tasks, and the rank goes on at once. A task
// starts when the tokens it waits for have arrived; its own token arrives `transit` seconds after its end.
// A barrier is entered by several ranks, each with its background tasks finished; all start it together.
// Cost: O(tasks), whatever the times.
#pragma once

#include <array>
#include <vector>

namespace trident {

struct Task {
  static constexpr int kNone = -1;

  double seconds = 0;
  bool background = false;
  std::array<int, 3> waits = {kNone, kNone, kNone};  // tokens
  int gives = kNone;                                 // token
  double transit = 0;                                // seconds
  int barrier = kNone;                               // index into barrier_sizes
};

struct TaskTimes {
  double start = 0, end = 0;  // seconds since the step began
};

struct TaskTimeline {
  std::vector<std::vector<TaskTimes>> ranks;  // as the tasks; only the tasks before `blocked_at` have times
  std::vector<int> blocked_at;                // per rank: the task that can never start, or Task::kNone

  bool complete() const;
};

// barrier_sizes[b]: how many ranks enter barrier b.
TaskTimeline run_tasks(const std::vector<std::vector<Task>>& ranks, int num_tokens, const std::vector<int>& barrier_sizes = {});

}  // namespace trident

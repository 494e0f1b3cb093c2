// The compute threads of a rank. They are OpenMP's, because oneDNN's are: a rank has one team, and it sleeps while it waits
// (docs/decisions/0011-waiting-threads.md).
#pragma once

#include <cstdint>
#include <optional>

namespace trident {

// The calling rank's compute threads, the calling one included.
std::int64_t team_size();
// How many the calling thread has from now on. With a first core each stays on one of its own, that one and those after it: a
// sleeping thread is woken on the core of the one that wakes it otherwise, though another is idle.
void make_team(std::int64_t size, std::optional<int> first_core);

namespace internal {
void run_on_team(std::int64_t tasks, void (*call)(const void* task, std::int64_t i, std::int64_t member), const void* task);
}  // namespace internal

// Calls task(i, member) for every i in 0 .. tasks - 1, each once, and returns when all are done. Tasks run in no order, on members
// 0 .. team_size() - 1 of which none runs two at a time, so that each may own scratch memory. Tasks write to memory that no other
// task touches, and what they compute depends on i alone: a result is the same for every size of the team. They throw nothing. A
// task that has tasks itself runs them one after the other, as member 0.
template <class Task>
void on_team(std::int64_t tasks, const Task& task) {
  internal::run_on_team(
      tasks, [](const void* t, std::int64_t i, std::int64_t member) { (*static_cast<const Task*>(t))(i, member); }, &task);
}

}  // namespace trident

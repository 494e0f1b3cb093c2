// Decides what follows when a supervised command has ended, without processes and clocks.
#pragma once

#include <optional>
#include <string>

namespace trident {

struct SupervisionRules {
  std::optional<int> max_restarts;  // none: as many as it takes
  bool saves_on_the_way = true;     // else only the end is saved, and nothing is there to go on from after a crash
  int max_idle_starts = 3;          // starts in a row without a newly committed step, until there is no further one
};

// The events until a command ended, without that end.
struct SupervisionHistory {
  int restarts = 0;
  int idle_starts = 0;  // in a row, without a newly committed step
};

// How a command ended.
struct CommandEnd {
  int code = 0;                // its exit code, or 128 + the signal that killed it
  bool made_progress = false;  // a step was committed that is newer than all before
  bool asked_to_stop = false;  // the supervisor was, and has passed it on
};

struct NextMove {
  bool restart = false;
  double wait_seconds = 0;     // before the restart
  int exit_code = 0;           // of the supervisor, without a restart
  std::string why;             // one sentence without a full stop
  SupervisionHistory history;  // with this end
};

NextMove what_follows(const SupervisionRules& rules, const SupervisionHistory& history, const CommandEnd& end);

// Before a restart, after so many starts in a row without a newly committed step: 0 s after none, then 1, 2, 4, ... 60 s.
double back_off_seconds(int idle_starts);

// "137: killed by SIGKILL".
std::string describe_exit(int code);

}  // namespace trident

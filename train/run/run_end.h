// Why a run ended, and what it has saved by then: the exit code and the last message follow from it.
#pragma once

#include <string>

namespace trident {

// How a run came to its end, the same on every rank.
struct RunEnd {
  int signal = 0;            // that ended it before its last step, or 0
  bool out_of_time = false;  // run.max_minutes ended it
  bool untrained = false;    // before the first update that the run ever made
  bool saved = false;        // what was trained last is in a checkpoint that a run can go on from
  bool weights = false;      // it is in one of weights alone
  bool begins_anew = false;  // it is in one, and the same command does not go on from it (checkpoint.resume "never")
  bool not_saved = false;    // it should be, and is not

  int exit_code() const;
  std::string message() const;  // for any code; run.json keeps it
};

}  // namespace trident

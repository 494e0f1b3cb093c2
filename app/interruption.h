// Signals that a command asks after while it writes: leaving by an error removes what it had not finished.
#pragma once

#include <csignal>
#include <string>
#include <utility>

#include "core/check.h"
#include "train/run/stop_request.h"

namespace trident {

class Interruption {
 public:
  // `outcome`: what is true of the output then, "no file was changed".
  explicit Interruption(std::string outcome) : outcome_(std::move(outcome)) {}

  // Error with the code of a signal (128 + its number), if one came.
  void check() const {
    const int signal = signals_.pending();
    if (signal == 0) return;
    throw Error(static_cast<ExitCode>(exit_code_of_signal(signal)),
                fmt::format("stopped by {}: {}; give the command again to start anew", signal_name(signal), outcome_));
  }

 private:
  std::string outcome_;
  StopRequest signals_{{SIGTERM, SIGINT, SIGHUP}};
};

}  // namespace trident

// Where what a run says to people goes.
#pragma once

#include <ostream>

#include "core/logging.h"
#include "train/log/console.h"

namespace trident {

struct TrainOutput {
  std::ostream& console;  // step lines and the closing report
  ConsoleMode mode = ConsoleMode::kPlain;
  LogSink& log;           // warnings and errors of ranks
  int descriptor = -1;    // of the terminal that the console is, for its width
};

}  // namespace trident

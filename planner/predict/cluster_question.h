// The question to `trident plan cluster`.
#pragma once

#include <string>

namespace trident {

struct ClusterQuestion {
  std::string cluster;      // a name or a file, as find_cluster() takes it; empty: none is asked for
  int gpus = 0;             // 0: as many as the configuration's degrees say
  double tokens = 0;        // to train on; 0: those of run.steps
  std::string html, trace;  // files to write; empty: none
};

}  // namespace trident

// The layouts in which a run may go on when hosts are gone: that of its configuration, and those of its key `elastic`.
#pragma once

#include <string>
#include <vector>

#include "train/config/train_config.h"

namespace trident {

struct ElasticLayout {
  std::string text;     // "2DP x 4PP x 1TP"; with "(elastic[0])" behind it where it is one of those
  std::string setting;  // of --set: "parallel=2DP x 4PP"; "" for the configuration's own
  int ranks = 0;
};

// All of `elastic`, in its order. Each is planned for the run's model and global batch: ConfigError that names the first which is
// not legal. `file` and `settings` are where `config` comes from.
std::vector<ElasticLayout> elastic_layouts(const std::string& file, const std::vector<std::string>& settings,
                                           const TrainConfig& config);

// That of the configuration, planned likewise. ConfigError also for parallel.data "auto": how many ranks these are is not known.
ElasticLayout own_layout(const TrainConfig& config);

}  // namespace trident

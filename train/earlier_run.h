// A run directory that was used before: nothing of another run is lost or mixed with this one's.
#pragma once

#include <string>
#include <vector>

#include "train/train_config.h"

namespace trident {

// The files that runs leave directly below their directory, of those that are there, by name. Whatever else lies there is not ours.
std::vector<std::string> run_files_in(const std::string& folder);

// Refuses a run directory with files of a run whose resolved configuration is another or unknown, unless run.overwrite: ConfigError
// that names files, difference and remedy. run.dir and run.overwrite themselves do not count. What has the name of such a file and
// is none (a pipe, a link): StorageError, whatever run.overwrite says. Changes nothing.
void check_earlier_run(const TrainConfig& config);

// Moves those files into a new folder earlier-1, earlier-2, ... of `folder` and returns its path; "" where there are none. All of
// them, or none: StorageError, also while another run is writing them.
std::string set_earlier_run_aside(const std::string& folder);

}  // namespace trident

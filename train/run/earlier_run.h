// A run directory that was used before: nothing of another run is lost or mixed with this one's.
#pragma once

#include <string>
#include <vector>

#include "train/config/train_config.h"

namespace trident {

// The files that runs leave directly below their directory, of those that are there, by name; none where there is no folder yet.
// Whatever else lies there is not ours. StorageError where it cannot be read.
std::vector<std::string> run_files_in(const std::string& folder);

// Refuses a run directory with files of a run whose resolved configuration is another or unknown, unless run.overwrite: ConfigError
// that names files, difference and remedy. run.dir and run.overwrite themselves do not count. What has the name of such a file and
// is none (a pipe, a link), or a folder that cannot be read: StorageError, whatever run.overwrite says. Changes nothing.
void check_earlier_run(const TrainConfig& config);

// Removes what starts left there that were killed while they wrote one of those files. For the run that has the folder.
void remove_run_leftovers(const std::string& folder);

// ConfigError while another run is writing the files of the folder: after two seconds, which a killed one may take to be gone.
// Under a supervisor after `lost_seconds`, in which a rank 0 of another node ends. If the run that has them is then an earlier
// start of this one, whose token stands in the newest lease of `checkpoints` ("": it is not asked), it can commit nothing more and
// loses them: its files go on under their names, and what it still writes nobody sees. StorageError where this one could not write
// there.
void refuse_if_written(const std::string& folder, const std::string& checkpoints = "", double lost_seconds = 20);

// Looks again, as check_earlier_run does, at what may have come since, and moves those files into a new folder earlier-1,
// earlier-2, ... of run.dir; returns its path, "" where there are none. All of them, or none: StorageError, also while another run
// is writing them.
std::string set_earlier_run_aside(const TrainConfig& config);

}  // namespace trident

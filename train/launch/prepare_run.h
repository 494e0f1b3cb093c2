// A run reads, decides and refuses this much before its ranks have devices.
#pragma once

#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "parallel/communicator/rendezvous.h"
#include "train/run/run_inputs.h"

namespace trident {

// The ranks that this process prepares for: all of them as threads, or itself as one of a job.
struct LaunchSite {
  int world_size = 0;    // 0: no launcher, the degrees say how many ranks there are
  int first_local = 0;   // this process's first rank among the ranks of its node
  int nodes = 1;
  bool one_machine = false;  // the nodes are namespaces or containers of one, whose cores each of them sees
  int local_ranks = 0;   // of the node, which share its memory and cores; 0: all ranks
  std::vector<std::string> gpus = {};  // names of all that the run computes on, each GPU once
  bool reads_all = true; // false: another process of the node reads the tokenizer and looks at the data ahead of the run
};

// Everything that can be known without a rank; refuses what cannot be trained on. ConfigError, DataError, StorageError.
// `inputs` has the checkpoints that the run begins with, which adopt() has agreed to; initial weights of another model are refused
// here. Returns it with the rest.
RunInputs prepare_run(const TrainConfig& config, const LaunchSite& place, const MachineFacts& machine, RunInputs inputs = {},
                      const FindSamples& find_samples = {});

// The core of this process's first rank, where each compute thread of the node's `local_ranks` can have one of its own.
std::optional<int> first_core_here(const LaunchSite& place, const MachineFacts& machine, int local_ranks, int threads);

// With what the plan needs to know of the files, as far as they are there, and with_steps_of_epochs() if they are. Whether one has
// a mask of targets; the mean length of the training documents, where predictions go by it and the configuration does not say it:
// of the headers of the .idx, by weight; with `reads_masks`, which share of their targets counts, by a sample.
TrainConfig with_facts_of_files(TrainConfig config, bool reads_masks = true);

// With the steps that run.epochs takes: epochs x samples / batch.global, rounded up. Reads the headers of the .idx; errors as
// open_token_sources(), and ConfigError for more than 2^53 steps.
TrainConfig with_steps_of_epochs(TrainConfig config);

// adopt(), but what is wrong with the configuration by itself is said before what keeps it from going on from this checkpoint.
void adopt_if_sound(TrainConfig& config, Resume& resume, const LaunchSite& place, const MachineFacts& machine,
                    const FindSamples& find_samples);

// The last refusal, by whoever writes there, because it says nothing about the configuration itself: of a run.dir that another run
// writes (refuse_if_written) or has used (check_earlier_run).
void check_run_dir(const TrainConfig& config, const std::optional<Resume>& resume);

// prepare_run's part that has to do with token files: opens those that inputs.plan names, refuses what cannot be trained on, fills
// sources and data_facts. Of each file it reads the header, the boundaries of data.split and, if it `looks`, sample_dataset()'s few
// places: whatever the size less than 4 KB, which on a disk are less than 1.1 MB of pages. Who looks also reads data.tokenizer into
// token_bytes, and compares it and the model with the data's records (check_records; 128 KiB of a dataset that has one); what is to
// be said of them goes to plan.notes. BatchLoader::load checks what it delivers.
void open_data(RunInputs& inputs, bool looks, const ReadAt& read_at = ::pread);

// Collective. Where a rank's data are not those of rank 0, all throw as run_together() does; the message names both.
void compare_data(Rendezvous& job, const std::string& host_of_rank_0, const std::vector<DataFacts>& mine);

}  // namespace trident

// Where the ranks of a run compute: what device = auto | cpu | cuda comes to on these machines, and a device for each rank.
//
// Ranks find their cards together: which cards each process sees, which of them can be opened, how much memory they have left. Cards are told
// apart by CardFacts::id, so it does not matter whether every process sees all cards of its node or a launcher shows each its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "device/device.h"
#include "parallel/cuda_backend.h"
#include "parallel/parallel_context.h"
#include "train/run_plan.h"
#include "train/start_up.h"

namespace trident {

// A rank's place on a card.
struct CardSeat {
  CardFacts card;
  int ranks = 1;                // of this run on that card
  std::int64_t free_bytes = 0;  // of its memory, while the ranks have opened it and taken nothing yet
  std::int64_t bytes_per_rank() const;  // of it for arenas: without what CUDA and its libraries take
};

// What the ranks found, in words and numbers. Only `seats` and `problem` differ between processes.
struct CardSearch {
  std::vector<CardSeat> seats;      // of this process's ranks; empty if one of them has no card
  std::string problem;              // why not; empty if there are seats, or nobody looked
  std::vector<std::string> cards;   // names of the cards that ranks of the run compute on, each card once
  std::vector<MemoryPool> memory;   // of these cards
  std::vector<std::string> notes;   // one line each: cards left out, cards that somebody else uses, cards that ranks share

  std::int64_t bytes() const;  // of all these cards, for arenas
};

// The ranks of a run as this process sees them.
struct RunRanks {
  std::vector<int> mine;  // threads: all of them
  ExchangeTexts exchange;
};
RunRanks thread_ranks(int ranks);

// Collective over the run's processes; throws nothing of its own. `asked` = cpu looks for none, but takes part. Opens the cards that this process's
// ranks compute on and no others; a card with a problem is left out, and all look again without it.
CardSearch look_for_cards(const std::string& asked, CudaBackend& cuda, const RunRanks& ranks);

struct DeviceChoice {
  DeviceKind kind = DeviceKind::kCpu;
  std::string why;   // "device = auto: no NVIDIA driver on this machine"
  CardSearch found;  // on cards
};

// cuda takes the cards, auto takes them if there is one for each of this process's ranks. ConfigError if cuda was asked for and there is none.
DeviceChoice choose_device(const std::string& asked, CudaBackend& cuda, CardSearch found);

// The card of a rank, of those that it and its like see: one each while there are enough, else neighbours share one.
int card_of_rank(int rank, int ranks, int cards);
// The same for every rank, given the identities of the cards that it sees, as the place in that list; -1: it sees none. Ranks that see the same list
// share it out among themselves.
std::vector<int> assign_cards(const std::vector<std::vector<std::string>>& seen);

// What a rank of `local_ranks` on this machine has; of cards: the one that has the least left for each of its ranks.
MachineFacts machine_facts(const DeviceChoice& choice, int local_ranks);

// What a plan says of devices, and what it has to know of cards: notes and memory.
void add_device_facts(const DeviceChoice& choice, RunPlan& plan);

// Dense FLOP/s that the maker names for a card; none for cards not in the table, parts of divided cards, and dtypes other than bf16 and f16.
std::optional<double> named_peak_flops(const std::string& card, DType compute);
// Of all together; none unless every one is known.
std::optional<double> named_peak_flops(const std::vector<std::string>& cards, DType compute);

// Of a rank, on the thread that will use it.
struct RankDeviceOptions {
  int seat = 0;                         // which of this process's ranks it is; cards only
  int threads_per_rank = 1;             // CPU only
  std::optional<int> first_core = {};   // CPU only
  HostAllocator host_memory = {};       // that peers reach; not set: private memory
  CudaOptions cuda = {};                // cards only
};
std::unique_ptr<Device> make_rank_device(const DeviceChoice& choice, CudaBackend& cuda, Doorbell& doorbell, const RankDeviceOptions& options);

// How groups of ranks exchange what lies on `device`, which outlives the result's communicators; not set for CPUs.
OnDevice on_device(const DeviceChoice& choice, CudaBackend& cuda, Device& device, DeviceTransport transport);

}  // namespace trident

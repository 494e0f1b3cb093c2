// How ranks find their cards, together: which cards each process sees, which of them can be opened, how much memory they have left.
//
// Cards are told apart by CardFacts::id, so it does not matter whether every process sees all cards of its node or a launcher shows each its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parallel/cuda/cuda_backend.h"
#include "train/config/config_enums.h"
#include "train/plan/run_plan.h"

namespace trident {

// A rank's place on a card.
struct CardSeat {
  CardFacts card;
  int ranks = 1;                // of this run on that card
  std::int64_t free_bytes = 0;  // of its memory, while the ranks have opened it and taken nothing yet
};

// What the ranks found, in words and numbers. Only `seats` and `problem` differ between processes.
struct CardSearch {
  std::vector<CardSeat> seats;      // of this process's ranks; empty if one of them has no card
  std::string problem;              // why not; empty if there are seats, or nobody looked
  std::vector<std::string> cards;   // names of the cards that ranks of the run compute on, each card once
  std::vector<MemoryPool> memory;   // of these cards
  std::vector<std::string> notes;   // one line each: cards left out, cards that somebody else uses, cards that ranks share
};

// Collective: every rank's text, by rank (ProcessWorld::all_gather).
using ExchangeTexts = std::function<std::vector<std::string>(const std::string& mine)>;

// The ranks of a run as this process sees them.
struct RunRanks {
  std::vector<int> mine;  // threads: all of them
  ExchangeTexts exchange;
};
RunRanks thread_ranks(int ranks);

// Collective over the run's processes; throws nothing of its own. `asked` = cpu looks for none, but takes part. Opens the cards that this process's
// ranks compute on and no others; a card with a problem is left out, and all look again without it.
CardSearch look_for_cards(AskedDevice asked, CudaBackend& cuda, const RunRanks& ranks);

// Whether this process would take part in a search with a card. Where no process of a run would, each may search as
// thread_ranks(1).
bool sees_cards(AskedDevice asked, CudaBackend& cuda);

// Which of `cards` cards, seen by `ranks` ranks, is that of the rank: one each while there are enough, else neighbours share one.
int card_of_rank(int rank, int ranks, int cards);
// The same for every rank, given the identities of the cards that it sees, as the place in that list; -1: it sees none. Ranks that see the same list
// share it out among themselves.
std::vector<int> assign_cards(const std::vector<std::vector<std::string>>& seen);

}  // namespace trident

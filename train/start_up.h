// What the ranks of a job agree on before they train: that each of them could start, and that all mean the same run.
//
// Ranks that are processes each read the configuration, the data and the machine for themselves. Here they exchange what they found, so that a
// difference ends all of them at once with one message that names the ranks, instead of a hang or wrong numbers later.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "train/run_plan.h"

namespace trident {

// Collective: every rank's text, by rank (ProcessWorld::all_gather).
using ExchangeTexts = std::function<std::vector<std::string>(const std::string& mine)>;
// Collective: rank 0's text (ProcessWorld::broadcast).
using BroadcastText = std::function<std::string(const std::string& mine)>;

// What all ranks throw together: this on rank 0, ReportedElsewhere on the others.
class AgreedError : public Error {
 public:
  using Error::Error;
};

// What a rank is, for comparison with the others.
struct StartUpFacts {
  std::string host;             // of the node
  std::string build;            // the binary's build id
  std::string instruction_set;  // "avx512, bf16 by AMX"
  std::string config;           // as one line of JSON, resolved; empty: rank 0's
  MachineFacts machine;
  std::string device_why;       // for messages
  std::string card;             // CardFacts::id; empty on CPUs
};

// `build` of this process.
std::string build_id();

// Runs `step` on every rank. Where it threw an Error on any of them, all throw: rank 0 an AgreedError with the lowest such rank's code and message (with
// its rank and host in front, unless all ranks said the same), the others ReportedElsewhere.
void run_together(const ExchangeTexts& exchange, int rank, const std::function<void()>& step);

// One line for each of the differences, empty if there are none: configurations (the first key that differs, both values and ranks), builds,
// and, where precision.compute is "auto", instruction sets that would decide differently.
std::vector<std::string> start_up_conflicts(const std::vector<StartUpFacts>& ranks);
// What is legal but worth a word: instruction sets that differ.
std::vector<std::string> start_up_warnings(const std::vector<StartUpFacts>& ranks);

// Collective: what rank 0 has, for all. Only rank 0's `mine` counts.
std::vector<std::int32_t> of_rank_0(const BroadcastText& broadcast, int rank, const std::vector<std::int32_t>& mine);

// As texts, and back.
std::string to_text(const StartUpFacts& facts);
StartUpFacts start_up_facts_from(const std::string& text);

// Exchanges the facts, throws on all ranks what start_up_conflicts() finds (code 64), and returns those of all. Configurations that are
// rank 0's do not travel: they would be most of what every rank has to hold of every other.
std::vector<StartUpFacts> compare_start_up(const ExchangeTexts& exchange, const BroadcastText& broadcast, int rank, StartUpFacts mine);

// The machine that a plan for all of them may count on: bf16 if all have it. Memory is that of `mine` if they compute on cards, which all ranks know,
// else that of every rank's machine; cores are then shared as on the node that has fewest for a rank, so that all ranks have as many threads.
MachineFacts weakest(const MachineFacts& mine, const std::vector<StartUpFacts>& ranks);

// "ranks 0-3 (n1), 4-7 (n2)"
std::string ranks_by_host(const std::vector<int>& ranks, const std::vector<StartUpFacts>& facts);

// A warning for tensor-parallel groups that span nodes, whose collectives in every layer cross the network; empty if none does.
std::string topology_warning(const ProcessGrid& grid, const std::vector<int>& nodes, const std::vector<StartUpFacts>& facts);

}  // namespace trident

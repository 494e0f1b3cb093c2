// The ranks of a job agree before they train that each of them could start, and that all mean the same run.
//
// Ranks that are processes each read the configuration, the data and the machine for themselves. Here they compare what they found,
// so that a difference ends all of them at once with one message that names the ranks, instead of a hang or wrong numbers later.
// Where all agree no rank learns of another more than a few numbers.
#pragma once

#include <string>
#include <vector>

#include "parallel/communicator/rendezvous.h"
#include "train/plan/run_plan.h"

namespace trident {

// A rank's facts, for comparison with the others.
struct StartUpFacts {
  std::string host;             // of the node
  std::string build;            // the binary's build id
  std::string instruction_set;  // "avx512, bf16 by AMX"
  std::string config;           // as one line of JSON, resolved; empty: rank 0's, or not the first that differs
  MachineFacts machine;
  std::string device_why;  // for messages
};

struct DeviceChoice;  // rank_devices.h

// Collective over `node`, the ranks of this process's node: its first rank measures what one suffices for. The facts of this
// process.
StartUpFacts facts_of_this_process(const TrainConfig& config, Rendezvous& node, const DeviceChoice& choice);

// `build` of this process.
std::string build_id();

// One line for each of the differences, empty if there are none: configurations (the first key that differs, both values and
// ranks), builds, devices. ranks[0].config must be there, others may be empty.
std::vector<std::string> start_up_conflicts(const std::vector<StartUpFacts>& ranks);
// Says what is legal but worth a word: instruction sets that differ, and processors of which some multiply bf16 faster than fp32:
// then all take what is right for those that do not.
std::vector<std::string> start_up_warnings(const std::vector<StartUpFacts>& ranks);

// As texts, and back.
std::string to_text(const StartUpFacts& facts);
StartUpFacts start_up_facts_from(const std::string& text);

// The outcome of comparing.
struct StartUpAgreement {
  std::string description;            // of rank 0's machine
  std::vector<std::string> warnings;  // start_up_warnings(), on rank 0
};
// Collective. Every rank compares itself with rank 0. Where one differs, all facts come to rank 0, which puts them into words; of
// configurations that are not rank 0's the first one comes. Throws on all ranks what start_up_conflicts() finds (code 64).
StartUpAgreement compare_start_up(Rendezvous& job, const StartUpFacts& mine);

// Collective. The machine that a plan for all of them may count on: it multiplies bf16 as slowly as any. Memory is that of `mine`
// if they compute on GPUs, which all ranks know, else of each node what the rank that sees least of it sees; cores are then shared
// as on the node that has fewest for a rank, so that all ranks have as many threads. `node`: the ranks of this rank's node. A
// node's ranks alone hear of each other.
MachineFacts weakest(Rendezvous& job, Rendezvous& node, const StartUpFacts& mine);

// Collective. On rank 0 a warning for tensor-parallel groups that span nodes, whose collectives in every layer cross the network;
// empty elsewhere, and if none does. nodes[r]: the node of rank r. `host`: of this rank; those of the group that is named come to
// rank 0.
std::string topology_warning(Rendezvous& job, const ProcessGrid& grid, const std::vector<int>& nodes, const std::string& host);

}  // namespace trident

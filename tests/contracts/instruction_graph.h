// A rank's step is a graph of timed instructions on streams; this says when each of them runs.
//
// A stream is a resource: its instructions run one at a time, in the order in which they were added. An instruction starts when the
// stream is free and everything that it depends on has ended, `lag` seconds ago (a message under way occupies no stream). While a
// rank computes and communicates at once, both sides are slower by the factors of `OverlapSlowdown`: they share memory bandwidth
// and, on GPUs, processors.
//
// pipeline/schedule/task_engine.h answers "does it block, and when does it end" for checkers: lists of a rank, one background
// queue, fixed times. Here are any number of streams per rank and times that depend on what else runs.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/price/overlap_slowdown.h"

namespace trident {

enum class StreamKind : std::uint8_t { kCompute, kCommunication };

class InstructionGraph {
 public:
  // Numbers from 0. `rank` >= 0: streams of one rank slow each other down.
  int add_stream(int rank, StreamKind kind);
  // At the end of `stream`; `seconds` >= 0, alone on its rank. Numbers from 0.
  int add_instruction(int stream, double seconds);
  // `after` starts no earlier than `lag` >= 0 seconds after the end of `before`.
  void add_dependency(int before, int after, double lag = 0);

  int num_streams() const { return static_cast<int>(streams_.size()); }
  int num_instructions() const { return static_cast<int>(instructions_.size()); }
  int num_ranks() const { return num_ranks_; }

  struct Stream {
    int rank = 0;
    StreamKind kind = StreamKind::kCompute;
    std::vector<int> instructions;
  };
  struct Instruction {
    int stream = 0;
    double seconds = 0;
  };
  struct Dependency {
    int before = 0, after = 0;
    double lag = 0;
  };
  const std::vector<Stream>& streams() const { return streams_; }
  const std::vector<Instruction>& instructions() const { return instructions_; }
  const std::vector<Dependency>& dependencies() const { return dependencies_; }

 private:
  std::vector<Stream> streams_;
  std::vector<Instruction> instructions_;
  std::vector<Dependency> dependencies_;
  int num_ranks_ = 0;
};

struct SimulatedTimes {
  std::vector<double> start, end;  // seconds since the step began, by instruction
};

// O((instructions + dependencies) log(streams)). Throws InternalError when instructions wait for each other.
SimulatedTimes simulate(const InstructionGraph& graph, const OverlapSlowdown& slowdown = {});

}  // namespace trident

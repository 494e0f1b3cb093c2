// Every instruction of a step waits for these, besides earlier ones of its rank. Simulators of step programs share them.
#pragma once

#include <cstddef>
#include <vector>

#include "core/at.h"
#include "core/index_range.h"
#include "pipeline/schedule/step_program.h"

namespace trident {

struct StepWaits {
  static constexpr int kNone = -1;
  static constexpr int kTie = 0, kNorm = 1;  // barriers: of the two ends of a tied weight, and of all ranks

  struct Of {
    // For computes, numbers as number() has them: the send whose message this one is the first to read, the gather of its
    // parameters, the last reduction that reads the memory of its gradients.
    int send = kNone, gather = kNone, reduction = kNone;
    int barrier = kNone;   // all that enter it start it together, each with everything before it finished
    bool overlaps = false;  // a gather or a reduction: it may run while its rank does what follows
  };

  std::vector<std::vector<Of>> ranks;  // as the programs' instructions
  std::vector<int> first;              // by rank: number of its first instruction

  int number(int rank, std::size_t index) const { return at(first, rank) + static_cast<int>(index); }
};

// Where a compute writes a unit's gradient: in the region of transient ones, or in memory of its own.
struct GradientPlace {
  int owner = Instruction::kNone;  // of memory of its own
  IndexRange bytes;
  bool meets(const GradientPlace& other) const { return owner == other.owner && bytes.meets(other.bytes); }
};
GradientPlace gradient_place(const StepProgram& program, const Instruction& compute);

// O(instructions).
StepWaits find_waits(const std::vector<StepProgram>& programs);

}  // namespace trident

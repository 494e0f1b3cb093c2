// What a rank's step consists of: its instructions, each pointing to a record of what such a pass computes and sends. Recorded by
// letting the rank do it, dry (train/dry_run.h); what a step costs on some machine is a price for each record, not for each call.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "core/work_kind.h"
#include "parallel/process_grid.h"
#include "train/run_plan.h"

namespace trident {

// Work between two points of a step. Equal work of many instructions is one record.
struct PassRecord {
  struct Operation {
    WorkKind kind{};
    std::string_view name;  // of the function of Ops, or of a fused product
    double flops = 0;       // of products; attention's as far as the mask leaves them
    double bytes = 0;       // that must move: every operand once, twice in place
    bool operator==(const Operation&) const = default;
  };
  std::vector<Operation> operations;      // in the order of the calls
  std::array<double, kNumAxes> bytes{};   // sent by this rank, by axis
  bool operator==(const PassRecord&) const = default;
};

struct StepRecord {
  std::vector<PassRecord> passes;    // no two are equal
  std::vector<std::size_t> pass_of;  // of each instruction of the rank's StepProgram: its number in `passes`
  PassRecord rest;                   // outside of instructions
};

// Of rank `rank` of plan.world_size(), in one training step. Reads no data, needs no memory of the arena's size.
StepRecord record_step(const RunPlan& plan, int rank);

}  // namespace trident

// A pipeline schedule as data: which rank runs which pass of which micro-batch, in which order.
//
// p ranks, v chunks (virtual stages) per rank, m micro-batches. Virtual stage s lives on rank s mod p as its chunk s div p; the
// model's layers run through the virtual stages in ascending order. A schedule says nothing about communication: what has to
// travel follows from the dependencies (message_order.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trident {

enum class ActionKind : std::uint8_t {
  kForward,         // F
  kBackward,        // B: input gradient, then weight gradient
  kBackwardInput,   // I: the first half of B
  kBackwardWeight,  // W: the second half of B
};

constexpr bool computes_input_gradient(ActionKind k) { return k == ActionKind::kBackward || k == ActionKind::kBackwardInput; }
constexpr bool computes_weight_gradient(ActionKind k) { return k == ActionKind::kBackward || k == ActionKind::kBackwardWeight; }

struct Action {
  ActionKind kind = ActionKind::kForward;
  int virtual_stage = 0;
  int micro_batch = 0;

  bool operator==(const Action&) const = default;
};

struct Schedule {
  int num_ranks = 1;          // p
  int num_chunks = 1;         // v
  int num_micro_batches = 1;  // m
  std::vector<std::vector<Action>> ranks;

  int num_virtual_stages() const { return num_ranks * num_chunks; }
  int rank_of(int virtual_stage) const { return virtual_stage % num_ranks; }
  int chunk_of(int virtual_stage) const { return virtual_stage / num_ranks; }
  bool forward_only() const;  // no action is a backward

  bool operator==(const Schedule&) const = default;
};

std::string to_string(const Action& action);  // "0F2": virtual stage 0, forward, micro-batch 2

}  // namespace trident

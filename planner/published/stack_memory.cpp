#include "planner/published/stack_memory.h"

#include <algorithm>
#include <cmath>

#include "core/at.h"
#include "pipeline/schedule/schedule_generators.h"
#include "pipeline/schedule/schedule_simulator.h"

namespace trident {

namespace {

bool plain_norms(const TrainingRow& row) { return row.gated && !row.fused_norm && !row.compiled; }

double score_bytes(const PricingInput& in) {
  const TrainingRow& row = in.row;
  const double tokens = tokens_of_micro_batch(row);
  const double heads = row.heads / row.tp;
  const ScoreKernels* kernels = find_score_kernels(row.attention);
  if (!kernels) return 4 * tokens * heads;  // a fused kernel keeps the statistics of the softmax, fp32
  return tokens * heads * row.sequence * kernels->saved_bytes;
}

// PyTorch's selective checkpointing as torchtitan sets it up (`mode = selective, option = op`): the block's input, attention's
// output and statistics, and the outputs of every second matrix product in the order of their calls: queries, values, the first of
// the feed-forward, and its last where it has two branches.
double per_operation_bytes(const PricingInput& in, double input) {
  const TrainingRow& row = in.row;
  const double kv = std::max(row.kv_width() / row.tp, row.head_dim());
  const double products = row.query_width() / row.tp + kv + row.ffn / row.tp;
  const double tokens = tokens_of_micro_batch(row);
  return input + 2 * tokens * (products + row.query_width() / row.tp) + (row.gated ? input : 0) + 4 * tokens * row.heads / row.tp;
}

// Bytes kept between the forward and the backward of a block by its mode of recomputation.
double kept_bytes(const PricingInput& in) {
  const TrainingRow& row = in.row;
  const double input = 2 * tokens_of_micro_batch(row) * row.hidden / (row.sequence_parallel ? row.tp : 1);
  if (row.recompute == Recompute::kFull) return input;
  const double all = block_activation_bytes(in);
  if (row.recompute == Recompute::kSelective) return find_score_kernels(row.attention) ? all - score_bytes(in) : all;
  if (row.recompute == Recompute::kPerOperation) return per_operation_bytes(in, input);
  return all;
}

double workspace_bytes(const PricingInput& in) {
  const TrainingRow& row = in.row;
  const double tokens = tokens_of_micro_batch(row);
  // Gradients of a feed-forward's output and inputs; scores and their gradients.
  double bytes = tokens * (row.gated ? 8 : 4) * row.ffn / row.tp + 4 * tokens * row.hidden;
  if (const ScoreKernels* kernels = find_score_kernels(row.attention))
    bytes = std::max(bytes, tokens * row.heads / row.tp * row.sequence * kernels->transient_bytes);
  return bytes + (block_activation_bytes(in) - kept_bytes(in));
}

// A block's forward allocates and gives back tensors that recomputation makes again, and scores on their way.
double forward_transient_bytes(const PricingInput& in) {
  const TrainingRow& row = in.row;
  const ScoreKernels* kernels = find_score_kernels(row.attention);
  const double scores = kernels ? tokens_of_micro_batch(row) * row.heads / row.tp * row.sequence * kernels->transient_bytes : 0;
  return block_activation_bytes(in) - kept_bytes(in) + scores;
}

// The loss's logits take at most so much where the program that the row names need not have the stack's own loss. A verdict is
// to be safe; the peak and the times stay those of the stack's own.
double dearest_logit_bytes(const PricingInput& in, double share) {
  const TrainingRow& row = in.row;
  if (!row.zero_by_number || in.stack.dearest_logit_bytes == 0) return 0;
  return tokens_of_micro_batch(row) * (row.vocab * share * in.stack.dearest_logit_bytes + 4 * row.hidden);
}

// Micro-batches in flight on a rank, for each virtual stage of it.
std::vector<double> in_flight(const PricingInput& in) {
  const TrainingRow& row = in.row;
  const int p = row.pp, parts = row.pp * row.vpp;
  std::vector<double> result(static_cast<std::size_t>(parts));
  if (is_v_shaped(row.schedule.order)) {
    // The order's limit does not depend on how long passes take.
    const int m = std::min(static_cast<int>(std::round(row.micro_batches)), 8 * p);
    const SimulatedSchedule made = make_simulated_schedule(row.schedule.order, p, row.vpp, m, PassTimes{1, 1, 1, 0});
    const InFlight flight = max_in_flight(made.placed.schedule);
    for (int i = 0; i < parts; ++i) at(result, i) = at(flight.per_rank, rank_of_stage(row, i)) / 2.0;
    return result;
  }
  if (row.vpp > 1) {
    const int m = std::min(static_cast<int>(std::round(row.micro_batches)), 4 * p);
    const InFlight flight = max_in_flight(make_interleaved(p, row.vpp, m));
    for (int i = 0; i < parts; ++i) at(result, i) = static_cast<double>(at(flight.per_rank, i % p)) / row.vpp;
    return result;
  }
  for (int i = 0; i < p; ++i) {
    double count = p - i;
    switch (row.schedule.order) {
      case SimulatedKind::kGpipe: count = row.micro_batches; break;
      case SimulatedKind::kZbH1:
      case SimulatedKind::kZb1p: count = p; break;  // on every rank: the limit that the search was given (Qi et al. 2023)
      case SimulatedKind::kZbH2:
      case SimulatedKind::kZb2p: count = 2 * p - 1; break;
      default: break;
    }
    count = (count + row.schedule.more_in_flight) * row.schedule.in_flight_factor;
    at(result, i) = std::min(count, std::round(row.micro_batches));
  }
  return result;
}

// An allocator that is short of memory gives blocks back that it keeps before it fails; the least that was ever reserved over the
// peak: 3 % (SimuMax rows, 3-9 %).
constexpr double kLeastSlack = 0.03;

}  // namespace

double block_activation_bytes(const PricingInput& in) {
  const TrainingRow& row = in.row;
  const double tokens = tokens_of_micro_batch(row);
  const double outer = tokens * row.hidden / (row.sequence_parallel ? row.tp : 1);
  double bytes = 8 * outer;  // inputs and outputs of both norms
  if (row.plain_block && in.stack.dropout) bytes += 2 * outer;
  if (plain_norms(row)) bytes += 2 * in.stack.saved_plain_norm_bytes * outer;
  const double kv = std::max(row.kv_width() / row.tp, row.head_dim());
  bytes += tokens * 2 * (2 * row.query_width() / row.tp + 2 * kv);
  bytes += tokens * row.ffn / row.tp * (row.gated ? in.stack.saved_gated_bytes : 4);
  if (in.stack.narrow_inputs && row.format != MathFormat::k16Bit) {
    // Both norms' outputs and the feed-forward's product in 8 bits; attention keeps its own output beside that of the projection.
    bytes -= 2 * outer + tokens * row.ffn / row.tp;
    bytes += tokens * row.query_width() / row.tp;
  }
  return bytes + score_bytes(in);
}

MemoryPrice price_memory(const PricingInput& in, const StageSplit& split) {
  const TrainingRow& row = in.row;
  const TrainingStack& s = in.stack;
  const double tokens = tokens_of_micro_batch(row);
  const int shards = row.dp * row.cp;
  const std::vector<double> flight = in_flight(in);
  const double kept = kept_bytes(in);
  const double light = row.full_share + row.offloaded_share;  // of the blocks, those that keep their inputs alone
  TrainingRow full = row;                                     // of the blocks that recompute in full beside others
  full.recompute = Recompute::kFull;
  const PricingInput full_in{full, in.gpu, in.stack, in.links};
  const double block = block_parameters(row) / row.tp, table = table_parameters(row) / row.tp;
  const double held = row.zero_by_number ? s.gradient_bytes_zero : row.bf16 ? s.gradient_bytes_bf16 : s.gradient_bytes_fp16;
  const bool sharded = row.zero == 3 || (row.zero == 2 && row.zero_by_number);

  MemoryPrice most;
  double fullest = 0, least = 0;
  bool fits = true;
  for (int rank = 0; rank < row.pp; ++rank) {
    MemoryPrice m;
    m.pipeline_rank = rank;
    double parameters = 0, blocks = 0;
    const bool first = rank == 0, last = rank == rank_of_stage(row, row.pp * row.vpp - 1);
    for (int i = 0; i < row.pp * row.vpp; ++i) {
      if (rank_of_stage(row, i) != rank) continue;
      const auto at = static_cast<std::size_t>(i);
      blocks += split.blocks[at];
      m.activations += split.blocks[at] * flight[at] * ((1 - light) * kept + light * kept_bytes(full_in));
    }
    parameters = blocks * block;
    const double share = split.vocabulary_divided ? 1.0 / row.pp : 1;
    if (first || split.vocabulary_divided) parameters += table * share + position_parameters(row);
    if ((last || split.vocabulary_divided) && !(row.tied && first && last)) parameters += table * share;
    if (first && row.plain_block && s.dropout) m.activations += flight[0] * tokens * row.hidden;
    if (last || split.vocabulary_divided) m.logits = tokens * row.vocab / row.tp * share * s.logit_bytes + 4 * tokens * row.hidden;
    m.workspace = light > 0 ? std::max(workspace_bytes(in), workspace_bytes(full_in)) : workspace_bytes(in);
    // Logits are gone when the blocks' backward begins; both peaks meet the same activations.
    // A caching allocator does not join what separate requests left: the forwards' segments, in which the kept tensors lie, have no
    // room for logits, which come after them. The backward's own tensors are cut from the logits' segments.
    const double dearest = m.logits > 0 ? std::max(m.logits, dearest_logit_bytes(in, share)) : 0;
    const double peak = std::max(m.logits, m.workspace), apart = std::max(forward_transient_bytes(in) + dearest, m.workspace);
    if (m.logits > m.workspace)
      m.workspace = 0;
    else
      m.logits = 0;
    m.parameters = parameters * (sharded ? 4.0 / shards : 2);
    m.optimizer = parameters * (sharded ? 8.0 : 12.0) / (row.zero > 0 ? shards : 1);
    m.gradients = parameters * (sharded ? 4.0 / shards : held);
    // Gathered weights of two blocks, of all where they stay from the forward to the backward, beside the gradients of one block;
    // embedding and head are gathered throughout. Where that is done once a step, all weights and their summed gradients.
    const double inner = row.zero == 3 ? 2 * block : blocks * block;
    if (sharded) m.gathered = 4 * block + 2 * (parameters - blocks * block + inner);
    if (sharded && !shards_in_each_micro_batch(in)) m.gathered = (2 + std::max(2.0, s.wire_bytes)) * parameters;
    m.peak_allocated = m.parameters + m.optimizer + m.gradients + m.gathered + m.activations + m.logits + m.workspace;
    const int groups = (row.tp > 1) + (row.pp > 1) + (row.dp > 1) + (row.cp > 1);
    const double reserved = m.peak_allocated + apart - peak;
    m.device = reserved * (1 + s.allocator_slack) + in.gpu.context_bytes + groups * in.gpu.communicator_bytes;
    m.least_device = m.device - reserved * std::max(0.0, s.allocator_slack - kLeastSlack);
    m.fits = m.least_device <= in.gpu.device_bytes;
    if (m.fits) m.device = std::min(m.device, in.gpu.device_bytes);  // the reserve is what is left
    fullest = std::max(fullest, m.device);
    least = std::max(least, m.least_device);
    fits = fits && m.fits;
    if (rank == 0 || m.peak_allocated > most.peak_allocated) most = m;
  }
  most.device = fullest;
  most.least_device = least;
  most.fits = fits;
  return most;
}

}  // namespace trident

#include "planner/published/block_cost.h"

#include <algorithm>
#include <cmath>

namespace trident {

double tokens_of_micro_batch(const TrainingRow& row) { return row.micro_batch * row.sequence / row.cp; }

GroupPlace tp_place(const TrainingRow& row) { return {row.tp, 1}; }
GroupPlace cp_place(const TrainingRow& row) { return {row.cp, row.tp}; }
GroupPlace dp_place(const TrainingRow& row) { return {row.dp * row.cp, row.tp}; }
GroupPlace pp_place(const TrainingRow& row) { return {row.pp, row.tp * row.cp * row.dp}; }

double block_parameters(const TrainingRow& row) {
  const double h = row.hidden;
  const double matrices = h * (2 * row.query_width() + 2 * row.kv_width()) + (row.gated ? 3 : 2) * h * row.ffn;
  const double norms = (row.plain_block ? 4 : 2) * h;
  const double biases = row.plain_block ? 2 * row.query_width() + 2 * row.kv_width() + row.ffn + h : 0;
  return matrices + norms + biases;
}

double table_parameters(const TrainingRow& row) { return row.vocab * row.hidden; }

double position_parameters(const TrainingRow& row) { return row.plain_block ? row.sequence * row.hidden : 0; }

namespace {

// The four linear layers of a block on one rank.
struct Linear {
  double in;
  double out;
};

struct Linears {
  Linear list[4];
};

Linears linears_of(const TrainingRow& row) {
  const double t = row.tp;
  // With fewer key-value heads than ranks each rank holds a copy of one.
  const double kv = std::max(row.kv_width() / t, row.head_dim());
  const double up = (row.gated ? 2 : 1) * row.ffn / t;
  return {{{row.hidden, row.query_width() / t + 2 * kv}, {row.query_width() / t, row.hidden}, {row.hidden, up},
           {row.ffn / t, row.hidden}}};
}

// The software of the row's year reaches this part of the library's rates.
double generation(const PricingInput& in) {
  return in.row.year > 0 && in.row.year <= in.gpu.gemm.early_year ? in.gpu.gemm.early_factor : 1;
}

double linear_forward(const PricingInput& in, const Linear& linear) {
  return gemm_seconds(in.gpu, tokens_of_micro_batch(in.row), linear.out, linear.in, 1, generation(in), in.row.format);
}

double linear_input_gradient(const PricingInput& in, const Linear& linear) {
  return gemm_seconds(in.gpu, tokens_of_micro_batch(in.row), linear.in, linear.out, 1, generation(in), in.row.format);
}

double linear_weight_gradient(const PricingInput& in, const Linear& linear) {
  return gemm_seconds(in.gpu, linear.out, linear.in, tokens_of_micro_batch(in.row), 1, generation(in), in.row.format) *
         in.gpu.gemm.wgrad_factor;
}

// The products of queries with keys and of scores with values, with what lies between. Context parallelism divides the queries.
double attention_seconds(const PricingInput& in, bool backward) {
  const TrainingRow& row = in.row;
  const double heads = row.heads / row.tp;
  const double queries = row.sequence / row.cp;
  const ScoreKernels* kernels = find_score_kernels(row.attention);
  if (!kernels) {
    const double products = 4 * row.micro_batch * heads * queries * row.sequence * row.head_dim();
    return fused_attention_seconds(in.gpu, row.attention, products, backward);
  }
  const double rate = in.gpu.gemm.batched * generation(in);
  const double batch = row.micro_batch * heads;
  const double scores = batch * queries * row.sequence;
  const double two = gemm_seconds(in.gpu, queries, row.sequence, row.head_dim(), batch, rate) +
                     gemm_seconds(in.gpu, queries, row.head_dim(), row.sequence, batch, rate);
  const double bytes = scores * (backward ? kernels->scores.backward : kernels->scores.forward);
  return (backward ? 2 : 1) * two + bytes / (in.gpu.memory_bytes_per_s * in.gpu.score_fraction) +
         kernels->kernels * (backward ? 1.5 : 1) * in.gpu.kernel_start_s;
}

// Row kernels of a block. Sequence parallelism divides the norms and the residual sums.
double row_kernel_seconds(const PricingInput& in, double RowTraffic::*pass) {
  const TrainingRow& row = in.row;
  const TrainingStack& s = in.stack;
  const double tokens = tokens_of_micro_batch(row);
  const bool plain = row.gated && !row.fused_norm && !row.compiled;
  const double outer = tokens * row.hidden / (row.sequence_parallel ? row.tp : 1);
  double bytes = outer * (2 * (plain ? s.plain_norm : s.norm).*pass + s.residual.*pass);
  const double qkv = tokens * (row.query_width() + 2 * row.kv_width()) / row.tp;
  bytes += qkv * s.copies.*pass;
  if (!row.plain_block) bytes += tokens * (row.query_width() + row.kv_width()) / row.tp * s.rope.*pass;
  bytes += tokens * row.ffn / row.tp * (row.gated ? s.gated : s.activation).*pass;
  return row_seconds(in.gpu, bytes, 8);
}

struct Recomputed {
  double compute = 0;
  double tp = 0;
  double kernels = 0;
};

// The tensor-parallel traffic of one pass over a block: two all-reduces, or gathers and scatters of the same volume; with context
// parallelism the keys and values of the other ranks, which run behind the attention of the own.
double tp_seconds(const PricingInput& in) {
  const double bytes = 2 * tokens_of_micro_batch(in.row) * in.row.hidden;
  const GroupPlace group = tp_place(in.row);
  // Between kernels of a busy device a collective is as slow as beside them.
  const double slow = in.gpu.network_slowdown;
  if (in.row.sequence_parallel) return slow * 4 * gather_seconds(in.links, group, bytes);
  return slow * 2 * all_reduce_seconds(in.links, group, bytes);
}

double cp_seconds(const PricingInput& in, bool backward) {
  const TrainingRow& row = in.row;
  if (row.cp <= 1) return 0;
  const double bytes = 2 * row.micro_batch * row.sequence * 2 * std::max(row.kv_width() / row.tp, row.head_dim());
  const double traffic = gather_seconds(in.links, cp_place(row), bytes) * (backward ? 2 : 1);
  const double work = attention_seconds(in, backward);
  return overlapped_seconds(work, traffic, in.gpu.compute_slowdown, in.gpu.network_slowdown) - work;
}

// Returns what `traffic` adds to GEMMs of `compute` seconds when a part of it, `hidden`, runs beside them.
double beside(const PricingInput& in, double compute, double traffic, double hidden) {
  const double alone = hidden * traffic / in.gpu.network_slowdown;
  return (1 - hidden) * traffic +
         overlapped_seconds(compute, alone, in.gpu.compute_slowdown, in.gpu.network_slowdown) - compute;
}

void add_launch(PassSeconds& pass, double host) {
  pass.launch = std::max(0.0, host - (pass.compute + pass.recompute + pass.tp));
}

}  // namespace

PartSeconds block_seconds(const PricingInput& in) {
  const TrainingRow& row = in.row;
  const TrainingStack& s = in.stack;
  PartSeconds part;
  double gemm_forward = 0, gemm_input = 0;
  for (const Linear& linear : linears_of(row).list) {
    gemm_forward += linear_forward(in, linear);
    gemm_input += linear_input_gradient(in, linear);
    part.weight_gradient += linear_weight_gradient(in, linear);
  }
  const double attention = attention_seconds(in, false);
  const double rows = row_kernel_seconds(in, &RowTraffic::forward);
  const double tp = tp_seconds(in);
  part.forward.compute = gemm_forward + attention + rows;
  part.forward.tp = beside(in, gemm_forward, tp, s.hidden_tp_forward) + cp_seconds(in, false);
  part.backward.compute =
      gemm_input + part.weight_gradient + attention_seconds(in, true) + row_kernel_seconds(in, &RowTraffic::backward);
  part.backward.tp = beside(in, part.weight_gradient, tp, s.hidden_tp_backward) + cp_seconds(in, true);

  const ScoreKernels* scores = find_score_kernels(row.attention);
  const bool plain = row.gated && !row.fused_norm && !row.compiled;
  const double fuse = row.compiled ? 0.5 : 1;  // a compiled graph issues about half of the kernels
  const double extra_forward = (scores ? scores->kernels : 2) + (plain ? 2 * s.plain_norm_kernels / 3 : 0);
  const double kernels_forward = fuse * (s.block_kernels_forward + extra_forward + (row.tp > 1 ? 4 : 0));
  const double kernels_backward = fuse * (s.block_kernels_backward + 2 * extra_forward + (row.tp > 1 ? 4 : 0));
  Recomputed again;
  if (row.recompute == Recompute::kFull) again = {part.forward.compute, part.forward.tp, kernels_forward};
  if (row.recompute == Recompute::kSelective) again = {attention, 0, scores ? scores->kernels : 2};
  if (row.recompute == Recompute::kPerOperation) again = {gemm_forward / 2 + rows, 0, kernels_forward - 2};
  part.backward.recompute = again.compute;
  part.backward.tp += again.tp;
  add_launch(part.forward, kernels_forward * s.issue_s);
  add_launch(part.backward, (kernels_backward + again.kernels) * s.issue_s);
  if (row.recompute == Recompute::kFull) part.backward.launch += s.checkpoint_s;
  return part;
}

PartSeconds embedding_seconds(const PricingInput& in) {
  const TrainingRow& row = in.row;
  PartSeconds part;
  const double bytes = tokens_of_micro_batch(row) * row.hidden * 2;
  part.forward.compute = row_seconds(in.gpu, 4 * bytes, 4);
  // The gradient is scattered into the table; the table's gradient is read and written by rows.
  part.backward.compute = row_seconds(in.gpu, 6 * bytes, 4);
  part.forward.tp = row.sequence_parallel ? gather_seconds(in.links, tp_place(row), bytes)
                                          : all_reduce_seconds(in.links, tp_place(row), bytes);
  part.backward.tp = row.sequence_parallel ? part.forward.tp : 0;
  add_launch(part.forward, 8 * in.stack.issue_s);
  add_launch(part.backward, 10 * in.stack.issue_s);
  return part;
}

PartSeconds head_seconds(const PricingInput& in) {
  const TrainingRow& row = in.row;
  const TrainingStack& s = in.stack;
  PartSeconds part;
  const double tokens = tokens_of_micro_batch(row);
  const double width = row.vocab / row.tp;
  const double logits = tokens * width;
  const double norm = tokens * row.hidden / (row.sequence_parallel ? row.tp : 1);
  part.forward.compute = gemm_seconds(in.gpu, tokens, width, row.hidden, 1, generation(in)) +
                         row_seconds(in.gpu, logits * s.logits.forward + norm * s.norm.forward, 12);
  part.weight_gradient = gemm_seconds(in.gpu, width, row.hidden, tokens, 1, generation(in)) * in.gpu.gemm.wgrad_factor;
  part.backward.compute = gemm_seconds(in.gpu, tokens, row.hidden, width, 1, generation(in)) + part.weight_gradient +
                          row_seconds(in.gpu, logits * s.logits.backward + norm * s.norm.backward, 8);
  const double bytes = tokens * row.hidden * 2;
  if (row.sequence_parallel) part.forward.tp = gather_seconds(in.links, tp_place(row), bytes);
  part.forward.tp += 3 * all_reduce_seconds(in.links, tp_place(row), 4 * tokens);
  part.backward.tp = row.sequence_parallel ? gather_seconds(in.links, tp_place(row), bytes)
                                           : all_reduce_seconds(in.links, tp_place(row), bytes);
  add_launch(part.forward, 25 * s.issue_s);
  add_launch(part.backward, 20 * s.issue_s);
  return part;
}

}  // namespace trident

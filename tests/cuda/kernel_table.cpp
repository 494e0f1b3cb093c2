#include "tests/cuda/kernel_table.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/int_math.h"
#include "device/cuda/kernels/kernels.h"
#include "tests/cuda/staged_operands.h"

namespace trident::testing {
namespace {

using I = std::int64_t;
namespace ck = cuda_kernels;

// Room for the partial sums of 16 rows at least, so that the number of rows decides how many there are.
I scratch_floats(I width) { return 32 * width + 64; }

I bytes_of(RowType t) { return t == RowType::kF32 ? 4 : 2; }

// An operation writes this, perhaps after reading it.
struct Written {
  void* data;
  I count, size;
};

// Runs both on the same operands: a kernel that finds numbers in memory, and the one that is given them.
template <class OfMemory, class Given>
void expect_same(const std::vector<Written>& outputs, OfMemory of_memory, Given given) {
  const auto copy = [&] {
    std::vector<std::vector<std::byte>> bytes;
    for (const Written& out : outputs) {
      const auto* const first = static_cast<const std::byte*>(out.data);
      bytes.emplace_back(first, first + out.count * out.size);
    }
    return bytes;
  };
  const auto before = copy();
  of_memory();
  const auto from_memory = copy();
  for (std::size_t i = 0; i < outputs.size(); ++i) std::ranges::copy(before[i], static_cast<std::byte*>(outputs[i].data));
  given();
  EXPECT_EQ(from_memory, copy()) << "the numbers lie elsewhere, and that is all";
}

template <Placement placement>
struct Table {
  static void split_heads(RowType t, void* heads, const void* rows, I batch, I num_heads, I sequence, I head_dim, I columns,
                          I first_column) {
    StagedOperands s(placement);
    ck::split_heads(s.stream(), t, s.out(t, heads, batch * num_heads * sequence * head_dim),
                    s.in(t, rows, sequence * batch * columns), batch, num_heads, sequence, head_dim, columns, first_column);
  }
  static void merge_heads(RowType t, void* rows, const void* heads, I batch, I num_heads, I sequence, I head_dim, I columns,
                          I first_column) {
    StagedOperands s(placement);
    ck::merge_heads(s.stream(), t, s.out(t, rows, sequence * batch * columns),
                    s.in(t, heads, batch * num_heads * sequence * head_dim), batch, num_heads, sequence, head_dim, columns,
                    first_column);
  }
  static I rows_of_tables(const std::int32_t* position, I tokens) {
    I positions = 0;
    for (I i = 0; i < tokens; ++i) positions = std::max(positions, I{position[i]} + 1);
    return positions;
  }
  static void split_rotated_heads(RowType t, void* heads, const void* rows, I batch, I num_heads, I sequence, I head_dim, I columns,
                                  I first_column, const float* cos, const float* sin, const std::int32_t* position, I half) {
    StagedOperands s(placement);
    const I tables = rows_of_tables(position, batch * sequence) * half;
    ck::split_rotated_heads(s.stream(), t, s.out(t, heads, batch * num_heads * sequence * head_dim),
                            s.in(t, rows, sequence * batch * columns), batch, num_heads, sequence, head_dim, columns, first_column,
                            s.in(cos, tables), s.in(sin, tables), s.in(position, batch * sequence), half);
  }
  static void merge_rotated_heads(RowType t, void* rows, const void* heads, I batch, I num_heads, I sequence, I head_dim, I columns,
                                  I first_column, const float* cos, const float* sin, const std::int32_t* position, I half) {
    StagedOperands s(placement);
    const I tables = rows_of_tables(position, batch * sequence) * half;
    ck::merge_rotated_heads(s.stream(), t, s.out(t, rows, sequence * batch * columns),
                            s.in(t, heads, batch * num_heads * sequence * head_dim), batch, num_heads, sequence, head_dim, columns,
                            first_column, s.in(cos, tables), s.in(sin, tables), s.in(position, batch * sequence), half);
  }
  static void rope(RowType t, void* x, const float* cos, const float* sin, const std::int32_t* position, I batch, I num_heads,
                   I sequence, I head_dim, I half, Transpose inverse) {
    StagedOperands s(placement);
    const I positions = rows_of_tables(position, batch * sequence);
    ck::rope(s.stream(), t, s.out(t, x, batch * num_heads * sequence * head_dim), s.in(cos, positions * half),
             s.in(sin, positions * half), s.in(position, batch * sequence), batch, num_heads, sequence, head_dim, half, inverse);
  }
  static void rms_norm_forward(RowType t, void* y, float* rstd, const void* x, const void* weight, I rows, I width, float eps) {
    StagedOperands s(placement);
    ck::rms_norm_forward(s.stream(), t, s.out(t, y, rows * width), s.out(rstd, rows), s.in(t, x, rows * width),
                         s.in(t, weight, width), rows, width, eps);
  }
  static void rms_norm_backward(RowType t, void* d_x, float* d_weight, const void* d_y, const void* x, const void* weight,
                                const float* rstd, I rows, I width, Accumulate accumulate_x, Accumulate accumulate_weight) {
    StagedOperands s(placement);
    ck::rms_norm_backward(s.stream(), t, s.out(t, d_x, rows * width), s.out(d_weight, width), s.in(t, d_y, rows * width),
                          s.in(t, x, rows * width), s.in(t, weight, width), s.in(rstd, rows), rows, width, accumulate_x,
                          accumulate_weight, {s.scratch(scratch_floats(width)), scratch_floats(width)});
  }
  static void layer_norm_forward(RowType t, void* y, float* mean, float* rstd, const void* x, const void* weight, const void* bias,
                                 I rows, I width, float eps) {
    StagedOperands s(placement);
    ck::layer_norm_forward(s.stream(), t, s.out(t, y, rows * width), s.out(mean, rows), s.out(rstd, rows), s.in(t, x, rows * width),
                           s.in(t, weight, width), s.in(t, bias, width), rows, width, eps);
  }
  static void residual_rms_norm(RowType t, void* y, float* rstd, void* x, const void* summed_bias, const void* residual,
                                const void* weight, I rows, I width, float eps) {
    StagedOperands s(placement);
    ck::residual_rms_norm(s.stream(), t, s.out(t, y, rows * width), s.out(rstd, rows), s.out(t, x, rows * width),
                          summed_bias == nullptr ? nullptr : s.in(t, summed_bias, width), s.in(t, residual, rows * width),
                          s.in(t, weight, width), rows, width, eps);
  }
  static void residual_layer_norm(RowType t, void* y, float* mean, float* rstd, void* x, const void* summed_bias,
                                  const void* residual, const void* weight, const void* bias, I rows, I width, float eps) {
    StagedOperands s(placement);
    ck::residual_layer_norm(s.stream(), t, s.out(t, y, rows * width), s.out(mean, rows), s.out(rstd, rows),
                            s.out(t, x, rows * width), summed_bias == nullptr ? nullptr : s.in(t, summed_bias, width),
                            s.in(t, residual, rows * width), s.in(t, weight, width), s.in(t, bias, width), rows, width, eps);
  }
  static void gelu_forward(RowType t, void* out, const void* x, I count) {
    StagedOperands s(placement);
    ck::gelu_forward(s.stream(), t, s.out(t, out, count), s.in(t, x, count), count);
  }
  static void bias_gelu(RowType t, void* out, void* x, const void* bias, I rows, I width) {
    StagedOperands s(placement);
    ck::bias_gelu(s.stream(), t, s.out(t, out, rows * width), s.out(t, x, rows * width), s.in(t, bias, width), rows, width);
  }
  static void embedding_backward(RowType t, float* d_table, const void* d_out, const std::int32_t* tokens, I rows, I width,
                                 I first_row, I table_rows) {
    StagedOperands s(placement);
    ck::embedding_backward(s.stream(), t, s.out(d_table, table_rows * width), s.in(t, d_out, rows * width), s.in(tokens, rows),
                           rows, width, first_row, table_rows);
  }
  static void cross_entropy_stats(RowType t, float* row_max, float* sum_exp, float* target_logit, const void* logits,
                                  const std::int32_t* targets, I rows, const VocabularyShard& shard) {
    StagedOperands s(placement);
    ck::cross_entropy_stats(s.stream(), t, s.out(row_max, rows), s.out(sum_exp, rows), s.out(target_logit, rows),
                            s.in(t, logits, rows * shard.columns), s.in(targets, rows), rows, shard);
  }
  static void cross_entropy_backward(RowType t, void* logits, const float* row_max, const float* sum_exp,
                                     const std::int32_t* targets, I rows, const VocabularyShard& shard, float scale,
                                     const float* weights) {
    const auto weights_in = [&](StagedOperands& s) { return weights == nullptr ? nullptr : s.in(weights, rows); };
    const auto of_memory = [&] {
      StagedOperands s(placement);
      ck::cross_entropy_backward_from_memory(s.stream(), t, s.out(t, logits, rows * shard.columns), s.in(row_max, rows),
                                             s.in(sum_exp, rows), s.in(targets, rows), rows, shard, s.in(&scale, 1),
                                             weights_in(s));
    };
    expect_same({{logits, rows * shard.columns, bytes_of(t)}}, of_memory, [&] {
      StagedOperands s(placement);
      ck::cross_entropy_backward(s.stream(), t, s.out(t, logits, rows * shard.columns), s.in(row_max, rows), s.in(sum_exp, rows),
                                 s.in(targets, rows), rows, shard, scale, weights_in(s));
    });
  }
  static void cross_entropy_gradient(RowType t, void* logits, float* sum_exp, float* target_logit, const std::int32_t* targets,
                                     I rows, const VocabularyShard& shard, float scale,
                                     const float* weights) {
    const auto weights_in = [&](StagedOperands& s) { return weights == nullptr ? nullptr : s.in(weights, rows); };
    const auto of_memory = [&] {
      StagedOperands s(placement);
      ck::cross_entropy_gradient_from_memory(s.stream(), t, s.out(t, logits, rows * shard.columns), s.out(sum_exp, rows),
                                             s.out(target_logit, rows), s.in(targets, rows), rows, shard, s.in(&scale, 1),
                                             weights_in(s));
    };
    expect_same({{logits, rows * shard.columns, bytes_of(t)}}, of_memory, [&] {
      StagedOperands s(placement);
      ck::cross_entropy_gradient(s.stream(), t, s.out(t, logits, rows * shard.columns), s.out(sum_exp, rows),
                                 s.out(target_logit, rows), s.in(targets, rows), rows, shard, scale, weights_in(s));
    });
  }
  static void add_bias(RowType t, void* x, const void* bias, I rows, I width) {
    StagedOperands s(placement);
    ck::add_bias(s.stream(), t, s.out(t, x, rows * width), s.in(t, bias, width), rows, width);
  }
  static void add_bias_residual(RowType t, void* x, const void* bias, const void* residual, I rows, I width) {
    StagedOperands s(placement);
    ck::add_bias_residual(s.stream(), t, s.out(t, x, rows * width), s.in(t, bias, width), s.in(t, residual, rows * width), rows,
                          width);
  }
  static void add(RowType t, void* out, const void* a, const void* b, I count) {
    StagedOperands s(placement);
    ck::add(s.stream(), t, s.out(t, out, count), s.in(t, a, count), s.in(t, b, count), count);
  }
  static void accumulate(float* out, const float* x, I count) {
    StagedOperands s(placement);
    ck::accumulate(s.stream(), s.out(out, count), s.in(x, count), count);
  }
  static void dropout(RowType t, void* out, const void* x, const std::int64_t* samples, I sequence, I batch, I width,
                      const DropoutSpec& spec) {
    const I count = sequence * batch * width;
    const auto of_memory = [&] {
      StagedOperands s(placement);
      DropoutSpec others = spec;  // what is drawn lies in memory
      others.key[0] = ~spec.key[0];
      const ck::DropoutDraw draw{{spec.key[0], spec.key[1]}, s.in(samples, batch)};
      ck::dropout_from_memory(s.stream(), t, s.out(t, out, count), s.in(t, x, count), sequence, batch, width, others,
                              s.in(&draw, 1));
    };
    expect_same({{out, count, bytes_of(t)}}, of_memory, [&] {
      StagedOperands s(placement);
      ck::dropout(s.stream(), t, s.out(t, out, count), s.in(t, x, count), s.in(samples, batch), sequence, batch, width, spec);
    });
  }
  static void convert(RowType out_type, void* out, RowType in_type, const void* x, I count) {
    if (out_type == in_type) {
      if (count > 0) std::memcpy(out, x, static_cast<std::size_t>(count) * (in_type == RowType::kF32 ? 4 : 2));
      return;
    }
    StagedOperands s(placement);
    ck::convert(s.stream(), out_type, s.out(out_type, out, count), in_type, s.in(in_type, x, count), count);
  }
  static void sum_squares(double* out, const float* x, I count) {
    StagedOperands s(placement);
    ck::sum_squares(s.stream(), s.out(out, ceil_div(count, I{64})), s.in(x, count), count);
  }
  // With the numbers as an argument and from memory: the same.
  static void update(UpdateRule rule, RowType t, void* param, float* master, const UpdateStates& states, const float* grad,
                     I count, const UpdateNumbers& numbers, const RoundedElements* at_random) {
    const int kept = num_states(rule);
    const auto run = [&](bool held) {
      StagedOperands s(placement);
      const UpdateNumbers* const there = held ? s.in(&numbers, 1) : nullptr;
      void* const p = s.out(t, param, count);
      float* const w = s.out(master, count);
      UpdateStates staged;
      for (int k = 0; k < kept; ++k) staged.of[k] = s.out(states.of[k], count);
      const float* const g = s.in(grad, count);
      if (held)
        ck::update_from_memory(s.stream(), rule, t, p, w, staged, g, count, there, at_random);
      else
        ck::update(s.stream(), rule, t, p, w, staged, g, count, numbers, at_random);
    };
    std::vector<Written> changed{{param, count, bytes_of(t)}, {master, count, 4}};
    for (int k = 0; k < kept; ++k) changed.push_back({states.of[k], count, 4});
    expect_same(
        changed, [&] { run(true); }, [&] { run(false); });
  }

  static RowKernels make() {
    RowKernels k{};
    k.split_heads = split_heads;
    k.merge_heads = merge_heads;
    k.split_rotated_heads = split_rotated_heads;
    k.merge_rotated_heads = merge_rotated_heads;
    k.rope = rope;
    k.rms_norm_forward = rms_norm_forward;
    k.rms_norm_backward = rms_norm_backward;
    k.layer_norm_forward = layer_norm_forward;
    k.residual_rms_norm = residual_rms_norm;
    k.residual_layer_norm = residual_layer_norm;
    k.gelu_forward = gelu_forward;
    k.bias_gelu = bias_gelu;
    k.embedding_backward = embedding_backward;
    k.cross_entropy_stats = cross_entropy_stats;
    k.cross_entropy_backward = cross_entropy_backward;
    k.cross_entropy_gradient = cross_entropy_gradient;
    k.add_bias = add_bias;
    k.add_bias_residual = add_bias_residual;
    k.add = add;
    k.accumulate = accumulate;
    k.dropout = dropout;
    k.convert = convert;
    k.sum_squares = sum_squares;
    k.update = update;
    return k;
  }
};

}  // namespace

const RowKernels& cuda_kernel_table(Placement placement) {
  static const RowKernels aligned = Table<Placement::kAligned>::make(), misaligned = Table<Placement::kMisaligned>::make();
  return placement == Placement::kAligned ? aligned : misaligned;
}

double cuda_cross_entropy_loss(Placement placement, float* row_losses, const float* sum_exp, const float* target_logit,
                               const std::int32_t* targets, std::int64_t rows, const float* weights) {
  double loss = -1;
  {
    StagedOperands s(placement);
    ck::cross_entropy_loss(s.stream(), s.out(&loss, 1), row_losses == nullptr ? nullptr : s.out(row_losses, rows),
                           s.in(sum_exp, rows), s.in(target_logit, rows), s.in(targets, rows), rows,
                           weights == nullptr ? nullptr : s.in(weights, rows));
  }
  return loss;
}

}  // namespace trident::testing

// The kernels of the CUDA device: the row operations of device/operations.h on raw device pointers, enqueued on `stream`.
//
// Names, operands and rules are those of device/row_kernels/row_kernels.h: "T" pointers are void* to elements of the RowType, sizes
// are elements, any size works (norms need width >= 1), arithmetic is f32 rounded to T once per result. No alignment is required;
// rows that begin at multiples of 16 bytes are moved 16 bytes at a time. A row's result depends on that row, its width and that
// alignment alone.
//
// Against the host's kernels: what is made of + - * / and square roots alone has the same bits (update, add, accumulate, convert,
// rope, embedding, dropout, sum_squares). Sums over a row or over rows are taken in another order, fixed by the shape alone; exp is
// within one unit in the last place. Floats are never added atomically: the same call gives the same bits.
//
// The device of `stream` must be the calling thread's current one. Errors of a launch are thrown (device/cuda/kernels/launch.h).
#pragma once

#include <cstdint>

#include "device/op_flags.h"
#include "device/row_kernels/row_kernels.h"

struct CUstream_st;

namespace trident::cuda_kernels {

using Stream = CUstream_st*;
using I = std::int64_t;

// Device memory for sums over rows, aligned to 16 bytes; calls that share it must follow one another. More is faster, up to
// kScratchFloats; the number of partial sums, and so the last bits of a result, depends on the size.
struct Scratch {
  float* data = nullptr;
  I floats = 0;  // at least 2 * width
};
constexpr I kScratchFloats = I{4} << 20;

// The number of blocks of a launch; InternalError beyond what CUDA can count.
unsigned grid_size(I blocks);

// The row kernels with the operands of RowKernels behind `stream`, and scratch memory behind those of sums over rows.
template <class Function>
struct BehindStream;
template <class... Args>
struct BehindStream<void (*)(Args...)> {
  using Call = void(Stream stream, Args...);
  using CallWithScratch = void(Stream stream, Args..., Scratch scratch);
};
#define TRIDENT_BEHIND_STREAM(name) BehindStream<decltype(RowKernels::name)>::Call name;
#define TRIDENT_BEFORE_SCRATCH(name) BehindStream<decltype(RowKernels::name)>::CallWithScratch name;
TRIDENT_PLAIN_ROW_KERNELS(TRIDENT_BEHIND_STREAM)
TRIDENT_SCRATCH_ROW_KERNELS(TRIDENT_BEFORE_SCRATCH)
#undef TRIDENT_BEHIND_STREAM
#undef TRIDENT_BEFORE_SCRATCH

// ---- cross-entropy
// Rows f32: no element type.
void cross_entropy_rescale(Stream stream, float* sum_exp, float* target_logit, const float* shard_max, const float* row_max,
                           const std::int32_t* targets, I rows, const VocabularyShard& shard);
// row_losses and everywhere weights: or nullptr.
void cross_entropy_loss(Stream stream, double* loss, float* row_losses, const float* sum_exp, const float* target_logit,
                        const std::int32_t* targets, I rows, const float* weights);
void cross_entropy_backward(Stream stream, RowType t, void* logits, const float* row_max, const float* sum_exp,
                            const std::int32_t* targets, I rows, const VocabularyShard& shard, float scale, const float* weights);
// The same with the scale in device memory, read when the kernel runs.
void cross_entropy_backward_from_memory(Stream stream, RowType t, void* logits, const float* row_max, const float* sum_exp,
                                        const std::int32_t* targets, I rows, const VocabularyShard& shard, const float* scale,
                                        const float* weights);
void cross_entropy_gradient(Stream stream, RowType t, void* logits, float* sum_exp, float* target_logit,
                            const std::int32_t* targets, I rows, const VocabularyShard& shard, float scale, const float* weights);
void cross_entropy_gradient_from_memory(Stream stream, RowType t, void* logits, float* sum_exp, float* target_logit,
                                        const std::int32_t* targets, I rows, const VocabularyShard& shard, const float* scale,
                                        const float* weights);

// ---- elementwise, copies, reductions
// samples [batch] lie on the device.
void dropout(Stream stream, RowType t, void* out, const void* x, const std::int64_t* samples, I sequence, I batch, I width,
             const DropoutSpec& spec);
// These numbers are drawn anew in every step, for every micro-batch.
struct DropoutDraw {
  std::uint32_t key[2] = {0, 0};
  const std::int64_t* samples = nullptr;
};
// The same with `draw`, in device memory, in the place of spec's own key; read when the kernel runs.
void dropout_from_memory(Stream stream, RowType t, void* out, const void* x, I sequence, I batch, I width, const DropoutSpec& spec,
                         const DropoutDraw* draw);
// Between f32 and bf16 or f16.
void convert(Stream stream, RowType out_type, void* out, RowType in_type, const void* x, I count);
// limbs [ExactSum::kLimbs] += x, as op::AddExact.
void add_exact(Stream stream, std::int64_t* limbs, const double* x, I count);

// ---- optimizer
// As RowKernels::update. Whole vectors of parameters that are rounded at random need numbers of elements that are multiples of 4,
// too.
void update(Stream stream, UpdateRule rule, RowType t, void* param, float* master, const UpdateStates& states,
            const float* grad, I count, const UpdateNumbers& numbers, const RoundedElements* at_random);
// The same with the numbers in device memory, read when the kernel runs.
void update_from_memory(Stream stream, UpdateRule rule, RowType t, void* param, float* master, const UpdateStates& states,
                        const float* grad, I count, const UpdateNumbers* numbers, const RoundedElements* at_random);

// ---- collectives of ranks that share a device
enum class SumType : std::uint8_t { kF32, kBF16, kF16, kF64, kI32, kI64 };
enum class SumOperation : std::uint8_t { kSum, kMax };
constexpr int kMaxSources = 64;
// out[i] = sources[0][i] (op) sources[1][i] (op) ..., in that order; bf16 and f16 are summed in f32 and rounded once. `out` may be one of
// the sources. `sources`: host array of 1 to kMaxSources device pointers, read before the call returns.
void rank_order_sum(Stream stream, SumType type, void* out, const void* const* sources, int num_sources, I count,
                    SumOperation operation);

}  // namespace trident::cuda_kernels

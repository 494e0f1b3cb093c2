#include <cstdint>

#include "device/cuda/kernels/dispatch.cuh"

namespace trident::cuda_kernels {

namespace {

constexpr int kVocabularyThreads = 512;

// Columns of the shard that are not padding.
I valid_columns(const VocabularyShard& shard) {
  const I valid = shard.vocabulary - shard.first_column;
  return valid < 0 ? 0 : valid < shard.columns ? valid : shard.columns;
}

// The target's column in the shard, or -1: held elsewhere or not counted.
__device__ __forceinline__ I target_column(std::int32_t target, I first_column, I valid) {
  const I column = target - first_column;
  return target >= 0 && column >= 0 && column < valid ? column : -1;
}

// A row is one tile: the second reading finds it in the cache that all blocks share.
template <class T, int n>
__global__ void __launch_bounds__(kVocabularyThreads, 2)
    cross_entropy_stats_kernel(float* row_max, float* sum_exp, float* target_logit, const T* logits, const std::int32_t* targets,
                               I columns, I first_column, I valid, float softcap) {
  const Team<n, BlockGroup, 0> team;
  const T* const row = logits + I{blockIdx.x} * columns;
  const auto s = RowBodies<n>::logit_statistics(team, row, valid, softcap, valid);
  const I target = target_column(targets[blockIdx.x], first_column, valid);
  const float relative = RowBodies<n>::relative_logit(team, row, target, s.largest, softcap);
  if (!team.leads()) return;
  row_max[blockIdx.x] = s.largest;
  sum_exp[blockIdx.x] = s.sum_exp;
  target_logit[blockIdx.x] = relative;
}

// The scale of a block's row; an absent weight leaves it alone.
template <class Scale>
__device__ __forceinline__ float row_scale(Scale scale, const float* weights) {
  return weights == nullptr ? value_of(scale) : value_of(scale) * weights[blockIdx.x];
}

// Scale: a float, or where one lies.
template <class T, class Scale, int n>
__global__ void __launch_bounds__(kVocabularyThreads, 2)
    cross_entropy_backward_kernel(T* logits, const float* row_max, const float* sum_exp, const std::int32_t* targets, I columns,
                                  I first_column, I valid, Scale scale, const float* weights, float softcap) {
  const Team<n, BlockGroup, 0> team;
  T* const row = logits + I{blockIdx.x} * columns;
  const std::int32_t target = targets[blockIdx.x];
  const I used = target < 0 ? 0 : valid;
  if (used > 0)
    RowBodies<n>::cross_entropy_backward_row(team, row, row_max[blockIdx.x], sum_exp[blockIdx.x],
                                             target_column(target, first_column, valid), valid,
                                             row_scale(scale, weights), softcap);
  for (I i = used + team.rank(); i < columns; i += team.size()) from_float(row[i], 0.0f);
}

// Makes the gradient of logits of a whole vocabulary, with its statistics.
template <class T, class Scale, int n>
__global__ void __launch_bounds__(kVocabularyThreads, 2)
    cross_entropy_gradient_kernel(T* logits, float* sum_exp, float* target_logit, const std::int32_t* targets, I columns, I valid,
                                  Scale scale, const float* weights, float softcap) {
  const Team<n, BlockGroup, 0> team;
  T* const row = logits + I{blockIdx.x} * columns;
  const std::int32_t target = targets[blockIdx.x];
  const I used = target < 0 ? 0 : valid, column = target_column(target, 0, valid);
  const auto s = RowBodies<n>::logit_statistics(team, row, valid, softcap, valid);
  const float relative = RowBodies<n>::relative_logit(team, row, column, s.largest, softcap);
  if (team.leads()) {
    sum_exp[blockIdx.x] = s.sum_exp;
    target_logit[blockIdx.x] = relative;
  }
  if (used > 0)
    RowBodies<n>::cross_entropy_backward_row(team, row, s.largest, s.sum_exp, column, valid, row_scale(scale, weights), softcap);
  else
    team.barrier();
  for (I i = used + team.rank(); i < columns; i += team.size()) from_float(row[i], 0.0f);
}

__global__ void __launch_bounds__(kVocabularyThreads)
    cross_entropy_rescale_kernel(float* sum_exp, float* target_logit, const float* shard_max, const float* row_max,
                                 const std::int32_t* targets, I rows, I first_column, I valid) {
  const I r = I{blockIdx.x} * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  // In f64: the difference's rounding would be an error of the whole sum.
  const double below = double{shard_max[r]} - double{row_max[r]};
  sum_exp[r] = static_cast<float>(double{sum_exp[r]} * exp(below));
  if (target_column(targets[r], first_column, valid) >= 0) target_logit[r] = static_cast<float>(double{target_logit[r]} + below);
  else if (targets[r] >= first_column + valid && below == 0) target_logit[r] -= __FLT_MIN__;
}

// Added in row order: the threads form the terms, one of them adds.
__global__ void __launch_bounds__(1024)
    cross_entropy_loss_kernel(double* loss, float* row_losses, const float* sum_exp, const float* target_logit,
                              const std::int32_t* targets, I rows, const float* weights) {
  __shared__ double terms[1024];
  double sum = 0;
  for (I first = 0; first < rows; first += blockDim.x) {
    const I r = first + threadIdx.x;
    // Rows that do not count add nothing: x + 0.0 is x.
    terms[threadIdx.x] = r < rows && targets[r] >= 0 ? log(double{sum_exp[r]}) - double{target_logit[r]} : 0.0;
    if (row_losses != nullptr && r < rows) row_losses[r] = static_cast<float>(terms[threadIdx.x]);
    if (weights != nullptr && r < rows && targets[r] >= 0) terms[threadIdx.x] *= double{weights[r]};
    __syncthreads();
    if (threadIdx.x == 0) {
      const int count = static_cast<int>(min(I{blockDim.x}, rows - first));
      for (int k = 0; k < count; ++k) sum += terms[k];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) *loss = sum;
}

unsigned vocabulary_threads(I columns, int n) { return threads_for(divide_up(columns, n), kVocabularyThreads); }

template <class Scale>
void form_gradient(Stream stream, RowType t, void* logits, const float* row_max, const float* sum_exp, const std::int32_t* targets,
                   I rows, const VocabularyShard& shard, const Scale& scale, const float* weights) {
  with_instance(t, {logits}, shard.columns * bytes_of(t), [&]<class T>(T* type, auto n) {
    launch("cross_entropy_backward", listed<cross_entropy_backward_kernel<T, Scale, n>>(),
           {.blocks = {grid_size(rows)}, .threads = {vocabulary_threads(shard.columns, n)}}, stream, as(logits, type), row_max,
           sum_exp, targets, shard.columns, shard.first_column, valid_columns(shard), scale, weights, shard.softcap);
  });
}

template <class Scale>
void form_whole_gradient(Stream stream, RowType t, void* logits, float* sum_exp, float* target_logit, const std::int32_t* targets,
                         I rows, const VocabularyShard& shard, const Scale& scale, const float* weights) {
  with_instance(t, {logits}, shard.columns * bytes_of(t), [&]<class T>(T* type, auto n) {
    launch("cross_entropy_gradient", listed<cross_entropy_gradient_kernel<T, Scale, n>>(),
           {.blocks = {grid_size(rows)}, .threads = {vocabulary_threads(shard.columns, n)}}, stream, as(logits, type), sum_exp,
           target_logit, targets, shard.columns, valid_columns(shard), scale, weights, shard.softcap);
  });
}

}  // namespace

void cross_entropy_stats(Stream stream, RowType t, float* row_max, float* sum_exp, float* target_logit, const void* logits,
                         const std::int32_t* targets, I rows, const VocabularyShard& shard) {
  with_instance(t, {logits}, shard.columns * bytes_of(t), [&]<class T>(T* type, auto n) {
    launch("cross_entropy_stats", listed<cross_entropy_stats_kernel<T, n>>(),
           {.blocks = {grid_size(rows)}, .threads = {vocabulary_threads(shard.columns, n)}}, stream, row_max, sum_exp,
           target_logit, as(logits, type), targets, shard.columns, shard.first_column, valid_columns(shard), shard.softcap);
  });
}

void cross_entropy_rescale(Stream stream, float* sum_exp, float* target_logit, const float* shard_max, const float* row_max,
                           const std::int32_t* targets, I rows, const VocabularyShard& shard) {
  const unsigned threads = threads_for(rows, kVocabularyThreads);
  launch("cross_entropy_rescale", listed<cross_entropy_rescale_kernel>(), {.blocks = {grid_size(divide_up(rows, threads))}, .threads = {threads}},
         stream, sum_exp, target_logit, shard_max, row_max, targets, rows, shard.first_column, valid_columns(shard));
}

void cross_entropy_loss(Stream stream, double* loss, float* row_losses, const float* sum_exp, const float* target_logit,
                        const std::int32_t* targets, I rows, const float* weights) {
  launch("cross_entropy_loss", listed<cross_entropy_loss_kernel>(), {.blocks = {1}, .threads = {threads_for(rows, 1024)}}, stream, loss,
         row_losses, sum_exp, target_logit, targets, rows, weights);
}

void cross_entropy_backward(Stream stream, RowType t, void* logits, const float* row_max, const float* sum_exp,
                            const std::int32_t* targets, I rows, const VocabularyShard& shard, float scale,
                            const float* weights) {
  form_gradient(stream, t, logits, row_max, sum_exp, targets, rows, shard, scale, weights);
}

void cross_entropy_backward_from_memory(Stream stream, RowType t, void* logits, const float* row_max, const float* sum_exp,
                                        const std::int32_t* targets, I rows, const VocabularyShard& shard, const float* scale,
                                        const float* weights) {
  form_gradient(stream, t, logits, row_max, sum_exp, targets, rows, shard, scale, weights);
}

void cross_entropy_gradient(Stream stream, RowType t, void* logits, float* sum_exp, float* target_logit,
                            const std::int32_t* targets, I rows, const VocabularyShard& shard, float scale,
                            const float* weights) {
  form_whole_gradient(stream, t, logits, sum_exp, target_logit, targets, rows, shard, scale, weights);
}

void cross_entropy_gradient_from_memory(Stream stream, RowType t, void* logits, float* sum_exp, float* target_logit,
                                        const std::int32_t* targets, I rows, const VocabularyShard& shard, const float* scale,
                                        const float* weights) {
  form_whole_gradient(stream, t, logits, sum_exp, target_logit, targets, rows, shard, scale, weights);
}

}  // namespace trident::cuda_kernels

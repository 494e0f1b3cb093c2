#include "device/cuda/kernels/norm_rows.cuh"

namespace trident::cuda_kernels {

namespace {

constexpr int kPieces = 4;  // bf16 rows of up to 8192 elements

template <class Rows, class T>
__global__ void __launch_bounds__(kMaxThreads, 4)
    rms_norm_forward_kernel(T* y, float* rstd, const T* x, const T* weight, I rows, I width, float eps) {
  const I r = group_number<typename Rows::Group>();
  if (r >= rows) return;
  const typename Rows::RowTeam team;
  const auto row = Rows::row(team, x + r * width, width);
  Rows::Bodies::rms_norm_row(team, y + r * width, rstd + r, row, weight, width, eps);
}

template <class Rows, class T>
__global__ void __launch_bounds__(kMaxThreads, 4)
    layer_norm_forward_kernel(T* y, float* mean, float* rstd, const T* x, const T* weight, const T* bias, I rows, I width,
                              float eps) {
  const I r = group_number<typename Rows::Group>();
  if (r >= rows) return;
  const typename Rows::RowTeam team;
  const auto row = Rows::row(team, x + r * width, width);
  Rows::Bodies::layer_norm_row(team, y + r * width, mean + r, rstd + r, row, weight, bias, width, eps);
}

}  // namespace

void rms_norm_forward(Stream stream, RowType t, void* y, float* rstd, const void* x, const void* weight, I rows, I width,
                      float eps) {
  with_type(t, [&](auto* type) {
    with_norm_rows<kPieces, kMaxThreads>(
        type, are_aligned({y, x, weight}, width * bytes_of(t)), width, [&](auto instance, unsigned threads, int per_block) {
          launch("rms_norm_forward", listed<rms_norm_forward_kernel<decltype(instance), std::remove_pointer_t<decltype(type)>>>(),
                 {.blocks = {grid_size(divide_up(rows, per_block))}, .threads = {threads}}, stream, as(y, type), rstd, as(x, type),
                 as(weight, type), rows, width, eps);
        });
  });
}

void layer_norm_forward(Stream stream, RowType t, void* y, float* mean, float* rstd, const void* x, const void* weight,
                        const void* bias, I rows, I width, float eps) {
  with_type(t, [&](auto* type) {
    with_norm_rows<kPieces, kMaxThreads>(
        type, are_aligned({y, x, weight, bias}, width * bytes_of(t)), width, [&](auto instance, unsigned threads, int per_block) {
          launch("layer_norm_forward", listed<layer_norm_forward_kernel<decltype(instance), std::remove_pointer_t<decltype(type)>>>(),
                 {.blocks = {grid_size(divide_up(rows, per_block))}, .threads = {threads}}, stream, as(y, type), mean, rstd,
                 as(x, type), as(weight, type), as(bias, type), rows, width, eps);
        });
  });
}

}  // namespace trident::cuda_kernels

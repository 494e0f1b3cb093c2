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

// Each thread completes the elements that it then reads.
template <class Rows, class T>
__global__ void __launch_bounds__(kMaxThreads, 4)
    residual_rms_norm_kernel(T* y, float* rstd, T* x, const T* summed_bias, const T* residual, const T* weight, I rows, I width,
                             float eps) {
  const I r = group_number<typename Rows::Group>();
  if (r >= rows) return;
  const typename Rows::RowTeam team;
  Rows::Bodies::add_residual_row(team, x + r * width, summed_bias, residual + r * width, width);
  const auto row = Rows::row(team, x + r * width, width);
  Rows::Bodies::rms_norm_row(team, y + r * width, rstd + r, row, weight, width, eps);
}

template <class Rows, class T>
__global__ void __launch_bounds__(kMaxThreads, 4)
    residual_layer_norm_kernel(T* y, float* mean, float* rstd, T* x, const T* summed_bias, const T* residual, const T* weight,
                               const T* bias, I rows, I width, float eps) {
  const I r = group_number<typename Rows::Group>();
  if (r >= rows) return;
  const typename Rows::RowTeam team;
  Rows::Bodies::add_residual_row(team, x + r * width, summed_bias, residual + r * width, width);
  const auto row = Rows::row(team, x + r * width, width);
  Rows::Bodies::layer_norm_row(team, y + r * width, mean + r, rstd + r, row, weight, bias, width, eps);
}

// Elements are read once: rows need not be kept.
template <class Rows, class T>
__global__ void __launch_bounds__(kMaxThreads, 4) rms_norm_squares_kernel(float* squares, const T* x, I rows, I width) {
  const I r = group_number<typename Rows::Group>();
  if (r >= rows) return;
  const typename Rows::RowTeam team;
  const float sum = Rows::Bodies::rms_norm_squares_of(team, x + r * width, width);
  if (team.leads()) squares[r] = sum;
}

template <class Rows, class T>
__global__ void __launch_bounds__(kMaxThreads, 4)
    rms_norm_dots_kernel(float* dots, const T* d_y, const T* x, const T* weight, I rows, I width) {
  const I r = group_number<typename Rows::Group>();
  if (r >= rows) return;
  const typename Rows::RowTeam team;
  const float sum = Rows::Bodies::rms_norm_dots_of(team, d_y + r * width, x + r * width, weight, width);
  if (team.leads()) dots[r] = sum;
}

template <class Rows, class T>
__global__ void __launch_bounds__(kMaxThreads, 4) rms_norm_apply_kernel(T* y, float* rstd, const T* x, const T* weight,
                                                                        const float* squares, I rows, I width, I total, float eps) {
  const I r = group_number<typename Rows::Group>();
  if (r >= rows) return;
  const typename Rows::RowTeam team;
  Rows::Bodies::rms_norm_apply_row(team, y + r * width, rstd + r, x + r * width, weight, squares[r], width, total, eps);
}

// f(rows as a group of threads reads them, null pointer of the element type, a launch of a group per row).
template <class F>
void with_rows(RowType t, std::initializer_list<const void*> operands, I rows, I width, F&& f) {
  with_type(t, [&](auto* type) {
    with_norm_rows<kPieces, kMaxThreads>(
        type, are_aligned(operands, width * bytes_of(t)), width, [&](auto instance, unsigned threads, int per_block) {
          f(instance, type, LaunchShape{.blocks = {grid_size(divide_up(rows, per_block))}, .threads = {threads}});
        });
  });
}

}  // namespace

void rms_norm_squares(Stream stream, RowType t, float* squares, const void* x, I rows, I width) {
  with_rows(t, {x}, rows, width, [&]<class Rows, class T>(Rows, T* type, const LaunchShape& shape) {
    launch("rms_norm_squares", listed<rms_norm_squares_kernel<Rows, T>>(), shape, stream, squares, as(x, type), rows, width);
  });
}

void rms_norm_dots(Stream stream, RowType t, float* dots, const void* d_y, const void* x, const void* weight, I rows, I width) {
  with_rows(t, {d_y, x, weight}, rows, width, [&]<class Rows, class T>(Rows, T* type, const LaunchShape& shape) {
    launch("rms_norm_dots", listed<rms_norm_dots_kernel<Rows, T>>(), shape, stream, dots, as(d_y, type), as(x, type),
           as(weight, type), rows, width);
  });
}

void rms_norm_apply(Stream stream, RowType t, void* y, float* rstd, const void* x, const void* weight, const float* squares, I rows,
                    I width, I total, float eps) {
  with_rows(t, {y, x, weight}, rows, width, [&]<class Rows, class T>(Rows, T* type, const LaunchShape& shape) {
    launch("rms_norm_apply", listed<rms_norm_apply_kernel<Rows, T>>(), shape, stream, as(y, type), rstd, as(x, type),
           as(weight, type), squares, rows, width, total, eps);
  });
}

void rms_norm_forward(Stream stream, RowType t, void* y, float* rstd, const void* x, const void* weight, I rows, I width,
                      float eps) {
  with_rows(t, {y, x, weight}, rows, width, [&]<class Rows, class T>(Rows, T* type, const LaunchShape& shape) {
    launch("rms_norm_forward", listed<rms_norm_forward_kernel<Rows, T>>(), shape, stream, as(y, type), rstd, as(x, type),
           as(weight, type), rows, width, eps);
  });
}

void layer_norm_forward(Stream stream, RowType t, void* y, float* mean, float* rstd, const void* x, const void* weight,
                        const void* bias, I rows, I width, float eps) {
  with_rows(t, {y, x, weight, bias}, rows, width, [&]<class Rows, class T>(Rows, T* type, const LaunchShape& shape) {
    launch("layer_norm_forward", listed<layer_norm_forward_kernel<Rows, T>>(), shape, stream, as(y, type), mean, rstd, as(x, type),
           as(weight, type), as(bias, type), rows, width, eps);
  });
}

void residual_rms_norm(Stream stream, RowType t, void* y, float* rstd, void* x, const void* summed_bias, const void* residual,
                       const void* weight, I rows, I width, float eps) {
  with_rows(t, {y, x, summed_bias, residual, weight}, rows, width, [&]<class Rows, class T>(Rows, T* type, const LaunchShape& shape) {
    launch("residual_rms_norm", listed<residual_rms_norm_kernel<Rows, T>>(), shape, stream, as(y, type), rstd, as(x, type),
           as(summed_bias, type), as(residual, type), as(weight, type), rows, width, eps);
  });
}

void residual_layer_norm(Stream stream, RowType t, void* y, float* mean, float* rstd, void* x, const void* summed_bias,
                         const void* residual, const void* weight, const void* bias, I rows, I width, float eps) {
  with_rows(t, {y, x, summed_bias, residual, weight, bias}, rows, width,
            [&]<class Rows, class T>(Rows, T* type, const LaunchShape& shape) {
              launch("residual_layer_norm", listed<residual_layer_norm_kernel<Rows, T>>(), shape, stream, as(y, type), mean, rstd,
                     as(x, type), as(summed_bias, type), as(residual, type), as(weight, type), as(bias, type), rows, width, eps);
            });
}

}  // namespace trident::cuda_kernels

#include "device/cuda/kernels/flat.cuh"

namespace trident::cuda_kernels {

namespace {

template <class T, int n>
__global__ void __launch_bounds__(kMaxThreads, 4) add_kernel(I count, I of_each, T* out, const T* a, const T* b) {
  const Stretch s = stretch_of_block(count, of_each);
  RowBodies<n>::add_row(FlatTeam<n>{}, out + s.first, a + s.first, b + s.first, s.count);
}

template <int n>
__global__ void __launch_bounds__(kMaxThreads, 4) accumulate_kernel(I count, I of_each, float* out, const float* x) {
  const Stretch s = stretch_of_block(count, of_each);
  RowBodies<n>::accumulate_row(FlatTeam<n>{}, out + s.first, x + s.first, s.count);
}

template <class To, class From, int n>
__global__ void __launch_bounds__(kMaxThreads, 4) convert_kernel(I count, I of_each, To* out, const From* x) {
  const Stretch s = stretch_of_block(count, of_each);
  RowBodies<n>::convert_row(FlatTeam<n>{}, out + s.first, x + s.first, s.count);
}

template <class T, int n>
__global__ void __launch_bounds__(kMaxThreads, 4) add_bias_kernel(unsigned tiles, I tile_width, I width, T* x, const T* bias) {
  const RowTile t = tile_of_block(tiles, tile_width, width);
  T* const row = x + t.row * width + t.first;
  RowBodies<n>::add_row(FlatTeam<n>{}, row, row, bias + t.first, t.count);
}

template <class T, int n>
__global__ void __launch_bounds__(kMaxThreads, 4)
    add_bias_residual_kernel(unsigned tiles, I tile_width, I width, T* x, const T* bias, const T* residual) {
  const RowTile t = tile_of_block(tiles, tile_width, width);
  const I at = t.row * width + t.first;
  RowBodies<n>::add_residual_row(FlatTeam<n>{}, x + at, bias + t.first, residual + at, t.count);
}

template <class T, int n>
__global__ void __launch_bounds__(kMaxThreads, 4)
    scale_columns_kernel(unsigned tiles, I tile_width, I width, T* out, const T* x, const float* factor, float shift,
                         Accumulate accumulate) {
  const RowTile t = tile_of_block(tiles, tile_width, width);
  const I at = t.row * width + t.first;
  RowBodies<n>::scale_row(FlatTeam<n>{}, out + at, x + at, factor + t.first, shift, t.count, accumulate);
}

template <class To, class From>
void launch_convert(Stream stream, To* out, const From* x, I count) {
  with_lanes<Bf16>(are_aligned({out, x}, 0),
                   [&](auto n) { launch_flat("convert", listed<convert_kernel<To, From, n>>(), n, count, stream, out, x); });
}

}  // namespace

void add(Stream stream, RowType t, void* out, const void* a, const void* b, I count) {
  with_instance(t, {out, a, b}, 0, [&]<class T>(T* type, auto n) {
    launch_flat("add", listed<add_kernel<T, n>>(), n, count, stream, as(out, type), as(a, type), as(b, type));
  });
}

void accumulate(Stream stream, float* out, const float* x, I count) {
  with_lanes<float>(are_aligned({out, x}, 0),
                    [&](auto n) { launch_flat("accumulate", listed<accumulate_kernel<n>>(), n, count, stream, out, x); });
}

void convert(Stream stream, RowType out_type, void* out, RowType in_type, const void* x, I count) {
  with_type(in_type == RowType::kF32 ? out_type : in_type, [&](auto* half) {
    if constexpr (!std::is_same_v<decltype(half), float*>) {
      if (out_type == RowType::kF32)
        launch_convert(stream, static_cast<float*>(out), as(x, half), count);
      else
        launch_convert(stream, as(out, half), static_cast<const float*>(x), count);
    }
  });
}

void add_bias(Stream stream, RowType t, void* x, const void* bias, I rows, I width) {
  with_instance(t, {x, bias}, width * bytes_of(t), [&]<class T>(T* type, auto n) {
    launch_tiles("add_bias", listed<add_bias_kernel<T, n>>(), n, kFlatVectors, rows, width, stream, as(x, type), as(bias, type));
  });
}

void add_bias_residual(Stream stream, RowType t, void* x, const void* bias, const void* residual, I rows, I width) {
  with_instance(t, {x, bias, residual}, width * bytes_of(t), [&]<class T>(T* type, auto n) {
    launch_tiles("add_bias_residual", listed<add_bias_residual_kernel<T, n>>(), n, kFlatVectors, rows, width, stream, as(x, type),
                 as(bias, type), as(residual, type));
  });
}

void scale_columns(Stream stream, RowType t, void* out, const void* x, const float* factor, float shift, I rows, I width,
                   Accumulate accumulate) {
  with_instance(t, {out, x, factor}, width * bytes_of(t), [&]<class T>(T* type, auto n) {
    launch_tiles("scale_columns", listed<scale_columns_kernel<T, n>>(), n, kFlatVectors, rows, width, stream, as(out, type),
                 as(x, type), factor, shift, accumulate);
  });
}

}  // namespace trident::cuda_kernels

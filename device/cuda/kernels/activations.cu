#include "device/cuda/kernels/flat.cuh"

namespace trident::cuda_kernels {

namespace {

template <class T, int n>
__global__ void __launch_bounds__(kMaxThreads, 4)
    swiglu_forward_kernel(unsigned tiles, I tile_width, I width, T* out, const T* gate_up) {
  const RowTile t = tile_of_block(tiles, tile_width, width);
  const T* const gate = gate_up + t.row * 2 * width + t.first;
  RowBodies<n>::swiglu_row(FlatTeam<n>{}, out + t.row * width + t.first, gate, gate + width, t.count);
}

// Three blocks: the 64 registers that four leave a thread are too few for 8 lanes of six operands on sm_80.
template <class T, int n>
__global__ void __launch_bounds__(kMaxThreads, 3)
    swiglu_backward_kernel(unsigned tiles, I tile_width, I width, T* d_gate_up, T* d_out, const T* gate_up) {
  const RowTile t = tile_of_block(tiles, tile_width, width);
  const I at = t.row * 2 * width + t.first;
  RowBodies<n>::swiglu_backward_row(FlatTeam<n>{}, d_gate_up + at, d_gate_up + at + width, d_out + t.row * width + t.first,
                                    gate_up + at, gate_up + at + width, t.count);
}

template <class T, int n>
__global__ void __launch_bounds__(kMaxThreads, 4) gelu_forward_kernel(I count, I of_each, T* out, const T* x) {
  const Stretch s = stretch_of_block(count, of_each);
  RowBodies<n>::gelu_row(FlatTeam<n>{}, out + s.first, x + s.first, s.count);
}

template <class T, int n>
__global__ void __launch_bounds__(kMaxThreads, 4)
    bias_gelu_kernel(unsigned tiles, I tile_width, I width, T* out, T* x, const T* bias) {
  const RowTile t = tile_of_block(tiles, tile_width, width);
  const I at = t.row * width + t.first;
  RowBodies<n>::bias_gelu_row(FlatTeam<n>{}, out + at, x + at, bias + t.first, t.count);
}

template <class T, int n>
__global__ void __launch_bounds__(kMaxThreads, 4) gelu_backward_kernel(I count, I of_each, T* d_x, T* d_out, const T* x) {
  const Stretch s = stretch_of_block(count, of_each);
  RowBodies<n>::gelu_backward_row(FlatTeam<n>{}, d_x + s.first, d_out + s.first, x + s.first, s.count);
}

template <class T, int n>
__global__ void __launch_bounds__(kMaxThreads, 4) clip_forward_kernel(I count, I of_each, T* out, const T* x, float limit) {
  const Stretch s = stretch_of_block(count, of_each);
  RowBodies<n>::clip_row(FlatTeam<n>{}, out + s.first, x + s.first, s.count, limit);
}

template <class T, int n>
__global__ void __launch_bounds__(kMaxThreads, 4)
    clip_backward_kernel(I count, I of_each, T* d_x, const T* d_out, const T* x, float limit) {
  const Stretch s = stretch_of_block(count, of_each);
  RowBodies<n>::clip_backward_row(FlatTeam<n>{}, d_x + s.first, d_out + s.first, x + s.first, s.count, limit);
}

}  // namespace

void swiglu_forward(Stream stream, RowType t, void* out, const void* gate_up, I rows, I width) {
  with_instance(t, {out, gate_up}, width * bytes_of(t), [&]<class T>(T* type, auto n) {
    launch_tiles("swiglu_forward", listed<swiglu_forward_kernel<T, n>>(), n, 1, rows, width, stream, as(out, type),
                 as(gate_up, type));
  });
}

void swiglu_backward(Stream stream, RowType t, void* d_gate_up, void* d_out, const void* gate_up, I rows, I width) {
  with_instance(t, {d_gate_up, d_out, gate_up}, width * bytes_of(t), [&]<class T>(T* type, auto n) {
    launch_tiles("swiglu_backward", listed<swiglu_backward_kernel<T, n>>(), n, 1, rows, width, stream, as(d_gate_up, type),
                 as(d_out, type), as(gate_up, type));
  });
}

void gelu_forward(Stream stream, RowType t, void* out, const void* x, I count) {
  with_instance(t, {out, x}, 0, [&]<class T>(T* type, auto n) {
    launch_flat("gelu_forward", listed<gelu_forward_kernel<T, n>>(), n, count, stream, as(out, type), as(x, type));
  });
}

void bias_gelu(Stream stream, RowType t, void* out, void* x, const void* bias, I rows, I width) {
  with_instance(t, {out, x, bias}, width * bytes_of(t), [&]<class T>(T* type, auto n) {
    launch_tiles("bias_gelu", listed<bias_gelu_kernel<T, n>>(), n, kFlatVectors, rows, width, stream, as(out, type), as(x, type),
                 as(bias, type));
  });
}

void gelu_backward(Stream stream, RowType t, void* d_x, void* d_out, const void* x, I count) {
  with_instance(t, {d_x, d_out, x}, 0, [&]<class T>(T* type, auto n) {
    launch_flat("gelu_backward", listed<gelu_backward_kernel<T, n>>(), n, count, stream, as(d_x, type), as(d_out, type),
                as(x, type));
  });
}

void clip_forward(Stream stream, RowType t, void* out, const void* x, I count, float limit) {
  with_instance(t, {out, x}, 0, [&]<class T>(T* type, auto n) {
    launch_flat("clip_forward", listed<clip_forward_kernel<T, n>>(), n, count, stream, as(out, type), as(x, type), limit);
  });
}

void clip_backward(Stream stream, RowType t, void* d_x, const void* d_out, const void* x, I count, float limit) {
  with_instance(t, {d_x, d_out, x}, 0, [&]<class T>(T* type, auto n) {
    launch_flat("clip_backward", listed<clip_backward_kernel<T, n>>(), n, count, stream, as(d_x, type), as(d_out, type),
                as(x, type), limit);
  });
}

}  // namespace trident::cuda_kernels

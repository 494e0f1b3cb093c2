// Kernels on elements without rows: every block takes one stretch, every thread a few vectors of it.
#pragma once

#include "device/cuda/kernels/dispatch.cuh"

namespace trident::cuda_kernels {

constexpr int kFlatVectors = 4;  // of a thread

// The part of `count` elements that a block works on.
struct Stretch {
  I first, count;
};
__device__ __forceinline__ Stretch stretch_of_block(I count, I of_each) {
  const I first = I{blockIdx.x} * of_each;
  return {first, min(of_each, count - first)};
}
template <int n>
using FlatTeam = Team<n, BlockGroup, 0>;

// launch_flat("name", kernel, n, count, stream, args...): kernel(count, elements of a stretch, args...).
template <class... Params, class... Args>
void launch_flat(const char* name, void (*kernel)(I, I, Params...), int n, I count, Stream stream, const Args&... args) {
  const Tiling t = tile_row(count, n, kFlatVectors);
  launch(name, kernel, {.blocks = {t.tiles}, .threads = {t.threads}}, stream, count, t.width, args...);
}

// The tile of a row that a block works on, for kernels on rows of any width.
struct RowTile {
  I row, first, count;
};
__device__ __forceinline__ RowTile tile_of_block(unsigned tiles, I tile_width, I width) {
  const I row = blockIdx.x / tiles, first = I{blockIdx.x % tiles} * tile_width;
  return {row, first, min(tile_width, width - first)};
}

// launch_tiles("name", kernel, n, vectors of a thread, rows, width, stream, args...): kernel(tiles of a row, their width, width,
// args...).
template <class... Params, class... Args>
void launch_tiles(const char* name, void (*kernel)(unsigned, I, I, Params...), int n, int vectors, I rows, I width, Stream stream,
                  const Args&... args) {
  const Tiling t = tile_row(width, n, vectors);
  launch(name, kernel, {.blocks = {grid_size(rows * t.tiles)}, .threads = {t.threads}}, stream, t.tiles, t.width, width, args...);
}

}  // namespace trident::cuda_kernels

// Tiles of a matrix product in registers, and the panels that they read: one table per instruction set, compiled from
// product_tiles.inl. Files compiled for one instruction set include nothing of std that has code.
//
// A word has 32 bits: a float, or two bf16 that lie beside one another in the sum. A panel holds, word by word of the sum, `rows`
// rows of the first operand, or `columns` columns of the second. The first operand may also be read where it lies, if it lies in
// words. Operands are f32, bf16 or f16 by RowType, and widened on the way into a panel of floats. Every result is one chain of
// multiply-adds over the words in order, wherever in a tile it lies.
#pragma once

#include <cstdint>

#include "device/row_kernels/row_kernels.h"

namespace trident {

// Lines of an operand: rows of the first or columns of the second. Element i of line l lies at x + l * stride + i or, by_depth, at
// x + i * stride + l.
struct PanelLines {
  RowType type = RowType::kF32;
  const void* x = nullptr;
  std::int64_t stride = 0;
  bool by_depth = false;
  std::int64_t lines = 0, depth = 0;
};

// rows x columns of a matrix; null for none.
struct TilePlace {
  RowType type = RowType::kF32;
  void* data = nullptr;
  std::int64_t stride = 0;
};

// Word i of row r of a is a[r * a_row + i * a_word]; b is a panel.
struct TileFactors {
  const float *a = nullptr, *b = nullptr;
  std::int64_t a_row = 0, a_word = 0, words = 0;
};

struct ProductTile {
  TileFactors product, second;         // both sums are one chain; `second` may have no words
  std::int64_t rows = 0, columns = 0;  // of the tile, as far as there are
  float scale = 1.0f;
  TilePlace add, to;  // to = scale * (product + second) + add
  // Two rows of words, which a tile after this one multiplies: they come from far away meanwhile.
  const float* ahead = nullptr;
  std::int64_t ahead_row = 0;
};

struct ProductTiles {
  std::int64_t rows, columns;  // of a whole tile
  std::int64_t pack;           // elements in a word
  // Lines into panels of `panel` lines and `panel_words` words, one after the other, of which the first words are filled; missing
  // lines and elements of the last word are 0.
  void (*fill)(const PanelLines& from, float* to, std::int64_t panel, std::int64_t panel_words);
  void (*multiply)(const ProductTile& tile);
};

// The tiles for `level`, which the processor must support. `pairs`: words are pairs of bf16, by AVX512-BF16.
ProductTiles product_tiles(IsaLevel level, bool pairs);

// One source file each (product_tiles_<level>.cpp), compiled for that instruction set.
ProductTiles product_tiles_baseline();
ProductTiles product_tiles_avx2();
ProductTiles product_tiles_avx512();
ProductTiles product_tiles_avx512_bf16();

}  // namespace trident

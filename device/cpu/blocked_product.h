// Matrix products by tiles of product_tiles.h: operands are packed per call into panels in the workspace, by all threads, and
// multiplied by all of them, in pieces whose sizes depend on the shape alone.
//
// A result's sum is cut into equal parts where it is long, and its order depends on k and the instruction set alone: not on m, n,
// the place of the result, or the number of threads.
#pragma once

#include <cstdint>

#include "device/cpu/product_tiles.h"
#include "device/op_values.h"

namespace trident {

// Returns the floats that multiply_blocked() needs; at most 13 MB.
std::int64_t blocked_workspace_floats(const ProductTiles& tiles, const MatmulShape& shape);

// Summands are added to a product before it is rounded: a matrix like out, and inner [m, rank] times outer [rank, n], which is
// stored as b's [k, n] is. Either may be missing.
struct ProductSummands {
  const void *matrix = nullptr, *inner = nullptr, *outer = nullptr;
  std::int64_t rank = 0;
};
// Returns whether sums wait between parts of k in a buffer of f32, because results are of 16 bits.
bool keeps_sums_apart(const ProductTiles& tiles, const MatmulShape& shape);
// Returns whether tiles add products of this rank: they read rows of `inner` where they lie.
bool adds_rank(const ProductTiles& tiles, const MatmulShape& shape, std::int64_t rank);
// Returns the floats that they need beside blocked_workspace_floats().
std::int64_t rank_workspace_floats(const ProductTiles& tiles, const MatmulShape& shape, std::int64_t rank);

// out (+)= op(a) op(b), dense and row-major; no extent is 0. A matrix to add takes the place of what out holds.
void multiply_blocked(const ProductTiles& tiles, const MatmulShape& shape, void* out, const void* a, const void* b,
                      float* workspace, const ProductSummands& summands = {});

}  // namespace trident

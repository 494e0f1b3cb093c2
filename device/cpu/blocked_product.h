// Matrix products by tiles of product_tiles.h: operands are packed per call into panels in the workspace, by all threads, and
// multiplied by all of them, in pieces whose sizes depend on the shape alone.
//
// A result's sum is cut at multiples of kDepthWords words, and its order depends on k and the instruction set alone: not on m, n,
// the place of the result, or the number of threads.
#pragma once

#include <cstdint>

#include "device/cpu/product_tiles.h"
#include "device/op_values.h"

namespace trident {

// Floats that multiply_blocked() needs; at most 13 MB.
std::int64_t blocked_workspace_floats(const ProductTiles& tiles, const MatmulShape& shape);
// out (+)= op(a) op(b), dense and row-major; no extent is 0.
void multiply_blocked(const ProductTiles& tiles, const MatmulShape& shape, void* out, const void* a, const void* b,
                      float* workspace);

}  // namespace trident

// The row kernels on the compute threads of a rank: the table of one instruction set, every kernel of which runs in ranges of rows
// or elements on the team (team.h) where the work is worth waking it.
//
// A result has the same bits for every size of the team. It has those of the plain kernel, too, but for sums over more than
// 2 * kRowsOfASum rows in norms' backward passes and sum_rows: these are formed in blocks of rows and added in the blocks' order.
#pragma once

#include <cstdint>

#include "device/row_kernels/row_kernels.h"

namespace trident {

// No block of rows whose sums are formed apart has fewer.
inline constexpr std::int64_t kRowsOfASum = 64;

// The processor must have `level`.
const RowKernels& team_kernels(IsaLevel level);

}  // namespace trident

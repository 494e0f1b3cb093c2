#include "parallel/cuda/staged_cut.h"

#include <algorithm>
#include <cstdint>

#include "core/check.h"
#include "core/int_math.h"

namespace trident {

StagedCut cut_for_staging(const CollectiveCall& call, int ranks, std::int64_t slot_bytes) {
  StagedCut cut;
  const bool sliced = call.operation == CommOperation::kReduceScatter || call.operation == CommOperation::kAllGather ||
                      call.operation == CommOperation::kAllToAll;
  if (sliced) cut.slices = ranks;
  // The smaller operand of an all_gather is one slice, otherwise the larger is what is passed in.
  cut.slice = call.operation == CommOperation::kAllGather ? call.in.num_elements() : call.in.num_elements() / cut.slices;
  if (cut.slice == 0) return cut;
  const std::int64_t element = size_of(call.in.dtype());
  const std::int64_t held = (call.operation == CommOperation::kAllToAll ? 2 : 1) * cut.slices * element;
  cut.step = slot_bytes / held;
  const std::int64_t line = 64 / element;
  if (cut.step > line) cut.step -= cut.step % line;
  TRIDENT_CHECK(cut.step > 0, "{} ranks do not fit into {} bytes of staging", ranks, slot_bytes);
  cut.step = std::min(cut.step, cut.slice);
  cut.chunks = ceil_div(cut.slice, cut.step);
  return cut;
}

}  // namespace trident

// The answer to a row that describes a training run: its step time and its memory, by part.
#pragma once

#include "plan/case_row.h"
#include "plan/price_book.h"

namespace trident {

// Members of the answer: step_time_s, tokens_per_s_per_gpu, time_parts_s, peak_allocated_bytes, peak_memory_bytes (the same),
// device_bytes, fits, memory_parts, assumed. Throws UnsupportedCase with the reason.
JsonValue::Object answer_run(const CaseRow& row, const PriceBook& book);

}  // namespace trident

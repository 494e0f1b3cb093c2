// The answer to a row that describes a training run: its step time and its memory, by part.
#pragma once

#include "planner/published/case_row.h"
#include "planner/published/published_book.h"

namespace trident {

// Members of the answer: step_time_s, tokens_per_s_per_gpu, time_parts_s, peak_allocated_bytes, device_bytes, peak_memory_bytes
// (the one of the two that tables of the row's stack print), least_device_bytes and capacity_bytes (what fits compares), fits,
// memory_parts, pipeline_rank, assumed (what the row does not say; {}: nothing was filled), and not_read (what it says and no price
// depends on). Throws UnsupportedCase with the reason.
JsonValue::Object answer_run(const CaseRow& row, const PublishedBook& book);

}  // namespace trident

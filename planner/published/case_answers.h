// Answers to rows of tables of cases, `trident plan --cases`.
#pragma once

#include "planner/price/price_book.h"
#include "planner/published/case_row.h"

namespace trident {

// One object: `id` and the quantities of the row's kind, under the names that docs/planner.md lists; `assumed` with every value
// that the row leaves open and the answer needs ({}: none); or `id` and `unsupported`, the reason. Rows of training runs are priced
// by `book`.
JsonValue answer_case(const CaseRow& row, const PriceBook& book = {});

}  // namespace trident

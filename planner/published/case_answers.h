// Answers to rows of tables of cases, which trident_cases prints.
#pragma once

#include "planner/published/case_row.h"
#include "planner/published/published_book.h"

namespace trident {

// Returns one object: `id`, the quantities of the row's kind under the names that docs/design/cases.md lists, and `assumed` with
// every value that the row leaves open and the answer needs ({}: none); or `id` and `unsupported`, the reason. `book` prices rows
// of training runs.
JsonValue answer_case(const CaseRow& row, const PublishedBook& book = {});

}  // namespace trident

// The page of `trident plan search --html`: the layouts that were found, what each step's time goes to, and what was not found.
#pragma once

#include "planner/search/search_run.h"
#include "report/report_page.h"

namespace trident {

ReportPage page_of(const SearchResult& result);

}  // namespace trident

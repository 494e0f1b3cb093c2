// A search's result, in words, as JSON and as a page.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/json_reader.h"
#include "planner/search/search_run.h"
#include "report/report_page.h"

namespace trident {

// But for one line of text and for "timing", which say what the search took, the same whenever the same is searched. The text is a
// table of the layouts, and the details of the one with this rank in it, from 1.
std::string to_text(const SearchResult& result, int rank = 1, std::size_t columns = std::string::npos);
JsonValue to_json(const SearchResult& result);
// The layouts that were found, what each step's time goes to, and what was not found.
ReportPage page_of(const SearchResult& result);

// "--set 'parallel=6DP x 64PP x 8TP' --set ...", as a shell takes it: what the configuration does not say already.
std::string settings_text(const FoundLayout& found);

// A unit in which an amount has three digits that count, or more.
struct AmountUnit {
  double size = 1;
  std::string_view name;
  int decimals = 0;
  std::string number(std::int64_t amount) const;  // "0.32"
  std::string text(std::int64_t amount) const;    // "0.32 GB"
};
AmountUnit byte_unit(std::int64_t bytes);  // of GB, MB, KB, bytes: powers of ten

}  // namespace trident

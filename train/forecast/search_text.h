// What a search found, in words and as JSON.
#pragma once

#include <string>

#include "core/json_reader.h"
#include "train/forecast/search_run.h"

namespace trident {

std::string to_text(const SearchResult& result);
JsonValue to_json(const SearchResult& result);

}  // namespace trident

// The refusal of a search to which no layout is left: by a value of --set first, then by the batch. Pure.
#pragma once

#include <string>
#include <vector>

#include "core/json_reader.h"
#include "planner/search/search_run.h"

namespace trident {

SearchSpace space_of(const SearchRequest& request, int gpus);

// "8" of "parallel.tensor" in a configuration.
std::string value_at(const JsonValue& config, const std::string& key);

// Throws ConfigError for a request to which no layout is left on any of these numbers of ranks: a held value that none has, with
// those that layouts have; held values that none has together; else why each was rejected.
[[noreturn]] void refuse_batch(const SearchRequest& request, const ModelConfig& model, const std::vector<int>& ranks,
                               const Rejections& rejections);

}  // namespace trident

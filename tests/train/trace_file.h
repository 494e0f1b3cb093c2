// Judges of trace files for tests: the JSON schema of docs/, and what a schema cannot say.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace trident::testing {

// Problems of `value` under `schema`, each with its path; empty: none. Understands what docs/trace.schema.json uses: type, const,
// enum, required, properties, additionalProperties, items, oneOf, minimum, $ref into $defs.
std::vector<std::string> schema_problems(const nlohmann::json& schema, const nlohmann::json& value);

// Slices of a lane that overlap, arrows without exactly one start and one end, arrows that end before they start or lie in no slice
// of their lane, ranks and lanes without a name.
std::vector<std::string> trace_problems(const nlohmann::json& trace);

// Slices by (rank, lane name), in the order of their times.
std::map<std::pair<int, std::string>, std::vector<nlohmann::json>> slices_by_lane(const nlohmann::json& trace);
std::size_t count_arrows(const nlohmann::json& trace);

}  // namespace trident::testing

// A configuration as runs leave it, in config.resolved.json and in manifests, and by which rules it is read back.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_reader.h"
#include "train/config/train_config.h"

namespace trident {

// All keys (to_json), and under "resolved" what no key says: {"run_id", "decay_length", "steps", "bf16_over_fp32"}.
JsonValue to_stored(const TrainConfig& config);

struct StoredConfig {
  TrainConfig config;
  std::vector<std::string> faults;  // one line each: what a configuration of today could not say
};

// Not by the rules for users' input, because whoever reads it can change nothing: keys that this version does not know are passed
// over, those that it alone knows or that have values it does not know get their defaults, and contradictions stay. ConfigError
// only where it is no configuration: without a model, say. `source` stands for the file's name.
StoredConfig read_stored(const JsonValue& stored, std::string_view source);

// run_id of what was stored; "" where it has none.
std::string run_id_of(const JsonValue& stored);

// A key path ("parallel.tensor") and both values as text; "nothing" where one side lacks the key.
struct Difference {
  std::string path, a, b;
};

// The first one, in the order of `a`; nothing where they are equal.
std::optional<Difference> first_difference(const JsonValue& a, const JsonValue& b, const std::string& path = "");

}  // namespace trident

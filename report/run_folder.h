// The folder of a run as its files stand: of a run that goes on, is over, was stopped or killed.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "core/json_reader.h"

namespace trident {

struct RunFolder {
  std::string path, name;   // name: the last part of the path
  bool is_written = false;  // a living process appends to metrics.jsonl
  // Null where the file is missing or cannot be read.
  JsonValue config, plan, memory, comparison, run, failure, last_step;
  std::vector<JsonValue> metrics, timing, evals, samples;  // lines of the JSONL files
  std::vector<std::string> remarks;                        // sentences: what is left out, and why
};

inline constexpr std::size_t kDrawnLines = 2000, kEveryLine = std::numeric_limits<std::size_t>::max();

// Reads at most so many lines of a file, evenly spaced by bytes, with the first and the last: a log of any length costs the same.
// DataError where `path` is no run's folder; NotPermitted.
RunFolder read_run_folder(const std::string& path, std::size_t most_lines = kDrawnLines);

}  // namespace trident

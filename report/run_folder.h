// The folder of a run as its files stand: of a run that goes on, is over, was stopped or killed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
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

inline constexpr std::size_t kDrawnLines = 2000;

// Reads at most so many lines of a file, evenly spaced by bytes, with the first and the last: a log of any length costs the same.
// DataError where `path` is no run's folder; NotPermitted.
RunFolder read_run_folder(const std::string& path, std::size_t most_lines = kDrawnLines);
// The runs that paths mean: a run's folder itself, and of a folder that has runs in it each of them, by name. A path that is
// neither stays, and read_run_folder() refuses it.
std::vector<std::string> runs_at(const std::vector<std::string>& paths);
// The same of several, which share the lines that are drawn; runs of one name are called by their paths.
std::vector<RunFolder> read_run_folders(const std::vector<std::string>& paths);

// The first reads from run.json when each start began; the second returns the number of the start that wrote a line, or 0.
std::vector<double> start_times(const JsonValue& run);
std::int64_t start_of(const JsonValue& line, const std::vector<double>& times);

// Writes metrics.jsonl of the runs to `out` as comma-separated values, fit for a terminal: a first column "run" with the run's
// name, then a column for each other member of the lines (report/table.h), and a row for each line, with the evaluation of its step
// (eval.jsonl, which is held) where there was one; an evaluation at a step that was not logged has a row of its own. Reads metrics
// twice, a line at a time. Returns sentences: which lines were left out. As read_run_folder(), and StorageError.
std::vector<std::string> write_metrics_csv(const std::vector<std::string>& paths, std::ostream& out);

}  // namespace trident

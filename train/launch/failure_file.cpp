#include "train/launch/failure_file.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "core/clock.h"
#include "core/file_io.h"
#include "core/json_reader.h"

namespace trident {
namespace {

constexpr std::int64_t kMostBytes = 1 << 20;  // no run writes as much

// Fit for a line on a terminal.
bool is_plain(const std::string& text) {
  return std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

std::string path_in(const std::string& folder) { return folder + "/failure.json"; }

}  // namespace

std::string start_given() {
  for (const char* const name : kStartVariables)
    if (const char* const start = std::getenv(name); start != nullptr && *start != '\0') return start;
  return "";
}

void write_failure(const std::string& folder, const RunFailure& failure) {
  if (!folder_exists(folder)) return;
  JsonValue object;
  object.set("rank", failure.rank);
  object.set("host", failure.host);
  object.set("cause", failure.cause);
  object.set("exit_code", failure.exit_code);
  object.set("step", failure.step);
  object.set("message", failure.message);
  object.set("unix_time", unix_seconds());
  if (!failure.start.empty()) object.set("start", failure.start);
  // Whole or not there, and not flushed: mpirun leaves the process a second at most, and a disk at work takes longer to say that it
  // has something.
  const std::string path = path_in(folder), fresh = path + ".new";
  AppendFile(fresh, AppendFile::Start::kNewFile).append(to_json_text(object, 2) + '\n');
  rename_file(fresh, path);
}

std::string failure_text(const std::string& folder) {
  const std::string path = path_in(folder);
  try {
    if (!file_exists(path)) return "";
    const RandomAccessFile file(path);
    return file.size() > kMostBytes ? "" : file.text(0, file.size());
  } catch (const Error&) {
    return "";  // whoever reads it can do without
  }
}

std::optional<RunFailure> failure_from(const std::string& text) {
  try {
    const JsonValue object = parse_json(text, "failure.json");
    const auto integer = [&](const char* key) { return object.integer_at(key).value_or(-1); };
    const auto words = [&](const char* key) { return object.text_at(key); };
    // Numbers that are no rank and no exit code would become others.
    if (!std::in_range<int>(integer("rank")) || !std::in_range<int>(integer("exit_code"))) return std::nullopt;
    if (integer("rank") < 0 || words("cause").empty()) return std::nullopt;
    if (!is_plain(words("host")) || !is_plain(words("cause"))) return std::nullopt;
    return RunFailure{.rank = static_cast<int>(integer("rank")), .host = words("host"), .cause = words("cause"),
                       .exit_code = static_cast<int>(integer("exit_code")), .step = integer("step"), .message = words("message"),
                       .start = words("start")};
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace trident

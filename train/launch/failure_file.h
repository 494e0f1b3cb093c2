// failure.json in a run's directory: why the run ended before its time, for programs that decide what to do next.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace trident {

struct RunFailure {
  int rank = 0;         // the first cause
  std::string host;     // of that rank
  std::string cause;    // "was killed or crashed", "failed", ...
  int exit_code = 0;    // that all ranks end with
  std::int64_t step = 0;  // of the run, that the rank was in when last heard of; 0: before the first
  std::string message;  // the line that the run printed
  std::string start = {};  // trident supervise's name for the start that failed; "": it was not told one
};

// trident supervise sets these variables of a start's environment to a name that no other start has, so that it can tell whose
// failure it reads: a rank that an earlier start lost on another node may write late. The second name is for ranks of other nodes,
// as that of the lease's token is (checkpoint/lease.h).
inline constexpr std::array kStartVariables{"TRIDENT_START", "OMPI_TRIDENT_START"};
// Reads the environment under these names; "" if neither is there.
std::string start_given();

// Replaces the file, whole or not at all; adds the time. Nothing where `folder` does not exist. StorageError.
void write_failure(const std::string& folder, const RunFailure& failure);

// The text of the file; "" without one, and for what cannot be one (a pipe, more than 1 MiB). Texts of two failures differ: they name the time.
std::string failure_text(const std::string& folder);
// Parses such a text; nothing where it is no such object, or not fit to be printed.
std::optional<RunFailure> failure_from(const std::string& text);

}  // namespace trident

#include "core/process_status.h"

#include <fmt/core.h>

#include <fstream>
#include <sstream>
#include <string>

namespace trident {

std::optional<ProcessStatus> process_status(std::int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  ProcessStatus status;
  fields >> status.state;
  constexpr int kUserField = 14, kSystemField = 15, kStartField = 22;  // proc(5); the state is the third
  for (int field = 4; field <= kStartField; ++field) {
    std::int64_t value = 0;
    fields >> value;
    if (field == kUserField || field == kSystemField) status.cpu_ticks += value;
    if (field == kStartField) status.started = value;
  }
  return fields ? std::optional(status) : std::nullopt;
}

}  // namespace trident

// The hosts of a job, as mpirun's --hostfile names them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

struct HostSlots {
  std::string name;
  int slots = 0;  // ranks that it may have
  bool operator==(const HostSlots&) const = default;
};

// One host per line, "NAME slots=N [max_slots=M]", # begins a comment; a host that is named again has the slots of all its lines.
// At most 65536 slots. ConfigError with `source` and line: no host, no slots, another key, a name with other characters than
// letters, digits, '.', '-', '_' and ':'.
std::vector<HostSlots> parse_hostfile(std::string_view text, std::string_view source);
std::vector<HostSlots> read_hostfile(const std::string& path);

// parse_hostfile reads it back.
std::string hostfile_text(std::span<const HostSlots> hosts);

int slots_of(std::span<const HostSlots> hosts);

// Whether a rank that calls its host `rank_host` runs on the host that the file calls `name`: the same but for case, or one of them
// without its domain. Addresses are no names.
bool is_same_host(std::string_view name, std::string_view rank_host);

}  // namespace trident

#include "core/resident_memory.h"

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

namespace trident {

std::optional<ResidentMemory> resident_memory(const std::string& path) {
  std::ifstream file(path);
  ResidentMemory memory;
  int found = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, unit;
    std::int64_t kilobytes = 0;
    if (!(words >> name >> kilobytes >> unit) || unit != "kB") continue;
    for (const auto& [key, bytes] :
         {std::pair(std::string_view("RssAnon:"), &memory.own), std::pair(std::string_view("RssShmem:"), &memory.shared),
          std::pair(std::string_view("RssFile:"), &memory.files)}) {
      if (name != key) continue;
      *bytes = 1024 * kilobytes;
      ++found;
    }
  }
  return found == 3 ? std::optional(memory) : std::nullopt;
}

std::optional<std::int64_t> resident_memory_bytes() {
  const std::optional<ResidentMemory> memory = resident_memory();
  return memory ? std::optional(memory->own + memory->shared + memory->files) : std::nullopt;
}

}  // namespace trident

// A profiler for tests, attached to the program it is linked into: keeps what NVTX is told.
#pragma once

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace trident::testing {

struct ProfiledRange {
  enum class Kind : std::uint8_t { kPushed, kStarted } kind = Kind::kPushed;
  std::string name;
  std::vector<std::string> inside;  // pushed ranges around it, the outermost first
  int ends = 0;                     // how often it was ended: once, if all is well
};

// In the order of their beginnings, of one thread.
std::vector<ProfiledRange> profiled_ranges(std::thread::id thread);
// "" if every range of every thread has ended once and every domain is gone; else the first that has not.
std::string unfinished_ranges();
void forget_ranges();

}  // namespace trident::testing

// A reader of TensorBoard event files for tests, written from the format's description and apart from the product's encoder.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trident::testing {

struct ReadEvent {
  double wall_seconds = 0;
  std::int64_t step = 0;
  std::string file_version;
  bool session_start = false;
  std::map<std::string, float> scalars;
  std::map<std::string, std::string> texts;
};

// Every record of the file; lengths and both checksums are verified. Throws std::runtime_error saying what is wrong where.
std::vector<ReadEvent> read_event_file(const std::string& path);

// The event files of a folder, by name.
std::vector<std::string> event_files(const std::string& folder);

}  // namespace trident::testing

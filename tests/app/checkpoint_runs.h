// Runs of the real program that save.
#pragma once

#include <string>
#include <vector>

#include "tests/app/program.h"

namespace trident {

inline const std::vector<std::string> kComparedKeys{"step", "loss", "grad_norm", "lr", "loss_scale", "tokens"};

// Returns what must be the same, one line per record.
inline std::vector<std::string> compared(const std::vector<JsonValue>& records, const std::vector<std::string>& keys) {
  std::vector<std::string> lines;
  for (const JsonValue& record : records) {
    std::string& line = lines.emplace_back();
    for (const std::string& key : keys) line += to_json_text(*record.find(key)) + " ";
  }
  return lines;
}

class Checkpoints : public ::testing::Test {
 protected:
  ProgramOutcome train(const std::vector<std::string>& more = {}) const {
    return place_.train(plus({"parallel.data=2", "run.steps=4", "checkpoint.every=2", "checkpoint.keep_last=0"}, more));
  }
  Workplace place_;
};

// Many starts each: with -C Full.
class FullCheckpoints : public Checkpoints {};

}  // namespace trident

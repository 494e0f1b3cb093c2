// Runs of the real program that save.
#pragma once

#include <string>
#include <vector>

#include "tests/app/program.h"

namespace trident {

inline std::vector<std::string> plus(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class Checkpoints : public testing::Test {
 protected:
  ProgramOutcome train(const std::vector<std::string>& more = {}) const {
    return place_.train(plus({"parallel.data=2", "run.steps=4", "checkpoint.every=2", "checkpoint.keep_last=0"}, more));
  }
  Workplace place_;
};

// Many starts each: with -C Full.
class FullCheckpoints : public Checkpoints {};

}  // namespace trident

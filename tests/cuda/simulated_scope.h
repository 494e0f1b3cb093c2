// Every test on the simulated CUDA starts and ends with this.
#pragma once

#include <gtest/gtest.h>

#include "tests/cuda/simulated/runtime.h"

namespace trident {

// Settings and injected failures of one test; nothing of it is left for the next one, neither handles nor memory nor work.
class SimulatedScope {
 public:
  explicit SimulatedScope(const simulated::Settings& settings = {}) : before_(simulated::census()) {
    simulated::configure(settings);
  }
  ~SimulatedScope() {
    const simulated::Census after = simulated::census();
    EXPECT_EQ(after.allocations, before_.allocations) << "allocations left";
    EXPECT_EQ(after.streams, before_.streams) << "streams left";
    EXPECT_EQ(after.events, before_.events) << "events left";
    EXPECT_EQ(after.queued, 0u) << "work left";
    simulated::reset();
  }
  SimulatedScope(const SimulatedScope&) = delete;
  SimulatedScope& operator=(const SimulatedScope&) = delete;

 private:
  simulated::Census before_;
};

}  // namespace trident

// For the suite on the simulated CUDA: its thousands of small calls without the guard of device memory, whose system calls took
// nine tenths of their time. Tests of the backend itself have it on.
#include <gtest/gtest.h>

#include "tests/cuda/simulated/runtime.h"

namespace trident {
namespace {

class WithoutGuard final : public ::testing::Environment {
  void SetUp() override { simulated::configure({.host_guard = simulated::HostGuard::kOff}); }
};
[[maybe_unused]] const ::testing::Environment* const kWithoutGuard = ::testing::AddGlobalTestEnvironment(new WithoutGuard);

}  // namespace
}  // namespace trident

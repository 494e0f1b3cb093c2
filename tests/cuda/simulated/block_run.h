// Running a kernel on the CPU; how its launch got there is runtime.h's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tests/cuda/simulated/runtime.h"
#include "tests/cuda/simulated/simt.h"

namespace trident::simulated {

// Runs all blocks, one after another, under the simulation's lock. Aborts at misuse that a GPU would not survive either.
void run_kernel(const KernelLaunch& launch, const std::function<void()>& body, FiberOrder fiber_order, std::uint64_t seed);

// "kernel f, block (0, 0, 0), thread (1, 0, 0)" while one runs on the calling thread, else empty.
std::string describe_running();

}  // namespace trident::simulated

// The kernels in the running program, to see whether tests have run them all.
#pragma once

#include <string>
#include <vector>

namespace trident::testing {

// Kernels (functions of trident::cuda_kernels whose names begin with `prefix` and end in _kernel) that are compiled into the
// running program; every instance of a template is one.
std::vector<std::string> compiled_kernels(const std::string& prefix);
// Returns the kernels that have not been launched in this process.
std::vector<std::string> untested_kernels(const std::string& prefix);

// Returns the kernels that GPU `device` does not have before their first launch.
std::vector<std::string> unloaded_kernels(int device);

// The names of the __global__ functions of a source file, in its order.
std::vector<std::string> global_functions(const std::string& path);

}  // namespace trident::testing

// NCCL's arguments as functions of the call.
#pragma once

#include <nccl.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor_view.h"
#include "parallel/communicator/collective_kind.h"
#include "parallel/cuda/nccl_options.h"

namespace trident {

// An operand in NCCL's terms, its type and how many there are; u16, which NCCL does not know, becomes twice as many bytes (it is
// never reduced).
std::pair<ncclDataType_t, std::size_t> nccl_elements(ConstTensorView view);
ncclRedOp_t nccl_reduction(ReduceOp op);

// Configures a communicator whose calls return before they are complete. `name` outlives the configuration.
ncclConfig_t nccl_config(const char* name, int max_ctas);

// The (sender, receiver) that have a communicator of NCCL to themselves, the same list on every rank of the group.
std::vector<std::pair<int, int>> message_paths(int ranks, NcclTraffic::Messages messages);

// 22809 -> "2.28.9"
std::string nccl_version_text(int version);

// All ranks say this if a library is older than cmake/TridentCuda.cmake asks for, or they differ. `global_ranks`: of the group, by
// rank.
std::optional<std::string> version_problem(std::string_view group, std::span<const int> global_ranks,
                                           std::span<const int> versions);

// The same if two ranks have one GPU.
using GpuId = std::array<std::int64_t, 2>;  // CUDA's UUID
std::optional<std::string> shared_gpu(std::string_view group, std::span<const int> global_ranks, std::span<const GpuId> gpus);

// The variable that makes kernels of several communicators of a GPU start in the order in which the host issued them.
inline constexpr const char* kNcclLaunchOrder = "NCCL_LAUNCH_ORDER_IMPLICIT";

// Whether the library does so; value: of the variable, nullptr if it is not set.
bool keeps_launch_order(const char* value);

// All ranks say this if a driver can keep that order only by letting each operation wait for the end of all earlier ones:
// groups then wait for each other for ever. drivers: by rank, as cudaDriverGetVersion() has it (12030: CUDA 12.3); 0 where no
// order is kept.
std::optional<std::string> launch_order_problem(std::string_view group, std::span<const int> global_ranks,
                                                std::span<const int> drivers);

// Environment variables under which the library keeps several communicators of one GPU from waiting for each other.
// NCCL reads them once: to be set before its first call, where the user has not set them.
std::vector<std::pair<std::string, std::string>> nccl_environment();

}  // namespace trident

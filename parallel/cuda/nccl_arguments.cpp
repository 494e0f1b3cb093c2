#include "parallel/cuda/nccl_arguments.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "core/at.h"
#include "core/check.h"

namespace trident {

std::pair<ncclDataType_t, std::size_t> nccl_elements(ConstTensorView view) {
  const auto count = static_cast<std::size_t>(view.num_elements());
  switch (view.dtype()) {
    case DType::kF32: return {ncclFloat32, count};
    case DType::kBF16: return {ncclBfloat16, count};
    case DType::kF64: return {ncclFloat64, count};
    case DType::kF16: return {ncclFloat16, count};
    case DType::kI64: return {ncclInt64, count};
    case DType::kI32: return {ncclInt32, count};
    case DType::kU16: return {ncclUint8, 2 * count};
    case DType::kU8: return {ncclUint8, count};
  }
  throw InternalError("a dtype that does not exist");
}

ncclRedOp_t nccl_reduction(ReduceOp op) { return op == ReduceOp::kSum ? ncclSum : ncclMax; }

ncclConfig_t nccl_config(const char* name, int max_ctas) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  // A join to which a peer does not come can only be given up if it returns before it is done, for ncclCommAbort takes what it returns; the same
  // holds for messages that connect. NCCL knows no way to change this later. From 2.25 on it starts a thread for every group of calls on such a
  // communicator, where versions before did so for those that connect. NCCL_COMM_BLOCKING=1 in the environment wins over this, and shows
  // what the threads cost.
  config.blocking = 0;
  config.commName = name;
  if (max_ctas > 0) config.maxCTAs = max_ctas;
  return config;
}

std::vector<std::pair<int, int>> message_paths(int ranks, NcclTraffic::Messages messages) {
  std::vector<std::pair<int, int>> paths;
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to) {
      const int ahead = (to - from + ranks) % ranks;
      const bool neighbours = ahead == 1 || ahead == ranks - 1;
      if (from == to || messages == NcclTraffic::Messages::kRare) continue;
      if (messages == NcclTraffic::Messages::kAll || neighbours) paths.emplace_back(from, to);
    }
  return paths;
}

std::string nccl_version_text(int version) {
  const bool old = version < 10000;  // 2.8 and before
  return fmt::format("{}.{}.{}", version / (old ? 1000 : 10000), version / 100 % (old ? 10 : 100), version % 100);
}

std::optional<std::string> version_problem(std::string_view group, std::span<const int> global_ranks,
                                           std::span<const int> versions) {
  if (const auto oldest = std::ranges::min_element(versions); *oldest < NCCL_VERSION(2, 27, 0))
    return fmt::format(
        "{}: rank {} has NCCL {}: 2.27 or later is needed, for before 2.26 nothing keeps the order of launches, and groups of "
        "ranks may wait for each other for ever; let all nodes load such a libnccl.so.2",
        group, at(global_ranks, oldest - versions.begin()), nccl_version_text(*oldest));
  const auto other = std::find_if(versions.begin(), versions.end(), [&](int version) { return version != versions.front(); });
  if (other == versions.end()) return std::nullopt;
  return fmt::format("{}: rank {} has NCCL {} and rank {} has NCCL {}; let all nodes load the same libnccl.so.2", group,
                     global_ranks.front(), nccl_version_text(versions.front()), at(global_ranks, other - versions.begin()),
                     nccl_version_text(*other));
}

std::optional<std::string> shared_gpu(std::string_view group, std::span<const int> global_ranks, std::span<const GpuId> gpus) {
  for (std::size_t b = 1; b < gpus.size(); ++b)
    for (std::size_t a = 0; a < b; ++a)
      if (gpus[a] == gpus[b])
        return fmt::format(
            "{}: ranks {} and {} are on one GPU, which NCCL refuses; start a rank per GPU, or let ranks be threads of one "
            "process or exchange through the host",
            group, global_ranks[a], global_ranks[b]);
  return std::nullopt;
}

bool keeps_launch_order(const char* value) { return value != nullptr && std::strtoll(value, nullptr, 0) != 0; }

std::optional<std::string> launch_order_problem(std::string_view group, std::span<const int> global_ranks,
                                                std::span<const int> drivers) {
  constexpr int kLaunchEvents = 12030;  // from here on a kernel can wait for the start of another
  for (std::size_t r = 0; r < drivers.size(); ++r)
    if (drivers[r] > 0 && drivers[r] < kLaunchEvents)
      return fmt::format(
          "{}: the driver of rank {} is of CUDA {}.{}: before 12.3 NCCL keeps the order of launches ({}=1) by letting each "
          "operation wait for the end of those before, and groups of ranks would wait for each other for ever; install a driver of "
          "CUDA 12.3 or later (545), or set cuda.nccl_any_order = true and cuda.nccl_max_ctas",
          group, global_ranks[r], drivers[r] / 1000, drivers[r] % 1000 / 10, kNcclLaunchOrder);
  return std::nullopt;
}

std::vector<std::pair<std::string, std::string>> nccl_environment() {
  // Kernels of different communicators start in the order in which the host issued them. Rings and trees connect when a
  // communicator is made, where all its ranks are, instead of at the first operation that needs them.
  return {{kNcclLaunchOrder, "1"}, {"NCCL_RUNTIME_CONNECT", "0"}};
}

}  // namespace trident

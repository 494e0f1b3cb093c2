#include "device/cpu/cpu_device.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/cpu/multiply_rates.h"
#include "device/cpu/team.h"

namespace trident {

namespace {

void stay_on_cores(int first, int count) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (int core = first; core < first + count; ++core) CPU_SET(static_cast<std::size_t>(core), &cores);
  if (first < 0 || first + count > CPU_SETSIZE || sched_setaffinity(0, sizeof cores, &cores) != 0) {
    throw ConfigError(
        fmt::format("run.pin = true: cores {}..{} do not exist or are not allowed to this process; set run.pin = false", first,
                    first + count - 1));
  }
}

IsaLevel chosen_level(const CpuFeatures& features, const CpuDeviceOptions& options) {
  const IsaLevel level = options.level.value_or(features.level);
  TRIDENT_CHECK(level <= features.level, "level {} asked for on a processor with {}", to_string(level), to_string(features.level));
  return level;
}

Bf16Products chosen_products(const CpuFeatures& features, IsaLevel level, const CpuDeviceOptions& options) {
  if (!has_bf16_products(features, level)) return Bf16Products::kConverted;
  return options.bf16_products ? *options.bf16_products : bf16_products_at(bf16_over_fp32());
}

}  // namespace

bool has_bf16_products(const CpuFeatures& features, IsaLevel level) {
  return level == IsaLevel::kAvx512 && features.avx512_bf16 && onednn_has_native_bf16();
}

std::string instruction_set(const CpuFeatures& features) {
  return fmt::format("{}{}", to_string(features.level),
                     !has_bf16_products(features, features.level) ? ""
                     : features.amx_bf16                          ? " with AMX bf16"
                                                                  : " with AVX512-BF16");
}

CpuDevice::CpuDevice(Doorbell& doorbell, const CpuDeviceOptions& options)
    : features_(detect_cpu_features()),
      level_(chosen_level(features_, options)),
      threads_(options.threads_per_rank),
      bf16_(chosen_products(features_, level_, options)),
      progress_(doorbell),
      compute_stream_("compute", CpuStream::Mode::kImmediate, progress_),
      memory_(options.memory) {
  if (threads_ < 1) throw ConfigError(fmt::format("run.threads_per_rank = {}: at least 1 thread is needed", threads_));
  if (options.first_core) stay_on_cores(*options.first_core, threads_);
  make_team(threads_, options.first_core);
  ops_ = std::make_unique<CpuOps>(level_, bf16_, options.small_products);
}

Stream& CpuDevice::new_stream(std::string name) {
  streams_.push_back(std::make_unique<CpuStream>(std::move(name), CpuStream::Mode::kQueue, progress_));
  return *streams_.back();
}

void CpuDevice::write(Stream& stream, TensorView to, const void* from) {
  stream.synchronize();
  if (!to.empty()) std::memcpy(to.data(), from, static_cast<std::size_t>(to.num_bytes()));
}

void CpuDevice::read(Stream& stream, void* to, ConstTensorView from) {
  stream.synchronize();
  if (!from.empty()) std::memcpy(to, from.data(), static_cast<std::size_t>(from.num_bytes()));
}

std::string CpuDevice::describe() const {
  const char* why = bf16_ == Bf16Products::kNative         ? (features_.amx_bf16 ? "AMX" : "AVX512-BF16")
                    : has_bf16_products(features_, level_) ? "f32 arithmetic, which is faster here"
                                                           : "no bf16 instructions: f32 arithmetic";
  return fmt::format("cpu, {} row kernels, bf16 by {}, {} thread{} per rank", to_string(level_), why, threads_,
                     threads_ == 1 ? "" : "s");
}

std::optional<int> core_for_rank(int local_rank, int local_ranks, int threads_per_rank) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int needed = local_ranks * threads_per_rank;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) != needed) return std::nullopt;
  int first = 0;
  while (first < CPU_SETSIZE && !CPU_ISSET(static_cast<std::size_t>(first), &allowed)) ++first;
  for (int core = first; core < first + needed; ++core) {  // a block of cores without holes, or none
    if (core >= CPU_SETSIZE || !CPU_ISSET(static_cast<std::size_t>(core), &allowed)) return std::nullopt;
  }
  return first + local_rank * threads_per_rank;
}

}  // namespace trident

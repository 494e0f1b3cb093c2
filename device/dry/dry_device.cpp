#include "device/dry/dry_device.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "core/check.h"
#include "core/int_math.h"
#include "device/no_allocation.h"

namespace trident {

Stream& DryDevice::new_stream(std::string name) {
  streams_.push_back(std::make_unique<DryStream>(std::move(name)));
  return *streams_.back();
}

Buffer DryDevice::allocate(std::int64_t bytes, const std::string& name) {
  TRIDENT_CHECK(bytes >= 0, "{}: {} bytes", name, bytes);
  check_allocation_allowed(static_cast<std::size_t>(bytes), name);
  if (bytes == 0) return {};
  constexpr std::int64_t kPage = 4096;
  const auto length = static_cast<std::size_t>(round_up(bytes, kPage));
  // Addresses that no other memory has; they cost nothing, whatever limits there are for memory.
  void* const data = mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    throw ConfigError(fmt::format("memory: {} would need {:.1f} GB, more addresses than this process may have ({}); raise ulimit -v, or "
                                  "make the model smaller",
                                  name, 1e-9 * static_cast<double>(bytes), std::strerror(errno)));
  }
  return {data, bytes, MemoryKind::kDevice, [length](void* p, std::int64_t) { munmap(p, length); }};
}

void DryDevice::read(Stream&, void* to, ConstTensorView from) {
  if (!from.empty()) std::memset(to, 0, static_cast<std::size_t>(from.num_bytes()));
}

}  // namespace trident

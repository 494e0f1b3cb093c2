#include "device/dry/dry_device.h"

#include <bit>
#include <cstring>
#include <limits>

#include "core/check.h"
#include "core/int_math.h"
#include "device/no_allocation.h"

namespace trident {

Stream& DryDevice::new_stream(std::string name) {
  streams_.push_back(std::make_unique<DryStream>(std::move(name)));
  return *streams_.back();
}

Buffer DryDevice::allocate(std::int64_t bytes, const std::string& name) {
  constexpr std::int64_t kPage = 4096, kEnd = std::numeric_limits<std::int64_t>::max() / 2;
  check_allocation_allowed(static_cast<std::size_t>(bytes), name);
  TRIDENT_CHECK(bytes >= 0 && bytes <= kEnd - next_address_, "{}: {} bytes", name, bytes);
  if (bytes == 0) return {};
  void* const address = std::bit_cast<void*>(next_address_);
  next_address_ += round_up(bytes, kPage);
  return {address, bytes, MemoryKind::kDevice, nullptr};
}

void DryDevice::read(Stream&, void* to, ConstTensorView from) {
  if (!from.empty()) std::memset(to, 0, static_cast<std::size_t>(from.num_bytes()));
}

}  // namespace trident

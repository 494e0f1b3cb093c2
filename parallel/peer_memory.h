// How a rank reaches a buffer that a peer has posted.
//
// Operations on shared memory post where their operand lies as one 64-bit word. What that word means depends on where the ranks
// live: threads share every address; processes share one segment, at an address of its own in each.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trident {

class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  // What this rank posts for `address`, where `bytes` bytes will be read, or read and written, by peers.
  virtual std::uint64_t post(const void* address, std::int64_t bytes) = 0;
  // A posted word of a peer as an address that this rank can use.
  virtual std::byte* reach(std::uint64_t posted) = 0;
};

// Ranks are threads: an address is an address.
class ThreadMemory final : public PeerMemory {
 public:
  std::uint64_t post(const void* address, std::int64_t) override { return reinterpret_cast<std::uintptr_t>(address); }
  std::byte* reach(std::uint64_t posted) override { return reinterpret_cast<std::byte*>(posted); }
};

}  // namespace trident

// How a rank reaches a buffer that a peer has posted.
//
// Operations on shared memory post where their operand lies as one 64-bit word. What that word means depends on where the ranks
// live: threads share every address; processes share one segment, at an address of its own in each. An operand that peers do not
// reach goes through the group's control block, piece by piece (shared_world.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace trident {

class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  // Whether peers can use `bytes` bytes from `address`.
  virtual bool reaches(const void* address, std::int64_t bytes) const = 0;
  // Turns an address that peers reach into the word that this rank posts; never kUnreachable.
  virtual std::uint64_t post(const void* address) = 0;
  // A posted word of a peer as an address that this rank can use.
  virtual std::byte* reach(std::uint64_t posted) = 0;
};

// Posted instead of an address that peers do not reach.
inline constexpr std::uint64_t kUnreachable = ~std::uint64_t{0};

// Ranks are threads: an address is an address.
class ThreadMemory final : public PeerMemory {
 public:
  bool reaches(const void*, std::int64_t) const override { return true; }
  std::uint64_t post(const void* address) override { return reinterpret_cast<std::uintptr_t>(address); }
  std::byte* reach(std::uint64_t posted) override { return reinterpret_cast<std::byte*>(posted); }
};

}  // namespace trident

#include "parallel/shared_memory/shared_world.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <new>

#include "core/clock.h"
#include "core/int_math.h"
#include "device/no_allocation.h"
#include "parallel/communicator/peer_failure.h"

namespace trident {

namespace {

enum Failure : std::uint32_t { kHealthy, kBeingWritten, kFailed };

constexpr std::int64_t kWorldPage = 4096;
constexpr double kReasonSeconds = 1.0;     // a reason is copied in microseconds, unless the process that copies it was ended
constexpr double kUntouchedSeconds = 5.0;  // sums take milliseconds; a process that died inside one must not hold up its peers

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace

struct SharedWorld::Header {
  std::atomic<std::uint32_t> failure{kHealthy};
  std::array<char, 1024> reason{};  // written once, between kBeingWritten and kFailed
  std::atomic<std::uint64_t> used{0};
  std::uint64_t capacity = 0, world_group = 0;
  std::int32_t ranks = 0;
};

struct alignas(kCacheLine) SharedWorld::RankState {
  Doorbell doorbell;
  alignas(kCacheLine) std::atomic<std::uint32_t> touching{0};
};

std::uint64_t GroupBlock::bytes(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  return stages_offset(n) + kSlots * n * kStageBytes;
}

std::uint64_t SharedWorld::region_bytes(int ranks) {
  constexpr std::uint64_t kGroupsPerRank = 64, kMinimum = 64 << 20;
  return std::max(kMinimum, kGroupsPerRank * GroupBlock::bytes(ranks));
}

void SharedWorld::lay_out(std::byte* region, std::uint64_t region_bytes, int ranks) {
  TRIDENT_CHECK(ranks >= 1, "a world of {} ranks", ranks);
  Header& h = *new (region) Header;
  h.ranks = ranks;
  h.capacity = region_bytes;
  RankState* const states = rank_states(region);
  for (int r = 0; r < ranks; ++r) new (states + r) RankState;
  h.used = static_cast<std::uint64_t>(round_up(reinterpret_cast<std::byte*>(states + ranks) - region, kWorldPage));
  ThreadMemory nothing_posted_yet;
  h.world_group = SharedWorld(region, 0, nothing_posted_yet).allocate_group(ranks);
}

SharedWorld::SharedWorld(std::byte* region, double timeout_seconds, PeerMemory& memory)
    : region_(region), ranks_(header().ranks), timeout_seconds_(timeout_seconds), memory_(memory) {
  TRIDENT_CHECK(ranks_ >= 1, "a region in which no world was laid out");
}

SharedWorld::Header& SharedWorld::header() const { return *reinterpret_cast<Header*>(region_); }

SharedWorld::RankState* SharedWorld::rank_states(std::byte* region) {
  constexpr auto kHeaderBytes = (sizeof(Header) + kCacheLine - 1) / kCacheLine * kCacheLine;
  return reinterpret_cast<RankState*>(region + kHeaderBytes);
}

SharedWorld::RankState& SharedWorld::rank_state(int rank) const { return rank_states(region_)[rank]; }

Doorbell& SharedWorld::doorbell(int rank) const {
  TRIDENT_CHECK(rank >= 0 && rank < ranks_, "rank {} of {}", rank, ranks_);
  return rank_state(rank).doorbell;
}

std::uint64_t SharedWorld::world_group() const { return header().world_group; }

std::uint64_t SharedWorld::allocate_group(int ranks) { return allocate(GroupBlock::bytes(ranks)); }

std::uint64_t SharedWorld::allocate(std::uint64_t bytes) {
  const auto length = static_cast<std::uint64_t>(round_up(static_cast<std::int64_t>(bytes), kWorldPage));
  const std::uint64_t offset = header().used.fetch_add(length, std::memory_order_relaxed);
  TRIDENT_CHECK(offset + length <= header().capacity, "control blocks of all groups exceed {} bytes", header().capacity);
  return offset;
}

bool SharedWorld::failed() const { return header().failure.load(std::memory_order_acquire) != kHealthy; }

void SharedWorld::fail(std::string_view reason) {
  std::uint32_t expected = kHealthy;
  Header& h = header();
  if (!h.failure.compare_exchange_strong(expected, kBeingWritten)) return;
  std::memcpy(h.reason.data(), reason.data(), std::min(reason.size(), h.reason.size() - 1));
  h.failure.store(kFailed);
  for (int r = 0; r < ranks_; ++r) doorbell(r).ring();
}

std::string SharedWorld::failure() const {
  const Header& h = header();
  if (!failed()) return "";
  const double give_up = monotonic_seconds() + kReasonSeconds;
  while (h.failure.load(std::memory_order_acquire) != kFailed) {
    if (monotonic_seconds() > give_up) return "a rank failed, and its process was ended before it could say why";
    sched_yield();
  }
  return h.reason.data();
}

void SharedWorld::throw_if_failed(int rank) {
  if (!failed()) [[likely]]
    return;
  const AllocationExemption message;
  wait_until_untouched(rank);
  throw PeerFailure(failure());
}

void SharedWorld::raise(int rank, const std::string& reason) {
  const AllocationExemption message;
  fail(reason);
  wait_until_untouched(rank);
  throw CommunicationError(reason);
}

// A toucher raises its flag and then looks for a failure; a leaver sets the failure and then looks at the flags. In the one total
// order of sequentially consistent operations at least one of the two sees the other.
void SharedWorld::wait_until_untouched(int rank) const {
  const double give_up = monotonic_seconds() + kUntouchedSeconds;
  for (int r = 0; r < ranks_; ++r)
    while (r != rank && rank_state(r).touching.load() != 0 && monotonic_seconds() < give_up) sched_yield();
}

SharedWorld::Touching::Touching(SharedWorld& world, int rank) : flag_(world.rank_state(rank).touching) {
  flag_.store(1);
  if (world.header().failure.load() == kHealthy) [[likely]]
    return;
  flag_.store(0);
  world.throw_if_failed(rank);
}

SharedWorld::Touching::~Touching() { flag_.store(0, std::memory_order_release); }

}  // namespace trident

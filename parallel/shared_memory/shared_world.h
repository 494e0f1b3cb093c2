// The ranks of one node share doorbells, control blocks of groups, and the failure flag, all in one region of memory.
//
// Everything in the region is plain data and atomics found by offsets, so the region may be private memory (ranks are threads) or
// a segment mapped at another address by each process.
//
// Protocol of a collective operation, number s of its group, in slot s % kSlots of the group's control block:
//   1. A rank may post once all ranks have finished operation s - kSlots. It writes its fingerprint, where its operand lies and,
//      if that is small, the operand itself into its post, then adds itself to `arrived`.
//   2. When all have arrived, each compares fingerprints and does its share of the work directly in its peers' memory. Shares of an
//      all_reduce go to whoever asks for one next (`taken`), and it is complete when all of them are reduced (`filled`).
//   3. It adds itself to `finished`. Where peers read or write its buffers, it waits until all have finished; a small operation,
//      whose operands were copied, ends here after one synchronisation.
// If somebody's operand lies where peers do not reach (PeerMemory), nobody reaches into anybody's: step 2 goes piece by piece. Each
// rank copies the next piece of its operand to its stage, adds itself to `filled`, and when all have, does its share of that piece.
// Pieces take turns in the two halves of a stage: who fills one has done its share of the piece before the last.
// The last rank to arrive or finish rings the others; nobody else wakes anybody.
//
// Sends and receives meet in the ring of their ordered pair of ranks: the sender posts, the receiver copies and acknowledges. What
// lies out of reach goes through a stage of the pair, made when it is first needed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "device/host/doorbell.h"
#include "parallel/communicator/collective_kind.h"
#include "parallel/shared_memory/peer_memory.h"

namespace trident {

inline constexpr int kSlots = 8;                   // collectives of one group in flight
inline constexpr std::int64_t kInlineBytes = 4096;  // operands up to this size travel inside the post
inline constexpr std::int64_t kPieceBytes = 8192;   // of operands that peers do not reach; whole elements of every dtype
inline constexpr std::int64_t kStageBytes = 2 * kPieceBytes;
inline constexpr int kChannelSlots = 4;            // messages of one ordered pair in flight
inline constexpr std::size_t kCacheLine = 64;

// One operation's counters; they count on over the slot's reuse: use u is complete at (u + 1) * ranks.
struct CollectiveSlot {
  alignas(kCacheLine) std::atomic<std::uint64_t> arrived{0};
  alignas(kCacheLine) std::atomic<std::uint64_t> finished{0};
  std::atomic<std::uint32_t> reuse_awaited{0};  // somebody waits to post the slot's next operation
  // Pieces of this use put in place, or shares reduced, by all ranks together; and how often a share was asked for.
  alignas(kCacheLine) std::atomic<std::uint64_t> filled{0}, taken{0};
};

// One rank's part in it. `posted` and `finished` hold sequence + 1; they serve error messages, the counters above the protocol.
struct alignas(kCacheLine) CollectivePost {
  std::atomic<std::uint64_t> posted{0}, finished{0};
  CommFingerprint fingerprint;
  std::uint64_t operand = 0;
};

// Where the first of some ranks that form a new group tells the others its control block.
struct alignas(kCacheLine) SplitCell {
  std::atomic<std::uint64_t> number{0};  // of the split, from 1
  std::uint64_t block = 0;
};

// One message of an ordered pair. `posted` and `acknowledged` hold sequence + 1.
struct alignas(kCacheLine) ChannelSlot {
  std::atomic<std::uint64_t> posted{0}, acknowledged{0};
  std::atomic<std::uint32_t> receiver_waits{0};  // the receiver found nothing posted
  std::atomic<std::uint64_t> filled{0}, taken{0};  // pieces of this message put into the stage, and copied from it
  CommFingerprint fingerprint;
  std::uint64_t operand = 0;
  std::uint64_t stage = 0;  // where the pair's stage lies in the region, if the operand is out of reach
};

// The control block of a group of `ranks` ranks, at an offset in the region. A value: a base address and a size. All of it begins
// as zeros, which is what its atomics begin with, so that a block of many ranks costs memory only where it is used.
class GroupBlock {
 public:
  GroupBlock() = default;
  GroupBlock(std::byte* base, int ranks) : base_(base), ranks_(static_cast<std::size_t>(ranks)) {}

  static std::uint64_t bytes(int ranks);

  CollectiveSlot& slot(std::uint64_t sequence) const { return reinterpret_cast<CollectiveSlot*>(base_)[sequence % kSlots]; }
  CollectivePost& post(std::uint64_t sequence, int rank) const {
    return reinterpret_cast<CollectivePost*>(base_ + kSlots * sizeof(CollectiveSlot))[sequence % kSlots * ranks_ + index(rank)];
  }
  ChannelSlot& channel(int from, int to, std::uint64_t sequence) const {
    return reinterpret_cast<ChannelSlot*>(base_ + channels_offset(ranks_))[(index(from) * ranks_ + index(to)) * kChannelSlots +
                                                                            sequence % kChannelSlots];
  }
  SplitCell& split_cell(int rank) const { return reinterpret_cast<SplitCell*>(base_ + cells_offset(ranks_))[index(rank)]; }
  // Room for the rank's small operand, or for two pieces of one.
  std::byte* stage(std::uint64_t sequence, int rank) const {
    return base_ + stages_offset(ranks_) + (sequence % kSlots * ranks_ + index(rank)) * kStageBytes;
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  static std::size_t channels_offset(std::size_t ranks) {
    return kSlots * (sizeof(CollectiveSlot) + ranks * sizeof(CollectivePost));
  }
  static std::size_t cells_offset(std::size_t ranks) {
    return channels_offset(ranks) + ranks * ranks * kChannelSlots * sizeof(ChannelSlot);
  }
  static std::size_t stages_offset(std::size_t ranks) { return cells_offset(ranks) + ranks * sizeof(SplitCell); }

  std::byte* base_ = nullptr;
  std::size_t ranks_ = 0;
};

class SharedWorld {
 public:
  // Bytes of address space a world of `ranks` ranks needs; pages that no group uses are never touched.
  static std::uint64_t region_bytes(int ranks);
  // Lays a world of `ranks` ranks into zeroed `region`: by one of them, before any other attaches.
  static void lay_out(std::byte* region, std::uint64_t region_bytes, int ranks);
  // Attaches to the world that was laid out in `region`, wherever this process sees it; the region and `memory` outlive the object.
  SharedWorld(std::byte* region, double timeout_seconds, PeerMemory& memory);

  int size() const { return ranks_; }
  double timeout_seconds() const { return timeout_seconds_; }
  PeerMemory& memory() const { return memory_; }
  Doorbell& doorbell(int rank) const;

  // A zeroed control block, as an offset that every rank can turn into its GroupBlock. Blocks live as long as the world.
  std::uint64_t allocate_group(int ranks);
  GroupBlock group(std::uint64_t offset, int ranks) const { return {region_ + offset, ranks}; }
  // kStageBytes for the messages of a pair of ranks, likewise.
  std::uint64_t allocate_stage() { return allocate(kStageBytes); }
  std::byte* stage(std::uint64_t offset) const { return region_ + offset; }
  std::uint64_t world_group() const;

  // The first failure stays; every rank is woken.
  void fail(std::string_view reason);
  bool failed() const;
  std::string failure() const;
  // Throws PeerFailure if the world has failed, after every peer has let go of this rank's memory.
  void throw_if_failed(int rank);
  // Fails the world and throws CommunicationError(reason), after every peer has let go of this rank's memory.
  [[noreturn]] void raise(int rank, const std::string& reason);
  // Returns when no other rank is inside a Touching scope. After a failure none can be entered any more, so the caller may then
  // free memory that it had posted.
  void wait_until_untouched(int rank) const;

  // While alive, this rank reads or writes peers' memory. Throws PeerFailure if the world has failed.
  class Touching {
   public:
    Touching(SharedWorld& world, int rank);
    ~Touching();
    Touching(const Touching&) = delete;
    Touching& operator=(const Touching&) = delete;

   private:
    std::atomic<std::uint32_t>& flag_;
  };

 private:
  struct Header;
  struct RankState;
  static RankState* rank_states(std::byte* region);
  std::uint64_t allocate(std::uint64_t bytes);
  Header& header() const;
  RankState& rank_state(int rank) const;

  std::byte* region_;
  int ranks_;
  double timeout_seconds_;
  PeerMemory& memory_;
};

}  // namespace trident

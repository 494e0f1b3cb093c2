// A group of ranks that exchange messages: one rank's place in it, and what its operations share.
//
// Collectives of a group run one after another, in the order in which they were issued; so do messages of an ordered pair of ranks.
// Early messages wait in the wire. Every message begins with a header that says what its sender called, and so does, with
// checks, every collective between each pair of ranks in groups of up to kMostGreeted. In larger ones ranks that disagree are found
// out by what the step's statistics carry (Communicator::history()).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/at.h"
#include "core/check.h"
#include "device/buffer.h"
#include "device/host/cpu_stream.h"
#include "parallel/communicator/collective_kind.h"
#include "parallel/communicator/peer_failure.h"
#include "parallel/shared_memory/shared_world.h"
#include "parallel/communicator/message_options.h"
#include "parallel/transport/wire.h"

namespace trident {

// A rank's end of the wire, which all of its communicators share.
struct WireEndpoint {
  Wire* wire = nullptr;
  SharedWorld* node = nullptr;  // where failures are noted and seen
  int local_rank = 0;           // of this rank in `node`
  Progress* progress = nullptr;
  MessageOptions options{};
  std::int32_t next_channel = 0;  // no communicator of this rank uses it or a higher one
  std::vector<int> nodes{};        // of every global rank
  // Zero-filled memory that the ranks of the node can reach (ProcessWorld::allocate); only groups with unequally many ranks per
  // node take some, when they are split off.
  std::function<Buffer(std::int64_t bytes, const std::string& name)> allocate{};

  // The first of WireGroup::kChannels channels, now taken, for the parts that a group is split into. `free`: no rank of the group
  // uses it or a higher one.
  std::int32_t take_channels(std::int64_t free);
  bool test(Wire::Request request) {
    if (!wire->test(request)) return false;
    progress->note_advance();
    return true;
  }
};

// One direction of an operation with one peer: consecutive pieces, at most kWindow of them in flight.
class Transfer {
 public:
  static constexpr std::int64_t kWindow = 2;
  enum class Target : std::uint8_t { kInPlace, kStaged };  // staged: piece p lies at (p % kWindow) * piece

  void begin(std::byte* data, std::int64_t bytes, std::int64_t piece, Target target = Target::kInPlace);
  // Nothing is a message, too: that its sender is there.
  void begin_at_least_one(std::byte* data, std::int64_t bytes, std::int64_t piece) {
    begin(data, bytes, piece);
    pieces_ = std::max<std::int64_t>(pieces_, 1);
  }
  // Posts pieces below `limit` and looks at those in flight, oldest first.
  void send(WireEndpoint& endpoint, int peer, std::int32_t channel, std::int64_t limit) {
    advance(endpoint, Direction::kSend, peer, channel, limit);
  }
  void recv(WireEndpoint& endpoint, int peer, std::int32_t channel, std::int64_t limit) {
    advance(endpoint, Direction::kRecv, peer, channel, limit);
  }

  std::int64_t pieces() const { return pieces_; }
  std::int64_t done() const { return done_; }
  bool all_posted() const { return posted_ == pieces_; }
  bool complete() const { return done_ == pieces_; }

 private:
  enum class Direction : std::uint8_t { kSend, kRecv };
  void advance(WireEndpoint& endpoint, Direction direction, int peer, std::int32_t channel, std::int64_t limit);

  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0, piece_ = 1;
  Target target_ = Target::kInPlace;
  std::int64_t pieces_ = 0, posted_ = 0, done_ = 0;
  Wire::Request requests_[kWindow] = {};
};

class WireGroup {
 public:
  static constexpr std::int32_t kChannels = 3;  // collectives, messages, and collectives between equal members of nodes

  // Collectives travel on `channel`, messages on the next. Without staging there are no reductions.
  enum class Staging : std::uint8_t { kNone, kBounded };
  WireGroup(std::shared_ptr<WireEndpoint> endpoint, std::string name, int rank, std::vector<int> global_ranks, std::int32_t channel,
            Staging staging = Staging::kBounded);

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(global_ranks_.size()); }
  const std::vector<int>& global_ranks() const { return global_ranks_; }
  int global_rank() const { return global_rank_of(rank_); }
  int global_rank_of(int r) const { return at(global_ranks_, r); }
  std::int32_t channel() const { return channel_; }
  WireEndpoint& endpoint() const { return *endpoint_; }
  const std::shared_ptr<WireEndpoint>& shared_endpoint() const { return endpoint_; }
  Wire& wire() const { return *endpoint_->wire; }
  bool test(Wire::Request request) const { return endpoint_->test(request); }
  // Elements of a piece of a summand, and the bytes that pieces of all peers take.
  std::int64_t piece_elements(DType dtype) const { return chunk_bytes_ / size_of(dtype); }
  std::int64_t chunk_bytes() const { return chunk_bytes_; }
  std::int64_t staging_bytes() const { return Transfer::kWindow * chunk_bytes_ * (size() - 1); }
  std::byte* staging() const { return staging_.get(); }
  std::byte* staging_of(int r) const;

  void throw_if_failed() const { endpoint_->node->throw_if_failed(endpoint_->local_rank); }
  [[noreturn]] void raise(const std::string& reason) const { endpoint_->node->raise(endpoint_->local_rank, reason); }
  // Runs `action` on the wire; an error of the wire fails the node's world before it is thrown on.
  template <class F> auto guarded(F action) const {
    try {
      return action();
    } catch (const PeerFailure&) {
      throw;
    } catch (const CommunicationError& error) {
      raise(error.what());
    }
  }

  CollectiveChecks checks = CollectiveChecks::kOn;
  // Sequence numbers drawn, and those whose turn it is.
  struct Turns {
    std::uint64_t next = 0, now = 0;
  };
  Turns collectives;
  std::vector<Turns> sends, recvs;  // messages, by peer

  // The state of the collective whose turn it is, by peer.
  struct Peer {
    IssuedCall theirs;  // the first message of a collective, as of a message
    Wire::Request header_out = 0, header_in = 0;
    bool header_sent = true, header_received = true;
    Transfer out, in;
  };
  std::vector<Peer> peers;
  std::vector<const std::byte*> sources;  // of a reduction, by rank

 private:
  std::shared_ptr<WireEndpoint> endpoint_;
  std::string name_;
  int rank_;
  std::vector<int> global_ranks_;
  std::int32_t channel_;
  std::int64_t chunk_bytes_;
  std::unique_ptr<std::byte[]> staging_;  // takes no memory before it is used
};

// To where it may lie already.
void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes);

}  // namespace trident

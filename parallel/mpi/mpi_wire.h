// Messages between nodes over MPI.
//
// MPI counts in ints, so a message of piece_bytes or more travels in pieces: full ones and a last one that is smaller (perhaps
// empty). A receiver that expects another size therefore always meets a piece that is too large or too small, and never takes the
// next message's bytes for its own.
//
// MPI moves only in calls, and each costs about as much whatever it looks at. So one call looks at all pieces in flight: whoever
// tests messages in turn pays for one such look per round, not for one per message.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parallel/communicator/call_mark.h"
#include "parallel/mpi/mpi_group.h"
#include "parallel/transport/wire.h"

namespace trident {

class MpiWire final : public Wire {
 public:
  using HostOf = std::function<std::string(int rank)>;
  // `host_of`: a rank's host, for error messages. 1 <= piece_bytes <= 2^30. `calls`: says in which call of MPI the rank stands.
  MpiWire(MpiGroup world, HostOf host_of, std::int64_t piece_bytes, CallMark& calls);

  Request send(const std::byte* data, std::int64_t bytes, int peer, std::int32_t channel) override;
  Request recv(std::byte* data, std::int64_t bytes, int peer, std::int32_t channel) override;
  bool test(Request request) override;
  void poll() override;
  void abandon() noexcept override;
  std::int64_t bytes_sent() const override { return bytes_sent_; }

 private:
  enum class Direction : std::uint8_t { kSend, kRecv };
  // A piece of a message.
  struct Piece {
    Direction direction = Direction::kSend;
    int bytes = 0;
    std::int32_t next = kNone;  // piece of the message, or free entry
    int peer = 0;
    std::int64_t message_bytes = 0;
    std::uint64_t seen_at = 0;  // number of the look that last found it in flight
    bool done = false;
    int code = MPI_SUCCESS, arrived = 0;  // once done: how it ended; bytes of a receive
  };
  static constexpr std::int32_t kNone = -1;

  Request start(Direction direction, std::byte* data, std::int64_t bytes, int peer, std::int32_t channel);
  std::int32_t take_piece();
  bool test_piece(Piece& piece);
  void look();
  void note(int code, int completed);
  [[noreturn]] void refuse(const Piece& piece, const std::string& why) const;

  MpiGroup world_;
  HostOf host_of_;
  std::int64_t piece_bytes_;
  CallMark& calls_;
  int largest_tag_ = 0;
  std::vector<Piece> pieces_;  // entries, used and free
  std::int32_t free_ = kNone;
  std::vector<MPI_Request> in_flight_;  // as one call of MPI takes them
  std::vector<std::int32_t> entries_;   // whose they are
  std::vector<int> completed_;          // places in in_flight_; these two: room for what a look finds
  std::vector<MPI_Status> statuses_;
  std::uint64_t looks_ = 0;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace trident

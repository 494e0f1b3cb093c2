// Messages between nodes over MPI.
//
// MPI counts in ints, so a message of piece_bytes or more travels in pieces: full ones and a last one that is smaller (perhaps
// empty). A receiver that expects another size therefore always meets a piece that is too large or too small, and never takes the
// next message's bytes for its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/call_mark.h"
#include "parallel/mpi/mpi_group.h"
#include "parallel/wire.h"

namespace trident {

class MpiWire final : public Wire {
 public:
  // `hosts`: of every rank, for error messages. 1 <= piece_bytes <= 2^30. `calls`: says in which call of MPI the rank stands.
  MpiWire(MpiGroup world, std::vector<std::string> hosts, std::int64_t piece_bytes, CallMark& calls);

  Request send(const std::byte* data, std::int64_t bytes, int peer, std::int32_t channel) override;
  Request recv(std::byte* data, std::int64_t bytes, int peer, std::int32_t channel) override;
  bool test(Request request) override;
  void poll() override;
  void abandon() noexcept override;
  std::int64_t bytes_sent() const override { return bytes_sent_; }

 private:
  enum class Direction : std::uint8_t { kSend, kRecv };
  // A piece in flight; the first of a message speaks for it.
  struct Piece {
    MPI_Request request = MPI_REQUEST_NULL;
    Direction direction = Direction::kSend;
    int bytes = 0;
    std::int32_t next = kNone;  // piece of the message, or free entry
    int peer = 0;
    std::int64_t message_bytes = 0;
  };
  static constexpr std::int32_t kNone = -1;

  Request start(Direction direction, std::byte* data, std::int64_t bytes, int peer, std::int32_t channel);
  std::int32_t take_piece();
  bool test_piece(Piece& piece);
  [[noreturn]] void refuse(const Piece& piece, const std::string& why) const;

  MpiGroup world_;
  std::vector<std::string> hosts_;
  std::int64_t piece_bytes_;
  CallMark& calls_;
  int largest_tag_ = 0;
  std::vector<Piece> pieces_;  // entries, used and free
  std::int32_t free_ = kNone;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace trident

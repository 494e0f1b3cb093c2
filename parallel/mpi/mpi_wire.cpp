#include "parallel/mpi/mpi_wire.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "device/no_allocation.h"

namespace trident {

namespace {

constexpr std::size_t kEntries = 4096;

}  // namespace

MpiWire::MpiWire(MpiGroup world, std::vector<std::string> hosts, std::int64_t piece_bytes, CallMark& calls)
    : world_(world), hosts_(std::move(hosts)), piece_bytes_(piece_bytes), calls_(calls) {
  TRIDENT_CHECK(piece_bytes >= 1 && piece_bytes <= std::int64_t{1} << 30, "pieces of {} bytes", piece_bytes);
  int* largest = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(world_.comm, MPI_TAG_UB, &largest, &found), "MPI_Comm_get_attr");
  largest_tag_ = found != 0 ? *largest : 32767;  // what the standard promises
  pieces_.reserve(kEntries);
}

Wire::Request MpiWire::send(const std::byte* data, std::int64_t bytes, int peer, std::int32_t channel) {
  bytes_sent_ += bytes;
  return start(Direction::kSend, const_cast<std::byte*>(data), bytes, peer, channel);  // MPI only reads it
}

Wire::Request MpiWire::recv(std::byte* data, std::int64_t bytes, int peer, std::int32_t channel) {
  return start(Direction::kRecv, data, bytes, peer, channel);
}

Wire::Request MpiWire::start(Direction direction, std::byte* data, std::int64_t bytes, int peer, std::int32_t channel) {
  TRIDENT_CHECK(peer >= 0 && peer < world_.size && peer != world_.rank, "a message between ranks {} and {} of {}", world_.rank,
                peer, world_.size);
  TRIDENT_CHECK(bytes >= 0 && channel >= 0 && channel <= largest_tag_, "{} bytes on channel {} of 0..{}", bytes, channel,
                largest_tag_);
  Request first = kNone;
  std::int32_t last = kNone;
  for (std::int64_t left = bytes; left >= 0; left -= piece_bytes_) {
    const std::int32_t entry = take_piece();
    Piece& piece = pieces_[static_cast<std::size_t>(entry)];
    piece = {MPI_REQUEST_NULL, direction, static_cast<int>(std::min(left, piece_bytes_)), kNone, peer, bytes};
    (first == kNone ? first : pieces_[static_cast<std::size_t>(last)].next) = entry;
    last = entry;
    std::byte* const begin = data + (bytes - left);
    const bool sends = direction == Direction::kSend;
    const int code = calls_.during(sends ? MarkedCall::kIsend : MarkedCall::kIrecv, [&] {
      return sends ? MPI_Isend(begin, piece.bytes, MPI_BYTE, peer, channel, world_.comm, &piece.request)
                   : MPI_Irecv(begin, piece.bytes, MPI_BYTE, peer, channel, world_.comm, &piece.request);
    });
    if (code != MPI_SUCCESS) refuse(piece, mpi_error_text(code));
  }
  return first;
}

// Entries are kept; their number grows to that of the pieces ever in flight at once.
std::int32_t MpiWire::take_piece() {
  if (free_ != kNone) return std::exchange(free_, pieces_[static_cast<std::size_t>(free_)].next);
  const AllocationExemption beyond_what_was_reserved;
  pieces_.emplace_back();
  return static_cast<std::int32_t>(pieces_.size() - 1);
}

bool MpiWire::test(Request request) {
  bool all_done = true;
  std::int32_t last = kNone;
  for (std::int32_t entry = request; entry != kNone; entry = pieces_[static_cast<std::size_t>(entry)].next) {
    Piece& piece = pieces_[static_cast<std::size_t>(entry)];
    all_done = test_piece(piece) && all_done;
    last = entry;
  }
  if (!all_done) return false;
  pieces_[static_cast<std::size_t>(last)].next = std::exchange(free_, request);
  return true;
}

// MPI may call a send complete while its last bytes wait for room in a socket; any call moves them on.
void MpiWire::poll() {
  int found = 0;
  const int code = calls_.during(MarkedCall::kIprobe,
                                 [&] { return MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, world_.comm, &found, MPI_STATUS_IGNORE); });
  check_mpi(code, "MPI_Iprobe");
}

// Not MPI_Wait, which for a message that has begun to arrive waits for a peer that may be gone. Such a one is let go and lands no
// further, because MPI moves only in calls. What the library refuses here matters to nobody.
void MpiWire::abandon() noexcept {
  for (Piece& piece : pieces_) {
    if (piece.request == MPI_REQUEST_NULL) continue;
    if (piece.direction == Direction::kRecv) MPI_Cancel(&piece.request);
    MPI_Request_free(&piece.request);
  }
  pieces_.clear();
  free_ = kNone;
}

bool MpiWire::test_piece(Piece& piece) {
  if (piece.request == MPI_REQUEST_NULL) return true;
  int done = 0, arrived = 0;
  MPI_Status status;
  const int code = calls_.during(MarkedCall::kTest, [&] { return MPI_Test(&piece.request, &done, &status); });
  if (code != MPI_SUCCESS) {
    int kind = MPI_SUCCESS;
    MPI_Error_class(code, &kind);
    if (kind != MPI_ERR_TRUNCATE) refuse(piece, mpi_error_text(code));
    refuse(piece, "the peer sent more");
  }
  if (done == 0) return false;
  if (piece.direction == Direction::kSend) return true;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &arrived), "MPI_Get_count");
  if (arrived != piece.bytes) refuse(piece, "the peer sent less");
  return true;
}

void MpiWire::refuse(const Piece& piece, const std::string& why) const {
  const AllocationExemption message;
  throw CommunicationError(fmt::format("rank {}: {} of {} bytes {} rank {} on host {}: {}", world_.rank,
                                       piece.direction == Direction::kSend ? "send" : "recv", piece.message_bytes,
                                       piece.direction == Direction::kSend ? "to" : "from", piece.peer,
                                       hosts_[static_cast<std::size_t>(piece.peer)], why));
}

}  // namespace trident

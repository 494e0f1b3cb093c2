#include "parallel/mpi/mpi_wire.h"

#include <algorithm>
#include <utility>

#include "core/at.h"
#include "device/no_allocation.h"

namespace trident {

namespace {

constexpr std::size_t kEntries = 4096;

}  // namespace

MpiWire::MpiWire(MpiGroup world, HostOf host_of, std::int64_t piece_bytes, CallMark& calls)
    : world_(world), host_of_(std::move(host_of)), piece_bytes_(piece_bytes), calls_(calls) {
  TRIDENT_CHECK(piece_bytes >= 1 && piece_bytes <= std::int64_t{1} << 30, "pieces of {} bytes", piece_bytes);
  int* largest = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(world_.comm(), MPI_TAG_UB, &largest, &found), "MPI_Comm_get_attr");
  largest_tag_ = found != 0 ? *largest : 32767;  // what the standard promises
  pieces_.reserve(kEntries);
  in_flight_.reserve(kEntries);
  entries_.reserve(kEntries);
  completed_.resize(kEntries);
  statuses_.resize(kEntries);
}

Wire::Request MpiWire::send(const std::byte* data, std::int64_t bytes, int peer, std::int32_t channel) {
  bytes_sent_ += bytes;
  return start(Direction::kSend, const_cast<std::byte*>(data), bytes, peer, channel);  // MPI only reads it
}

Wire::Request MpiWire::recv(std::byte* data, std::int64_t bytes, int peer, std::int32_t channel) {
  return start(Direction::kRecv, data, bytes, peer, channel);
}

Wire::Request MpiWire::start(Direction direction, std::byte* data, std::int64_t bytes, int peer, std::int32_t channel) {
  TRIDENT_CHECK(peer >= 0 && peer < world_.size() && peer != world_.rank(), "a message between ranks {} and {} of {}",
                world_.rank(), peer, world_.size());
  TRIDENT_CHECK(bytes >= 0 && channel >= 0 && channel <= largest_tag_, "{} bytes on channel {} of 0..{}", bytes, channel,
                largest_tag_);
  Request first = kNone;
  std::int32_t last = kNone;
  for (std::int64_t left = bytes; left >= 0; left -= piece_bytes_) {
    const std::int32_t entry = take_piece();
    Piece& piece = at(pieces_, entry);
    piece = {direction, static_cast<int>(std::min(left, piece_bytes_)), kNone, peer, bytes, looks_};
    (first == kNone ? first : at(pieces_, last).next) = entry;
    last = entry;
    std::byte* const begin = data + (bytes - left);
    const bool sends = direction == Direction::kSend;
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = calls_.during(sends ? MarkedCall::kIsend : MarkedCall::kIrecv, [&] {
      return sends ? MPI_Isend(begin, piece.bytes, MPI_BYTE, peer, channel, world_.comm(), &request)
                   : MPI_Irecv(begin, piece.bytes, MPI_BYTE, peer, channel, world_.comm(), &request);
    });
    if (code != MPI_SUCCESS) refuse(piece, mpi_error_text(code));
    in_flight_.push_back(request);
    entries_.push_back(entry);
  }
  return first;
}

// Entries are kept; their number grows to that of the pieces ever in flight at once, and with it the room for their requests.
std::int32_t MpiWire::take_piece() {
  if (free_ != kNone) return std::exchange(free_, at(pieces_, free_).next);
  const AllocationExemption beyond_what_was_reserved;
  pieces_.emplace_back();
  in_flight_.reserve(pieces_.capacity());
  entries_.reserve(pieces_.capacity());
  completed_.resize(pieces_.capacity());
  statuses_.resize(pieces_.capacity());
  return static_cast<std::int32_t>(pieces_.size() - 1);
}

bool MpiWire::test(Request request) {
  bool all_done = true;
  std::int32_t last = kNone;
  for (std::int32_t entry = request; entry != kNone; entry = at(pieces_, entry).next) {
    Piece& piece = at(pieces_, entry);
    all_done = test_piece(piece) && all_done;
    last = entry;
  }
  if (!all_done) return false;
  at(pieces_, last).next = std::exchange(free_, request);
  return true;
}

// MPI may call a send complete while its last bytes wait for room in a socket; any call that finds nothing moves them on. That is a
// probe for what this rank never sends to itself. One for any message looks through the queues of all peers, and does not move when
// it finds what nobody has asked for yet; a look at what is in flight would find what the rank, about to sleep, does not see.
void MpiWire::poll() {
  int found = 0;
  const int code = calls_.during(
      MarkedCall::kIprobe, [&] { return MPI_Iprobe(world_.rank(), largest_tag_, world_.comm(), &found, MPI_STATUS_IGNORE); });
  check_mpi(code, "MPI_Iprobe");
}

// Not MPI_Wait, which for a message that has begun to arrive waits for a peer that may be gone. Such a one is let go and lands no
// further, because MPI moves only in calls. What the library refuses here matters to nobody.
void MpiWire::abandon() noexcept {
  for (std::size_t i = 0; i < in_flight_.size(); ++i) {
    if (at(pieces_, entries_[i]).direction == Direction::kRecv) MPI_Cancel(&in_flight_[i]);
    MPI_Request_free(&in_flight_[i]);
  }
  in_flight_.clear();
  entries_.clear();
  pieces_.clear();
  free_ = kNone;
}

// A piece that no look has seen since its last test was still in flight then; the first test after that looks for all.
bool MpiWire::test_piece(Piece& piece) {
  if (!piece.done && std::exchange(piece.seen_at, looks_) == looks_) {
    look();
    piece.seen_at = looks_;
  }
  if (!piece.done) return false;
  if (piece.code != MPI_SUCCESS) {
    int kind = MPI_SUCCESS;
    MPI_Error_class(piece.code, &kind);
    refuse(piece, kind == MPI_ERR_TRUNCATE ? "the peer sent more" : mpi_error_text(piece.code));
  }
  if (piece.direction == Direction::kRecv && piece.arrived != piece.bytes) refuse(piece, "the peer sent less");
  return true;
}

// One look at all that is in flight. What went wrong is said to whoever tests that message.
void MpiWire::look() {
  int completed = 0;
  const int code = calls_.during(MarkedCall::kTestsome, [&] {
    return MPI_Testsome(static_cast<int>(in_flight_.size()), in_flight_.data(), &completed, completed_.data(), statuses_.data());
  });
  ++looks_;
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) check_mpi(code, "MPI_Testsome");
  if (completed != MPI_UNDEFINED) note(code, completed);
}

void MpiWire::note(int code, int completed) {
  for (int i = 0; i < completed; ++i) {
    const auto place = static_cast<std::size_t>(at(completed_, i));
    const MPI_Status& status = at(statuses_, i);
    Piece& piece = at(pieces_, entries_[place]);
    piece.done = true;
    piece.code = code == MPI_ERR_IN_STATUS ? status.MPI_ERROR : MPI_SUCCESS;  // a field that success leaves as it was
    if (piece.code == MPI_SUCCESS && piece.direction == Direction::kRecv)
      check_mpi(MPI_Get_count(&status, MPI_BYTE, &piece.arrived), "MPI_Get_count");
    entries_[place] = kNone;
  }
  std::size_t kept = 0;
  for (std::size_t place = 0; place < in_flight_.size(); ++place) {
    if (entries_[place] == kNone) continue;
    in_flight_[kept] = in_flight_[place];
    entries_[kept++] = entries_[place];
  }
  in_flight_.resize(kept);
  entries_.resize(kept);
}

void MpiWire::refuse(const Piece& piece, const std::string& why) const {
  const AllocationExemption message;
  throw CommunicationError(fmt::format("rank {}: {} of {} bytes {} rank {} on host {}: {}", world_.rank(),
                                       piece.direction == Direction::kSend ? "send" : "recv", piece.message_bytes,
                                       piece.direction == Direction::kSend ? "to" : "from", piece.peer, host_of_(piece.peer), why));
}

}  // namespace trident

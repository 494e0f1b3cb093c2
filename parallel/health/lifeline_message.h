// The messages of lifelines and the connection that carries them: frames of a fixed size per kind, never blocking.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "core/file_descriptor.h"
#include "parallel/communicator/status_board.h"

namespace trident {

// SipHash-2-4 of 64 bits (Aumasson and Bernstein, 2012): a short keyed hash. Whoever does not know the key cannot make or check
// one.
using SipHashKey = std::array<std::uint8_t, 16>;

std::uint64_t siphash(const SipHashKey& key, std::string_view bytes);

// A caller and a listener introduce themselves, and each proves to the other that it knows the listener's key, which never travels
// here: a hash of both introductions, whose nonces make every call another one.
using LifelineNonce = std::array<std::uint8_t, 16>;
LifelineNonce random_nonce();  // CommunicationError

// Caller to listener, first.
struct LifelineHello {
  LifelineNonce nonce{};
  std::int32_t rank = -1, pid = 0;
  std::array<char, 64> host{};
};
// Listener to caller, in answer.
struct LifelineWelcome {
  LifelineHello hello;
  std::uint64_t proof = 0;
};
// Caller to listener, in answer, and on one of its connections only: it is a rank of the job, and this is the connection it means.
struct LifelineProof {
  std::uint64_t proof = 0;
};
enum class LifelineEnd : std::uint8_t { kCaller, kListener };
// The side at `end` proves itself with this number.
std::uint64_t lifeline_proof(const SipHashKey& key, LifelineEnd end, const LifelineHello& caller, const LifelineHello& listener);

// Every heartbeat, and in answer to LifelineAsk.
struct LifelineHeartbeat {
  RankStatus status;
  double idle_seconds = 0;       // since status.progress changed
  std::uint64_t is_answer = 0;
};
struct LifelineAsk {
  std::uint64_t unused = 0;
};
struct LifelineFailure {
  std::int32_t exit_code = 0;
  std::int32_t is_departure = 0;  // ended without goodbye and without a reason
  std::array<char, 1024> text{};
};
struct LifelineDecision {
  std::int32_t exit_code = 0;
  std::int32_t is_failure = 1;  // else the ranks have done all they had to, and merely do not part
  std::array<char, 3072> line{};
};
struct LifelineGoodbye {
  std::uint64_t unused = 0;
};
using LifelineMessage = std::variant<LifelineHello, LifelineWelcome, LifelineProof, LifelineHeartbeat, LifelineAsk, LifelineFailure,
                                     LifelineDecision, LifelineGoodbye>;

// One connection. A broken connection stays broken; nothing here throws or blocks.
class LifelineChannel {
 public:
  explicit LifelineChannel(FileDescriptor socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }
  bool open() const { return open_; }
  // Sends now what the system takes, keeps the rest for flush().
  void send(const LifelineMessage& message);
  void flush();
  bool has_unsent() const { return !outbox_.empty(); }
  // Takes in what has arrived; then next() gives it piece by piece, also when the connection has closed behind it. Words that are
  // no lifeline's close the connection.
  void receive();
  std::optional<LifelineMessage> next();

 private:
  FileDescriptor socket_;
  bool open_ = true;
  std::string inbox_, outbox_;
};

}  // namespace trident

// What lifelines say to each other, and the connection they say it over: frames of a fixed size per kind, never blocking.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "parallel/file_descriptor.h"
#include "parallel/lifeline_status.h"

namespace trident {

using LifelineToken = std::array<std::uint8_t, 16>;  // of one listener; keeps jobs apart, keeps nobody out who listens

// The first words of both ends: the caller says whom it looks for, the listener confirms.
struct LifelineHello {
  LifelineToken token{};
  std::int32_t rank = -1, pid = 0;
  std::array<char, 64> host{};
};
struct LifelineWelcome {
  LifelineHello hello;
};
// Every heartbeat, and in answer to LifelineAsk. The first one of a caller settles which of its connections is meant.
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
  std::int64_t exit_code = 0;
  std::array<char, 2048> line{};
};
struct LifelineGoodbye {
  std::uint64_t unused = 0;
};
using LifelineMessage = std::variant<LifelineHello, LifelineWelcome, LifelineHeartbeat, LifelineAsk, LifelineFailure,
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

#include "parallel/health/lifeline_message.h"

#include <sys/random.h>
#include <sys/socket.h>

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "core/check.h"

namespace trident {
namespace {

template <class Bytes>
std::uint64_t little_endian(const Bytes& bytes, std::size_t at, std::size_t count = 8) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < count; ++i) word |= std::uint64_t{static_cast<std::uint8_t>(bytes[at + i])} << (8 * i);
  return word;
}

struct State {
  std::uint64_t v0, v1, v2, v3;

  void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1, v1 = std::rotl(v1, 13), v1 ^= v0, v0 = std::rotl(v0, 32);
      v2 += v3, v3 = std::rotl(v3, 16), v3 ^= v2;
      v0 += v3, v3 = std::rotl(v3, 21), v3 ^= v0;
      v2 += v1, v1 = std::rotl(v1, 17), v1 ^= v2, v2 = std::rotl(v2, 32);
    }
  }
  void take(std::uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
};

}  // namespace

std::uint64_t siphash(const SipHashKey& key, std::string_view bytes) {
  const std::uint64_t k0 = little_endian(key, 0), k1 = little_endian(key, 8);
  // "somepseudorandomlygeneratedbytes", as the paper has it.
  State state{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573};
  const std::size_t whole = bytes.size() / 8 * 8;
  for (std::size_t at = 0; at < whole; at += 8) state.take(little_endian(bytes, at));
  state.take(little_endian(bytes, whole, bytes.size() - whole) | std::uint64_t{bytes.size()} << 56);
  state.v2 ^= 0xff;
  state.rounds(4);
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

namespace {

// Ranks of one job run one binary, so frames are structures as they lie in memory. "TLL2", the kind's index in LifelineMessage.
struct FrameHeader {
  std::uint32_t magic = 0x324c4c54;
  std::uint32_t kind = 0;
};

template <std::size_t i = 0>
std::optional<LifelineMessage> decode(std::size_t kind, const char* payload) {
  if constexpr (i < std::variant_size_v<LifelineMessage>) {
    if (kind != i) return decode<i + 1>(kind, payload);
    std::variant_alternative_t<i, LifelineMessage> message;
    static_assert(std::is_trivially_copyable_v<decltype(message)>);
    std::memcpy(static_cast<void*>(&message), payload, sizeof message);
    return message;
  }
  return std::nullopt;
}

template <std::size_t i = 0>
std::optional<std::size_t> payload_bytes(std::size_t kind) {
  if constexpr (i < std::variant_size_v<LifelineMessage>)
    return kind == i ? sizeof(std::variant_alternative_t<i, LifelineMessage>) : payload_bytes<i + 1>(kind);
  return std::nullopt;
}

bool try_again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

LifelineNonce random_nonce() {
  LifelineNonce nonce;
  if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size()))
    throw CommunicationError(fmt::format("lifeline: the system gives no random numbers: {}; start again", std::strerror(errno)));
  return nonce;
}

std::uint64_t lifeline_proof(const SipHashKey& key, LifelineEnd end, const LifelineHello& caller, const LifelineHello& listener) {
  static_assert(std::has_unique_object_representations_v<LifelineHello>);
  std::string words(1, static_cast<char>(end));
  for (const LifelineHello* hello : {&caller, &listener}) words.append(reinterpret_cast<const char*>(hello), sizeof *hello);
  return siphash(key, words);
}

void LifelineChannel::send(const LifelineMessage& message) {
  // Whoever does not read for minutes misses heartbeats, never the last words.
  constexpr std::size_t kBacklog = 1 << 16;
  if (outbox_.size() > kBacklog && std::holds_alternative<LifelineHeartbeat>(message)) return;
  FrameHeader header;
  header.kind = static_cast<std::uint32_t>(message.index());
  outbox_.append(reinterpret_cast<const char*>(&header), sizeof header);
  std::visit([&](const auto& payload) { outbox_.append(reinterpret_cast<const char*>(&payload), sizeof payload); }, message);
  flush();
}

void LifelineChannel::flush() {
  while (open_ && !outbox_.empty()) {
    const ssize_t sent = ::send(fd(), outbox_.data(), outbox_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && try_again()) return;
    if (sent < 0) break;  // receive() finds what was said before the connection broke, then its end
    outbox_.erase(0, static_cast<std::size_t>(sent));
  }
  outbox_.clear();
}

void LifelineChannel::receive() {
  constexpr std::size_t kFloor = 1 << 14;  // what is behind it comes with the next call
  std::array<char, 4096> chunk;
  while (open_ && inbox_.size() < kFloor) {
    const ssize_t got = recv(fd(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (got < 0 && try_again()) return;
    if (got <= 0) open_ = false;
    else inbox_.append(chunk.data(), static_cast<std::size_t>(got));
  }
}

std::optional<LifelineMessage> LifelineChannel::next() {
  FrameHeader header;
  if (inbox_.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, inbox_.data(), sizeof header);
  const std::optional<std::size_t> bytes = payload_bytes(header.kind);
  if (header.magic != FrameHeader().magic || !bytes) {
    open_ = false;
    inbox_.clear();
    return std::nullopt;
  }
  if (inbox_.size() < sizeof header + *bytes) return std::nullopt;
  std::optional<LifelineMessage> message = decode(header.kind, inbox_.data() + sizeof header);
  inbox_.erase(0, sizeof header + *bytes);
  return message;
}

}  // namespace trident

#include "parallel/health/socket_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/check.h"

namespace trident {
namespace {

std::span<const std::uint8_t> bytes_of(const sockaddr& address) {
  if (address.sa_family == AF_INET)
    return {reinterpret_cast<const std::uint8_t*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr), 4};
  if (address.sa_family == AF_INET6) return {reinterpret_cast<const sockaddr_in6&>(address).sin6_addr.s6_addr, 16};
  return {};
}

}  // namespace

std::optional<SocketAddress> socket_address(const std::string& text, int port) {
  SocketAddress address;
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
  if (inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<std::uint16_t>(port));
    address.length = sizeof v4;
  } else if (inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<std::uint16_t>(port));
    address.length = sizeof v6;
  } else {
    return std::nullopt;
  }
  return address;
}

std::string address_text(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const auto bytes = bytes_of(address);
  if (bytes.empty() || inet_ntop(address.sa_family, bytes.data(), text.data(), text.size()) == nullptr) return "";
  return text.data();
}

int port_of(const sockaddr& address) {
  if (address.sa_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  return address.sa_family == AF_INET6 ? ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port) : 0;
}

bool lies_in_network(const sockaddr& address, const std::string& network) {
  const std::size_t slash = network.find('/');
  const std::optional<SocketAddress> base = socket_address(network.substr(0, slash), 0);
  const auto mine = bytes_of(address);
  if (!base || mine.empty() || base->storage.ss_family != address.sa_family) return false;
  auto bits = 8 * mine.size();
  if (slash != std::string::npos) {
    const char* const end = network.data() + network.size();
    if (const auto [stop, error] = std::from_chars(network.data() + slash + 1, end, bits); error != std::errc() || stop != end)
      return false;
  }
  if (bits > 8 * mine.size()) return false;
  const auto theirs = bytes_of(*base->get());
  const std::size_t whole = bits / 8;
  if (std::memcmp(mine.data(), theirs.data(), whole) != 0) return false;
  const auto mask = static_cast<std::uint8_t>(0xff00 >> bits % 8);
  return bits % 8 == 0 || ((mine[whole] ^ theirs[whole]) & mask) == 0;
}

AbstractAddress abstract_address(const std::string& name) {
  AbstractAddress address;
  TRIDENT_CHECK(name.size() + 1 <= sizeof address.socket.sun_path, "a socket name of {} characters", name.size());
  address.socket.sun_family = AF_UNIX;
  std::memcpy(address.socket.sun_path + 1, name.data(), name.size());  // the zero before it makes the name an abstract one
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

std::string random_abstract_name() {
  std::array<std::uint64_t, 2> token{};
  if (getrandom(token.data(), sizeof token, 0) != static_cast<ssize_t>(sizeof token))
    throw ConfigError(fmt::format("the system gives no random numbers: {}", std::strerror(errno)));
  return fmt::format("trident-{:016x}{:016x}", token[0], token[1]);
}

bool is_same_user(int connection) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

}  // namespace trident

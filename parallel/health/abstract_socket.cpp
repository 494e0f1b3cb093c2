#include "parallel/health/abstract_socket.h"

#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/check.h"

namespace trident {

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

// A numeric IP address and a port as the system wants them.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <optional>
#include <string>

namespace trident {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
// None for a text that is no IPv4 or IPv6 address.
std::optional<SocketAddress> socket_address(const std::string& text, int port);
std::string address_text(const sockaddr& address);  // "" for other families
int port_of(const sockaddr& address);

// `network`: "10.0.0.0/24", "fd00::/8", or an address. False for other texts and other families.
bool lies_in_network(const sockaddr& address, const std::string& network);

// Unix sockets with names in the abstract namespace: no file system holds them, they end with their last descriptor, and processes
// of one network namespace find them. Anybody there may call; who did is asked of the kernel.
struct AbstractAddress {
  sockaddr_un socket{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&socket); }
};
// `name`: without the leading zero byte, at most 107 characters.
AbstractAddress abstract_address(const std::string& name);

// A name that nobody else has and nobody guesses. ConfigError when the system gives no random numbers.
std::string random_abstract_name();

// Both ends of a connection are processes of this user.
bool is_same_user(int connection);

}  // namespace trident

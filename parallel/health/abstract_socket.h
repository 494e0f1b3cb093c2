// Unix sockets with names in the abstract namespace: no file system holds them, they end with their last descriptor, and processes
// of one network namespace find them. Anybody there may call; who did is asked of the kernel.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string>

namespace trident {

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

#include "parallel/health/descriptor_handover.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/check.h"
#include "core/clock.h"
#include "parallel/health/socket_address.h"

namespace trident {

namespace {

// One byte with the descriptor as ancillary data.
struct Message {
  Message() {
    parts = {&byte, 1};
    header.msg_iov = &parts;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  char byte = 'm';
  iovec parts{};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
};

bool send_descriptor(int connection, int descriptor) {
  Message message;
  cmsghdr* const part = CMSG_FIRSTHDR(&message.header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(part), &descriptor, sizeof descriptor);
  return uninterrupted([&] { return sendmsg(connection, &message.header, MSG_NOSIGNAL); }) == 1;
}

}  // namespace

DescriptorHandover::DescriptorHandover()
    : name_(random_abstract_name()), listener_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const AbstractAddress address = abstract_address(name_);
  if (!listener_ || bind(listener_.get(), address.get(), address.length) != 0 || listen(listener_.get(), SOMAXCONN) != 0) {
    throw ConfigError(
        fmt::format("the ranks of a node hand each other their memory over an abstract Unix socket, which this system refuses: "
                    "{}; allow it (a container's seccomp or AppArmor profile may forbid it)",
                    std::strerror(errno)));
  }
}

void DescriptorHandover::give(int descriptor, int receivers, double timeout_seconds) {
  const double give_up = monotonic_seconds() + timeout_seconds;
  for (int served = 0; served < receivers;) {
    pollfd waiting{listener_.get(), POLLIN, 0};
    const double left = give_up - monotonic_seconds();
    const int ready = left > 0 ? poll(&waiting, 1, static_cast<int>(left * 1e3) + 1) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      throw CommunicationError(
          fmt::format("{} of this node's {} other ranks came for the node's memory within {:.3g} s; look for what the "
                      "others wrote",
                      served, receivers, timeout_seconds));
    }
    const FileDescriptor connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      throw ConfigError(fmt::format("this node's first rank has no room for the connection of another: {}; raise ulimit -n",
                                    std::strerror(errno)));
    }
    if (!is_same_user(connection.get())) continue;
    if (send_descriptor(connection.get(), descriptor)) ++served;
  }
}

FileDescriptor receive_descriptor(const std::string& name, double timeout_seconds) {
  const FileDescriptor connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const AbstractAddress address = abstract_address(name);
  if (!connection || uninterrupted([&] { return connect(connection.get(), address.get(), address.length); }) != 0) {
    throw CommunicationError(
        fmt::format("this node's first rank cannot be reached over a Unix socket: {}; ranks of one node must share a "
                    "network namespace",
                    std::strerror(errno)));
  }
  timeval timeout{};
  timeout.tv_sec = static_cast<time_t>(timeout_seconds) + 1;
  setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);

  Message message;
  ssize_t received = 0;
  const double until = monotonic_seconds() + timeout_seconds;  // a signal begins the socket's own limit anew
  do received = recvmsg(connection.get(), &message.header, MSG_CMSG_CLOEXEC);
  while (received < 0 && errno == EINTR && monotonic_seconds() < until);
  const cmsghdr* const part = received == 1 ? CMSG_FIRSTHDR(&message.header) : nullptr;
  if (part == nullptr || part->cmsg_type != SCM_RIGHTS || part->cmsg_len != CMSG_LEN(sizeof(int))) {
    throw CommunicationError(fmt::format("this node's first rank did not hand over the node's memory: {}",
                                         received < 0 ? std::strerror(errno) : "it ended, or runs as another user"));
  }
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(part), sizeof descriptor);
  return FileDescriptor(descriptor);
}

}  // namespace trident

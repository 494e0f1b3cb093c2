// Adds, changes and removes a loop's connections in epoll. Events carry the descriptor.
#pragma once

#include <sys/epoll.h>

#include <cstdint>

namespace trident {

inline void epoll_control(int epoll, int operation, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll, operation, fd, &event);
}

}  // namespace trident

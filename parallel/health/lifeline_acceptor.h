// The door of the hub or the deputy: who calls is a stranger until it has proved to be a rank of the job.
//
// Anybody may call, in any number, and keep silent or talk nonsense. A bounded number of strangers is kept, the oldest goes first,
// and each of them costs the same however many there are.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "parallel/health/lifeline_listener.h"
#include "parallel/health/lifeline_message.h"

namespace trident {

// Adds, changes and removes a loop's connections in epoll. Events carry the descriptor.
inline void epoll_control(int epoll, int operation, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll, operation, fd, &event);
}

class LifelineAcceptor {
 public:
  // Registers what it listens to and every stranger with `epoll`, which outlives it. `mine`: how this rank introduces itself, to
  // `ranks` ranks.
  LifelineAcceptor(int epoll, LifelineListener listener, const LifelineHello& mine, int ranks);

  bool knows(int fd) const;

  // A rank and its connection, which epoll no longer watches.
  using Arrival = std::pair<LifelineHello, LifelineChannel>;
  // Something happened at `fd`, which it knows. `now`: as for tend().
  std::optional<Arrival> serve(int fd, double now);
  // Sends away who has had its time, and listens again after a pause. To be called now and then; times never go back.
  void tend(double now);
  // "the system refused calls: Too many open files", or "".
  std::string refusal() const;

 private:
  struct UnverifiedPeer {
    LifelineChannel channel;
    LifelineHello mine;
    std::optional<LifelineHello> caller;
    double since = 0;
    std::list<int>::iterator place;  // in by_age_
  };
  void accept_calls(int listener, double now);
  bool is_listener(int fd) const;
  void drop(int fd);
  void drop_oldest() { drop(by_age_.front()); }
  void pause(int error, double now);

  const int epoll_;
  const LifelineListener listener_;
  const LifelineHello mine_;
  const int ranks_;
  std::unordered_map<int, UnverifiedPeer> unverified_;  // by descriptor
  std::list<int> by_age_;
  std::optional<double> listens_again_at_;
  int refused_by_ = 0;  // errno
};

}  // namespace trident

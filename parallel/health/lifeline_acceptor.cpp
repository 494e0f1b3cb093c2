#include "parallel/health/lifeline_acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/check.h"
#include "parallel/health/socket_address.h"

namespace trident {
namespace {

constexpr double kStrangerSeconds = 10;
constexpr double kRestSeconds = 0.25;  // of accepting, where the system has no room for another call
constexpr int kCallsAtOnce = 64;        // then whoever is known has a turn

// Every rank may call from several of its addresses at once.
std::size_t max_strangers(int ranks) { return 2 * static_cast<std::size_t>(ranks) + 64; }

bool has_caller(int listener) {
  pollfd waiting{listener, POLLIN, 0};
  return poll(&waiting, 1, 0) == 1;
}

// True where accept(2) failed because of one caller: the next call may succeed.
bool is_of_one_call(int error) {
  constexpr std::array kOfOne = {ECONNABORTED, EINTR,        EPROTO,     EPERM,    ENOPROTOOPT, EHOSTDOWN,
                                 ENONET,       EHOSTUNREACH, EOPNOTSUPP, ENETDOWN, ENETUNREACH};
  return std::find(kOfOne.begin(), kOfOne.end(), error) != kOfOne.end();
}

bool is_lack_of_room(int error) { return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM; }

}  // namespace

LifelineAcceptor::LifelineAcceptor(int epoll, LifelineListener listener, const LifelineHello& mine, int ranks)
    : epoll_(epoll), listener_(std::move(listener)), mine_(mine), ranks_(ranks) {
  for (const FileDescriptor& socket : listener_.sockets) epoll_control(epoll_, EPOLL_CTL_ADD, socket.get(), EPOLLIN);
}

bool LifelineAcceptor::is_listener(int fd) const {
  return std::any_of(listener_.sockets.begin(), listener_.sockets.end(), [&](const FileDescriptor& s) { return s.get() == fd; });
}

bool LifelineAcceptor::knows(int fd) const { return unverified_.contains(fd) || is_listener(fd); }

void LifelineAcceptor::accept_calls(int listener, double now) {
  for (int i = 0; i < kCallsAtOnce; ++i) {
    FileDescriptor call(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    const int error = call ? 0 : errno;
    if (is_lack_of_room(error)) {
      if (!has_caller(listener)) return;  // the system looks for a descriptor first: nobody goes for a call that there is not
      if (unverified_.empty()) return pause(error, now);
      drop_oldest();
      continue;
    }
    if (error == EAGAIN) return;
    if (!call && !is_of_one_call(error)) return pause(error, now);
    if (!call || (listener_.reach == LifelineReach::kNode && !is_same_user(call.get()))) continue;
    const int on = 1, fd = call.get();
    if (listener_.reach == LifelineReach::kNetwork) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    UnverifiedPeer stranger{LifelineChannel(std::move(call)), mine_, std::nullopt, now, by_age_.insert(by_age_.end(), fd)};
    unverified_.emplace(fd, std::move(stranger));
    epoll_control(epoll_, EPOLL_CTL_ADD, fd, EPOLLIN);
    if (unverified_.size() > max_strangers(ranks_)) drop_oldest();
  }
}

// Else epoll would report the call that cannot be taken again and again.
void LifelineAcceptor::pause(int error, double now) {
  refused_by_ = error;
  listens_again_at_ = now + kRestSeconds;
  for (const FileDescriptor& socket : listener_.sockets) epoll_control(epoll_, EPOLL_CTL_DEL, socket.get(), 0);
}

void LifelineAcceptor::drop(int fd) {
  const auto found = unverified_.find(fd);
  by_age_.erase(found->second.place);
  unverified_.erase(found);
}

std::optional<LifelineAcceptor::Arrival> LifelineAcceptor::serve(int fd, double now) {
  if (is_listener(fd)) {
    accept_calls(fd, now);
    return std::nullopt;
  }
  UnverifiedPeer& stranger = unverified_.at(fd);
  stranger.channel.receive();
  while (const std::optional<LifelineMessage> message = stranger.channel.next()) {
    const auto* hello = std::get_if<LifelineHello>(&*message);
    const auto* proof = std::get_if<LifelineProof>(&*message);
    const SipHashKey& key = listener_.contact.key;
    const auto is_expected = [&](int rank) { return rank > 0 && rank < ranks_ && rank != mine_.rank; };
    if (!stranger.caller && hello != nullptr && is_expected(hello->rank)) {
      stranger.caller = *hello;
      stranger.mine.nonce = random_nonce();
      stranger.channel.send(LifelineWelcome{stranger.mine, lifeline_proof(key, LifelineEnd::kListener, *hello, stranger.mine)});
    } else if (stranger.caller && proof != nullptr &&
               proof->proof == lifeline_proof(key, LifelineEnd::kCaller, *stranger.caller, stranger.mine)) {
      Arrival arrival{*stranger.caller, std::move(stranger.channel)};
      epoll_control(epoll_, EPOLL_CTL_DEL, fd, 0);
      drop(fd);
      return arrival;
    } else {
      drop(fd);
      return std::nullopt;
    }
  }
  if (!stranger.channel.open()) drop(fd);
  return std::nullopt;
}

void LifelineAcceptor::tend(double now) {
  while (!by_age_.empty() && now - unverified_.at(by_age_.front()).since > kStrangerSeconds) drop_oldest();
  if (!listens_again_at_ || now < *listens_again_at_) return;
  listens_again_at_.reset();
  for (const FileDescriptor& socket : listener_.sockets) epoll_control(epoll_, EPOLL_CTL_ADD, socket.get(), EPOLLIN);
}

std::string LifelineAcceptor::refusal() const {
  return refused_by_ == 0 ? "" : fmt::format("the system refused calls: {}", std::strerror(refused_by_));
}

}  // namespace trident

#include "parallel/health/lifeline_dial.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "parallel/health/socket_address.h"

namespace trident {
namespace {

constexpr double kConnectSeconds = 10, kConnectSecondsPerRank = 5e-3;
constexpr double kNextSeconds = 0.3, kNextSecondsPerRank = 5e-4;  // an endpoint that has not answered by then gets company
constexpr double kSpreadSecondsPerRank = 5e-5;                    // ranks do not begin all at once
constexpr double kPauseSeconds = 0.25, kLongestPauseSeconds = 4;  // none answered: from then on once more

constexpr const char* kNotTried = "not tried";

// One endpoint of the listener being called.
struct Call {
  LifelineEndpoint endpoint;
  std::optional<LifelineChannel> channel;
  LifelineHello hello;
  bool connected = false;
  std::string outcome = kNotTried;
};

bool connect_to(const LifelineEndpoint& endpoint, FileDescriptor& socket, std::string& refusal) {
  const std::optional<SocketAddress> remote = endpoint.port == 0 ? std::nullopt : socket_address(endpoint.address, endpoint.port);
  if (endpoint.port != 0 && !remote) {
    refusal = "no numeric address";
    return false;
  }
  const AbstractAddress local = remote ? AbstractAddress() : abstract_address(endpoint.address);
  const sockaddr* const address = remote ? remote->get() : local.get();
  socket = FileDescriptor(::socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket || (connect(socket.get(), address, remote ? remote->length : local.length) != 0 && errno != EINPROGRESS)) {
    refusal = std::strerror(errno);
    return false;
  }
  if (!remote && !is_same_user(socket.get())) {
    refusal = "another user's";
    return false;
  }
  const int on = 1;
  if (remote) setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return true;
}

void start(Call& call, const LifelineHello& mine) {
  call.channel.reset();
  call.connected = false;
  call.hello = mine;
  call.hello.nonce = random_nonce();
  FileDescriptor socket;
  if (!connect_to(call.endpoint, socket, call.outcome)) return;
  if (call.outcome == kNotTried) call.outcome = "no answer";  // what an earlier try met says more
  call.channel.emplace(std::move(socket));
}

// The connection has something to say: it stands, was refused, or the listener answered. True when it is the one.
bool advance(Call& call, const SipHashKey& key, LifelineHello& answer) {
  if (!call.connected) {
    int error = 0;
    socklen_t bytes = sizeof error;
    getsockopt(call.channel->fd(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error != 0) {
      call.outcome = std::strerror(error);
      call.channel.reset();
      return false;
    }
    call.connected = true;
    call.channel->send(call.hello);
  }
  call.channel->flush();
  call.channel->receive();
  if (const std::optional<LifelineMessage> message = call.channel->next()) {
    const auto* welcome = std::get_if<LifelineWelcome>(&*message);
    if (welcome != nullptr && welcome->proof == lifeline_proof(key, LifelineEnd::kListener, call.hello, welcome->hello)) {
      answer = welcome->hello;
      call.channel->send(LifelineProof{lifeline_proof(key, LifelineEnd::kCaller, call.hello, welcome->hello)});
      return true;
    }
    call.outcome = "somebody else answered";
    call.channel.reset();
  } else if (!call.channel->open()) {
    call.outcome = "hung up or is not this job's";
    call.channel.reset();
  }
  return false;
}

std::string outcomes(const std::vector<Call>& calls) {
  std::string text;
  for (const Call& call : calls) text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", describe(call.endpoint), call.outcome);
  return text;
}

// Waits until one of the calls has something to say, at most `seconds`; the calls that do.
std::vector<Call*> wait_for_any(std::vector<Call>& calls, double seconds) {
  std::vector<pollfd> descriptors;
  std::vector<Call*> calling, ready;
  for (Call& call : calls) {
    if (!call.channel) continue;
    descriptors.push_back({call.channel->fd(), static_cast<short>(call.connected ? POLLIN : POLLOUT), 0});
    calling.push_back(&call);
  }
  poll(descriptors.data(), descriptors.size(), std::max(1, static_cast<int>(1000 * seconds)));
  for (std::size_t i = 0; i < calling.size(); ++i)
    if (descriptors[i].revents != 0) ready.push_back(calling[i]);
  return ready;
}

}  // namespace

double lifeline_connect_seconds(int ranks) { return kConnectSeconds + kConnectSecondsPerRank * ranks; }

LifelineChannel dial_lifeline(const LifelineContact& contact, const LifelineCall& call, LifelineHello& answer) {
  std::vector<Call> calls;
  for (const LifelineEndpoint& endpoint : contact.endpoints) calls.push_back({endpoint, {}, {}, false, kNotTried});
  std::minstd_rand dice(static_cast<unsigned>(call.mine.rank + 2) * 48271u);
  std::uniform_real_distribution<double> share(0.5, 1.5);
  const double begin = monotonic_seconds(), deadline = begin + call.seconds;
  std::size_t next = 0;
  double next_start = begin + kSpreadSecondsPerRank * call.ranks * (share(dice) - 0.5), pause = kPauseSeconds;
  for (double now = begin; now < deadline; now = monotonic_seconds()) {
    if (next < calls.size() && now >= next_start) {
      start(calls[next++], call.mine);
      next_start = now + (kNextSeconds + kNextSecondsPerRank * call.ranks) * share(dice);
    }
    const bool any_pending = std::any_of(calls.begin(), calls.end(), [](const Call& c) { return c.channel.has_value(); });
    if (!any_pending && next == calls.size()) {
      next = 0;
      next_start = now + pause * share(dice);
      pause = std::min(2 * pause, kLongestPauseSeconds);
    } else if (!any_pending && next > 0) {
      next_start = now;
      continue;
    }
    for (Call* ready : wait_for_any(calls, std::min(deadline, next < calls.size() ? next_start : deadline) - now))
      if (advance(*ready, contact.key, answer)) return std::move(*ready->channel);
  }
  const bool is_network = std::any_of(calls.begin(), calls.end(), [](const Call& c) { return c.endpoint.port != 0; });
  throw CommunicationError(
      fmt::format("lifeline: rank {} on host {} reached rank {} on host {} within {:.3g} s at none of its addresses ({}); {}",
                  call.mine.rank, field_text(call.mine.host), call.listener_rank, contact.host, call.seconds, outcomes(calls),
                  is_network ? "let TCP connections between the job's hosts pass the firewall"
                             : "start the ranks of a node in one network namespace, as one user"));
}

void make_room_for_descriptors(std::int64_t needed, const std::string& who) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_max >= static_cast<rlim_t>(needed)) return;
  throw ConfigError(
      fmt::format("{} needs {} open files, {} are allowed; raise the hard limit (ulimit -Hn {}; under Slurm "
                  "LimitNOFILE of slurmd, or the submitting shell's)",
                  who, needed, limit.rlim_max, needed));
}

}  // namespace trident

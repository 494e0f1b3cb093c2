#include "parallel/lifeline_dial.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "core/check.h"
#include "core/clock.h"

namespace trident {
namespace {

constexpr std::string_view kCardName = "trident-lifeline", kCardVersion = "1";
constexpr double kNextAddressSeconds = 0.2;  // an address that has not answered by then gets company
constexpr double kNextRoundSeconds = 0.5;    // all refused: from then on once more

struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
};

std::optional<Address> make_address(const std::string& text, int port) {
  Address address;
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
  if (inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<std::uint16_t>(port));
    address.bytes = sizeof v4;
  } else if (inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<std::uint16_t>(port));
    address.bytes = sizeof v6;
  } else {
    return std::nullopt;
  }
  return address;
}

std::string address_text(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = address.sa_family == AF_INET
                          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr)
                          : &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return inet_ntop(address.sa_family, bytes, text.data(), text.size()) == nullptr ? "" : text.data();
}

bool is_link_local(const sockaddr& address) {
  return address.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

// One family at a time: a socket for both where the kernel has IPv6, else for IPv4.
FileDescriptor bind_any(int family) {
  FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return {};
  const int off = 0;
  Address address;
  address.storage.ss_family = static_cast<sa_family_t>(family);  // all addresses, any port: zeros
  address.bytes = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (family == AF_INET6) setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(socket.get(), reinterpret_cast<sockaddr*>(&address.storage), address.bytes) != 0) return {};
  if (listen(socket.get(), SOMAXCONN) != 0) return {};
  return socket;
}

// One address of the listener being called.
struct Call {
  std::string address;
  std::optional<LifelineChannel> channel;
  bool connected = false;
  std::string outcome = "not tried";
};

void start(Call& call, int port) {
  call.channel.reset();
  call.connected = false;
  const std::optional<Address> address = make_address(call.address, port);
  if (!address) {
    call.outcome = "no numeric address";
    return;
  }
  FileDescriptor socket(::socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket ||
      (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address->storage), address->bytes) != 0 && errno != EINPROGRESS)) {
    call.outcome = std::strerror(errno);
    return;
  }
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  call.outcome = "no answer";
  call.channel.emplace(std::move(socket));
}

// The connection has something to say: it stands, was refused, or the listener answered. True when it is the one.
bool advance(Call& call, const LifelineHello& mine, LifelineHello& answer) {
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
    call.channel->send(mine);
  }
  call.channel->flush();
  call.channel->receive();
  if (const std::optional<LifelineMessage> message = call.channel->next()) {
    const auto* welcome = std::get_if<LifelineWelcome>(&*message);
    if (welcome != nullptr && welcome->hello.token == mine.token) {
      answer = welcome->hello;
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
  for (const Call& call : calls) text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", call.address, call.outcome);
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

std::string to_text(const LifelineCard& card) {
  std::string token, addresses;
  for (const std::uint8_t byte : card.token) token += fmt::format("{:02x}", byte);
  for (const std::string& address : card.addresses) addresses += (addresses.empty() ? "" : ",") + address;
  return fmt::format("{} {} {} {} {} {}", kCardName, kCardVersion, token, card.port, card.host, addresses);
}

LifelineCard parse_lifeline_card(std::string_view text) {
  std::istringstream words{std::string(text)};
  std::string name, version, token, addresses;
  LifelineCard card;
  words >> name >> version >> token >> card.port >> card.host >> addresses;
  bool valid = !words.fail() && name == kCardName && version == kCardVersion && token.size() == 2 * card.token.size();
  for (std::size_t i = 0; valid && i < card.token.size(); ++i) {
    const char* digits = token.data() + 2 * i;
    valid = std::from_chars(digits, digits + 2, card.token[i], 16).ptr == digits + 2;
  }
  if (!valid)
    throw CommunicationError(
        fmt::format("lifeline: \"{}\" is no contact card of this version; start the same build on all ranks", text));
  std::istringstream list(addresses);
  for (std::string address; std::getline(list, address, ',');) card.addresses.push_back(address);
  return card;
}

std::vector<std::string> own_addresses() {
  ifaddrs* first = nullptr;
  getifaddrs(&first);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> guard(first, [](ifaddrs* list) { if (list != nullptr) freeifaddrs(list); });
  std::vector<std::string> v4, v6;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
    if (entry->ifa_addr->sa_family == AF_INET) v4.push_back(address_text(*entry->ifa_addr));
    if (entry->ifa_addr->sa_family == AF_INET6 && !is_link_local(*entry->ifa_addr)) v6.push_back(address_text(*entry->ifa_addr));
  }
  v4.insert(v4.end(), v6.begin(), v6.end());
  v4.emplace_back("127.0.0.1");
  return v4;
}

LifelineListener open_lifeline_listener(const std::string& host) {
  LifelineListener listener;
  listener.socket = bind_any(AF_INET6);
  if (!listener.socket) listener.socket = bind_any(AF_INET);
  sockaddr_storage bound{};
  socklen_t bytes = sizeof bound;
  if (!listener.socket || getsockname(listener.socket.get(), reinterpret_cast<sockaddr*>(&bound), &bytes) != 0 ||
      getrandom(listener.card.token.data(), listener.card.token.size(), 0) != static_cast<ssize_t>(listener.card.token.size())) {
    throw CommunicationError(fmt::format("lifeline: host {} cannot listen on a TCP port: {}; raise ulimit -n or free some ports",
                                         host, std::strerror(errno)));
  }
  listener.card.port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                                         : reinterpret_cast<sockaddr_in&>(bound).sin_port);
  listener.card.host = host;
  listener.card.addresses = own_addresses();
  return listener;
}

LifelineChannel dial_lifeline(const LifelineCard& card, int listener_rank, LifelineHello mine, double seconds,
                              LifelineHello& answer) {
  mine.token = card.token;
  std::vector<Call> calls;
  for (const std::string& address : card.addresses) calls.push_back({address, {}, false, "not tried"});
  // Neighbours on one host meet on its loopback, which no firewall and no missing route concerns.
  if (card.host == field_text(mine.host)) std::reverse(calls.begin(), calls.end());
  const double deadline = monotonic_seconds() + seconds;
  std::size_t next = 0;
  double next_start = 0;
  for (double now = monotonic_seconds(); now < deadline; now = monotonic_seconds()) {
    if (next < calls.size() && now >= next_start) {
      start(calls[next++], card.port);
      next_start = now + kNextAddressSeconds;
    }
    const bool any_pending = std::any_of(calls.begin(), calls.end(), [](const Call& call) { return call.channel.has_value(); });
    if (!any_pending && next == calls.size()) {
      next = 0;
      next_start = now + kNextRoundSeconds;
    } else if (!any_pending && next > 0) {
      next_start = now;
      continue;
    }
    for (Call* call : wait_for_any(calls, std::min(deadline, next < calls.size() ? next_start : deadline) - now))
      if (advance(*call, mine, answer)) return std::move(*call->channel);
  }
  throw CommunicationError(
      fmt::format("lifeline: rank {} on host {} reached rank {} on host {} within {:.3g} s at none of its addresses, port {} "
                  "({}); let TCP connections between the job's hosts pass the firewall",
                  mine.rank, field_text(mine.host), listener_rank, card.host, seconds, card.port, outcomes(calls)));
}

void make_room_for_descriptors(int ranks) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t wanted = 3 * static_cast<rlim_t>(ranks) + 512, needed = static_cast<rlim_t>(ranks) + 64;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max < needed)
    throw CommunicationError(fmt::format("lifeline: {} ranks need {} open files on ranks 0 and 1, {} are allowed; raise ulimit -Hn",
                                         ranks, needed, limit.rlim_max));
}

FileDescriptor claim_job(const LifelineToken& token) {
  std::string name(1, '\0');
  name += "trident-lifeline-";
  for (const std::uint8_t byte : token) name += fmt::format("{:02x}", byte);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path, sizeof address.sun_path);
  FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  return bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0 ? std::move(socket) : FileDescriptor();
}

}  // namespace trident

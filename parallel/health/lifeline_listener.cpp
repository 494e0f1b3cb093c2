#include "parallel/health/lifeline_listener.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "core/check.h"
#include "parallel/health/socket_address.h"

namespace trident {
namespace {

constexpr std::string_view kContactName = "trident-lifeline", kContactVersion = "2";

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream list(text);
  for (std::string part; std::getline(list, part, ',');)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

bool is_named(const ifaddrs& interface, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return name == interface.ifa_name || lies_in_network(*interface.ifa_addr, name);
  });
}

bool is_link_local(const sockaddr& address) {
  return address.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

FileDescriptor listen_at(const sockaddr* address, socklen_t length) {
  FileDescriptor socket(::socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket || bind(socket.get(), address, length) != 0 || listen(socket.get(), SOMAXCONN) != 0) return {};
  return socket;
}

void listen_on_node(LifelineListener& listener) {
  const std::string name = random_abstract_name();
  const AbstractAddress address = abstract_address(name);
  FileDescriptor socket = listen_at(address.get(), address.length);
  if (!socket) return;
  listener.sockets.push_back(std::move(socket));
  listener.contact.endpoints.push_back({name, 0});
}

// An address that the system refuses, because it just went away, say, is left out.
void listen_on_network(LifelineListener& listener, const std::vector<std::string>& addresses) {
  for (const std::string& text : addresses) {
    const SocketAddress address = *socket_address(text, 0);
    FileDescriptor socket = listen_at(address.get(), address.length);
    sockaddr_storage bound{};
    socklen_t bytes = sizeof bound;
    if (!socket || getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &bytes) != 0) continue;
    listener.sockets.push_back(std::move(socket));
    listener.contact.endpoints.push_back({text, port_of(reinterpret_cast<const sockaddr&>(bound))});
  }
}

std::string hexadecimal(const SipHashKey& key) {
  std::string text;
  for (const std::uint8_t byte : key) text += fmt::format("{:02x}", byte);
  return text;
}

std::optional<LifelineEndpoint> parse_endpoint(const std::string& text) {
  const std::size_t at = text.find('@');
  if (at == std::string::npos || at == 0) return std::nullopt;
  LifelineEndpoint endpoint{text.substr(0, at), 0};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + at + 1, end, endpoint.port);
  if (error != std::errc() || stop != end || endpoint.port < 0 || endpoint.port > 65535) return std::nullopt;
  return endpoint;
}

}  // namespace

std::string describe(const LifelineEndpoint& endpoint) {
  return endpoint.port == 0 ? "a Unix socket" : fmt::format("{} port {}", endpoint.address, endpoint.port);
}

std::string to_text(const LifelineContact& contact) {
  std::string endpoints;
  for (const LifelineEndpoint& e : contact.endpoints)
    endpoints += fmt::format("{}{}@{}", endpoints.empty() ? "" : ",", e.address, e.port);
  return fmt::format("{} {} {} {} {}", kContactName, kContactVersion, hexadecimal(contact.key), contact.host, endpoints);
}

LifelineContact parse_lifeline_contact(std::string_view text) {
  std::istringstream words{std::string(text)};
  std::string name, version, key, endpoints;
  LifelineContact contact;
  words >> name >> version >> key >> contact.host >> endpoints;
  bool valid = !words.fail() && name == kContactName && version == kContactVersion && key.size() == 2 * contact.key.size();
  for (std::size_t i = 0; valid && i < contact.key.size(); ++i) {
    const char* digits = key.data() + 2 * i;
    valid = std::from_chars(digits, digits + 2, contact.key[i], 16).ptr == digits + 2;
  }
  for (const std::string& part : split(endpoints)) {
    const std::optional<LifelineEndpoint> endpoint = parse_endpoint(part);
    valid = valid && endpoint;
    if (endpoint) contact.endpoints.push_back(*endpoint);
  }
  if (!valid)  // without its text, which may hold a key
    throw CommunicationError("lifeline: a rank's contact is not of this version; start the same build on all ranks");
  return contact;
}

std::vector<std::string> own_addresses(const InterfaceChoice& choice, const std::string& host) {
  ifaddrs* first = nullptr;
  getifaddrs(&first);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> guard(first, [](ifaddrs* list) {
    if (list != nullptr) freeifaddrs(list);
  });
  const std::vector<std::string> included = split(choice.include), excluded = split(choice.exclude);
  std::vector<std::string> v4, v6;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0 || is_link_local(*entry->ifa_addr)) continue;
    if (included.empty() ? (entry->ifa_flags & IFF_LOOPBACK) != 0 || is_named(*entry, excluded) : !is_named(*entry, included))
      continue;
    if (entry->ifa_addr->sa_family == AF_INET) v4.push_back(address_text(*entry->ifa_addr));
    if (entry->ifa_addr->sa_family == AF_INET6) v6.push_back(address_text(*entry->ifa_addr));
  }
  v4.insert(v4.end(), v6.begin(), v6.end());
  if (v4.empty() && !included.empty())
    throw ConfigError(
        fmt::format("btl_tcp_if_include = {}: host {} has no such interface or network; name one that all hosts of the job have",
                    choice.include, host));
  if (v4.empty()) v4.emplace_back("127.0.0.1");
  return v4;
}

LifelineListener open_lifeline_listener(const std::string& host, LifelineReach reach, const InterfaceChoice& interfaces) {
  LifelineListener listener;
  listener.reach = reach;
  listener.contact.host = host;
  if (getrandom(listener.contact.key.data(), listener.contact.key.size(), 0) != static_cast<ssize_t>(listener.contact.key.size()))
    throw CommunicationError(fmt::format("lifeline: the system gives no random numbers: {}; start again", std::strerror(errno)));
  if (reach == LifelineReach::kNode)
    listen_on_node(listener);
  else
    listen_on_network(listener, own_addresses(interfaces, host));
  if (listener.sockets.empty())
    throw CommunicationError(fmt::format("lifeline: host {} cannot listen on {}: {}; raise ulimit -n{}", host,
                                         reach == LifelineReach::kNode ? "a Unix socket" : "a TCP port", std::strerror(errno),
                                         reach == LifelineReach::kNode ? "" : " or free some ports"));
  return listener;
}

// A name that does not give the key away: others see it in /proc/net/unix.
FileDescriptor claim_job(const SipHashKey& job) {
  const AbstractAddress address = abstract_address(fmt::format("trident-lifeline-{:016x}", siphash(job, "claim")));
  FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return bind(socket.get(), address.get(), address.length) == 0 ? std::move(socket) : FileDescriptor();
}

}  // namespace trident

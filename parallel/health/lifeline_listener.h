// Where lifelines listen, and the text that says so to the job.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_descriptor.h"
#include "parallel/communicator/launcher.h"
#include "parallel/health/lifeline_message.h"

namespace trident {

enum class LifelineReach : std::uint8_t {
  kNode,    // a Unix socket, for processes of this user on this node; no port
  kNetwork  // TCP, on the interfaces that MPI uses
};

// An IP address and a port, or the name of an abstract Unix socket and 0.
struct LifelineEndpoint {
  std::string address;
  int port = 0;
  bool operator==(const LifelineEndpoint&) const = default;
};
std::string describe(const LifelineEndpoint& endpoint);  // "10.0.0.1 port 4711", "a Unix socket"

// A listener tells the job its contact: "trident-lifeline 2 <key> <host> <address>@<port>,...". Host names have no spaces.
struct LifelineContact {
  SipHashKey key{};  // the secret by which both ends of a call know each other; it reaches the ranks through MPI
  std::string host;
  std::vector<LifelineEndpoint> endpoints;
};
std::string to_text(const LifelineContact& contact);
LifelineContact parse_lifeline_contact(std::string_view text);  // CommunicationError

// This host's addresses on interfaces that are up: those of `choice`, or all but loopback and link-local ones; loopback where there
// are no others. ConfigError when the host has none of those included.
std::vector<std::string> own_addresses(const InterfaceChoice& choice, const std::string& host);

struct LifelineListener {
  std::vector<FileDescriptor> sockets;  // non-blocking, one for every endpoint of the contact
  LifelineReach reach = LifelineReach::kNetwork;
  LifelineContact contact;
};
// Listens at ports that the kernel chooses. CommunicationError when the system refuses.
LifelineListener open_lifeline_listener(const std::string& host, LifelineReach reach = LifelineReach::kNetwork,
                                        const InterfaceChoice& interfaces = {});

// The job's name on this node: a descriptor for the first process that asks, none for others until it is closed.
FileDescriptor claim_job(const SipHashKey& job);

}  // namespace trident

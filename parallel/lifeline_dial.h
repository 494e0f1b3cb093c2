// How lifelines find each other: listening sockets, the text that says where they are, and calling them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/lifeline_message.h"

namespace trident {

// What a listener tells the job: "trident-lifeline 1 <token> <port> <host> <address>,<address>...". Host names have no spaces.
struct LifelineCard {
  LifelineToken token{};
  int port = 0;
  std::string host;
  std::vector<std::string> addresses;  // numeric, IPv4 and IPv6; loopback last
};
std::string to_text(const LifelineCard& card);
LifelineCard parse_lifeline_card(std::string_view text);  // CommunicationError

// This host's addresses on interfaces that are up, without link-local ones; loopback last.
std::vector<std::string> own_addresses();

struct LifelineListener {
  FileDescriptor socket;  // non-blocking, at an ephemeral port of all addresses
  LifelineCard card;
};
LifelineListener open_lifeline_listener(const std::string& host);

// Calls the listener at all of its addresses, one shortly after the other; the first that answers with its token is the one. On
// return `answer` is what it said. CommunicationError that names the addresses and what each said, after `seconds`.
LifelineChannel dial_lifeline(const LifelineCard& card, int listener_rank, LifelineHello mine, double seconds,
                              LifelineHello& answer);

// Raises this process's limit of open files to what a hub of `ranks` ranks needs, within the hard limit. CommunicationError.
void make_room_for_descriptors(int ranks);

// The job's name in this network namespace: a descriptor for the first process that asks, none for others until it is closed.
FileDescriptor claim_job(const LifelineToken& token);

}  // namespace trident

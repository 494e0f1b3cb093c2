// Calling a lifeline that listens.
#pragma once

#include <cstdint>
#include <string>

#include "parallel/health/lifeline_listener.h"
#include "parallel/health/lifeline_message.h"

namespace trident {

// How long a rank of so many may take to connect: all call at once, and one process answers them one after the other.
double lifeline_connect_seconds(int ranks);

struct LifelineCall {
  LifelineHello mine;     // its nonce is drawn anew for every try
  int listener_rank = 0;  // for messages
  int ranks = 1;          // that call at about the same time
  double seconds = 10;    // until the call is given up
};
// Calls the listener at its endpoints, one after the other and again after pauses that grow and differ from rank to rank; the first
// that proves to know the contact's key is the one, and is given this end's proof. On return `answer` is how it introduced itself.
// CommunicationError that names the endpoints and what each said.
LifelineChannel dial_lifeline(const LifelineContact& contact, const LifelineCall& call, LifelineHello& answer);

// Raises this process's limit of open files to the hard one. ConfigError, naming `who`, when that is below `needed`.
void make_room_for_descriptors(std::int64_t needed, const std::string& who);

}  // namespace trident

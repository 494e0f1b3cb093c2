// Messages between ranks that share no memory: the seam between communicators of several nodes and what carries their bytes.
//
// A message goes from one global rank to another on a channel; messages of one (sender, receiver, channel) arrive in the order in
// which they were sent, and each is received by one recv() of exactly its size. Nothing blocks; nothing moves unless somebody calls
// test() or poll(). Used by the rank's thread only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trident {

class Wire {
 public:
  // Names a message in flight; given back by the call to test() that returns true.
  using Request = std::int32_t;

  virtual ~Wire() = default;

  // The bytes stay untouched until test() returned true. `bytes` may be 0 and may exceed 2^31. `peer` is another global rank.
  virtual Request send(const std::byte* data, std::int64_t bytes, int peer, std::int32_t channel) = 0;
  virtual Request recv(std::byte* data, std::int64_t bytes, int peer, std::int32_t channel) = 0;
  // Advances everything in flight; true once the message of `request` has left or arrived. A peer that sent another size, or a
  // connection that broke: CommunicationError that names the peer.
  virtual bool test(Request request) = 0;
  // Lets the wire work on what has left but is still on its way; called before every sleep of a rank that waits, whatever it waits
  // for.
  virtual void poll() = 0;
  // Ends all that is in flight, of every channel: no request is valid any more, and no byte lands where a receive was to put it
  // once nobody polls. For a rank whose world has failed, before its buffers go.
  virtual void abandon() noexcept = 0;

  // Payload bytes handed to send() so far.
  virtual std::int64_t bytes_sent() const = 0;
};

}  // namespace trident

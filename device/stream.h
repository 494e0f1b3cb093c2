// Streams and events: the order of work on a device.
//
// A stream runs what is enqueued on it in order. Two streams are unordered unless one waits for the other's event; every such edge
// is written where the second stream is used (wait(event) beside the call that needs it).
//
// On a CPU the compute stream runs each operation at once on the calling thread; its events are always done. The other streams are
// queues of operations in progress (device/host/cpu_stream.h) which advance when they are polled.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace trident {

class Stream;

// A point in a stream: done once everything enqueued before record() is. Cheap to copy; must not outlive its stream.
class Event {
 public:
  Event() = default;  // an event that is done
  Event(Stream* stream, std::uint64_t ticket) : stream_(stream), ticket_(ticket) {}

  bool done() const;
  // The host waits. Throws CommunicationError if the awaited work failed or a peer is gone.
  void wait_host() const;

  Stream* stream() const { return stream_; }
  std::uint64_t ticket() const { return ticket_; }

 private:
  Stream* stream_ = nullptr;
  std::uint64_t ticket_ = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;

  virtual std::string_view name() const = 0;
  // Everything enqueued so far.
  virtual Event record() = 0;
  // Work enqueued from now on starts after `event`.
  virtual void wait(const Event& event) = 0;
  // The host waits for everything enqueued so far.
  virtual void synchronize() = 0;
  // Whether the event with this ticket (of this stream) is done; wait until it is.
  virtual bool is_done(std::uint64_t ticket) = 0;
  virtual void wait_host(std::uint64_t ticket) = 0;
  // How long the host has waited for this stream's work, since it was made.
  virtual double waited_seconds() const = 0;
  // How long the host was held by operations with peers that were handed to this stream, waiting included, since it was made;
  // nothing where they run beside the host.
  virtual std::optional<double> held_seconds() const { return std::nullopt; }
};

inline bool Event::done() const { return stream_ == nullptr || stream_->is_done(ticket_); }
inline void Event::wait_host() const {
  if (stream_ != nullptr) stream_->wait_host(ticket_);
}

}  // namespace trident

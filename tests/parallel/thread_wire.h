// A wire between threads: mailboxes in one process, which move only when a rank polls.
//
// It behaves like the worst network that keeps the contract: messages take a random number of looks to arrive, channels overtake
// each other, longer messages leave only when the receiver has asked for them, and receive buffers hold rubbish until the message
// is there. What a rank does wrong (another size, a buffer touched too early) is an exception.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <tuple>
#include <vector>

#include "parallel/transport/wire.h"

namespace trident::conformance {

struct ThreadWireOptions {
  int longest_delay = 3;             // looks at a message before it moves
  std::int64_t eager_bytes = 1024;  // longer messages wait for their receiver
};

// The ranks' wires share this.
class ThreadNetwork {
 public:
  explicit ThreadNetwork(int ranks, ThreadWireOptions options = {}) : ranks_(ranks), options_(options) {}
  // The wire of `rank`, for its thread.
  std::unique_ptr<Wire> wire(int rank);
  // Longest message handed to send() on any wire, for tests that look at piece sizes.
  std::int64_t longest_message() const { return longest_; }
  // Receives that a wire still had when it ended: on a real network they write into memory that is somebody else's by then.
  std::int64_t forgotten_receives() const { return forgotten_; }

 private:
  friend class ThreadWire;
  struct Message {
    std::vector<std::byte> bytes;
    bool taken = false;
  };
  using Key = std::tuple<int, int, std::int32_t>;  // from, to, channel

  int ranks_;
  ThreadWireOptions options_;
  std::mutex mutex_;
  std::map<Key, std::deque<std::shared_ptr<Message>>> mailboxes_;
  std::atomic<std::int64_t> longest_{0}, forgotten_{0};
};

class ThreadWire final : public Wire {
 public:
  ThreadWire(ThreadNetwork& network, int rank) : network_(network), rank_(rank), random_(static_cast<unsigned>(rank) * 7919 + 1) {}
  ~ThreadWire() override;

  Request send(const std::byte* data, std::int64_t bytes, int peer, std::int32_t channel) override;
  Request recv(std::byte* data, std::int64_t bytes, int peer, std::int32_t channel) override;
  bool test(Request request) override;
  void poll() override { ++polls_; }
  void abandon() noexcept override;
  std::int64_t polls() const { return polls_; }
  std::int64_t messages_sent() const { return messages_sent_; }
  std::int64_t bytes_sent() const override { return bytes_sent_; }

 private:
  enum class State : std::uint8_t { kFree, kSending, kReceiving, kArrived };
  struct Entry {
    State state = State::kFree;
    int peer = 0, looks = 0;
    std::int32_t channel = 0;
    std::byte* data = nullptr;
    std::int64_t bytes = 0;
    std::shared_ptr<ThreadNetwork::Message> message{};
  };
  Request take(Entry entry);
  bool test_send(Entry& entry);
  void deliver(int peer, std::int32_t channel);
  void check_peer(int peer) const;

  ThreadNetwork& network_;
  int rank_;
  std::mt19937 random_;
  std::vector<Entry> entries_;
  std::vector<Request> free_;  // of entries_: to look for one among hundreds takes longer than the message
  std::map<std::pair<int, std::int32_t>, std::deque<Request>> waiting_;  // receives in order, by peer and channel
  std::int64_t bytes_sent_ = 0, messages_sent_ = 0;
  std::atomic<std::int64_t> polls_{0};  // tests look at it from other ranks
};

}  // namespace trident::conformance

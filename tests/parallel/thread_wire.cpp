#include "tests/parallel/thread_wire.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/check.h"
#include "device/no_allocation.h"

namespace trident::conformance {

std::unique_ptr<Wire> ThreadNetwork::wire(int rank) { return std::make_unique<ThreadWire>(*this, rank); }

ThreadWire::~ThreadWire() {
  network_.forgotten_ +=
      std::count_if(entries_.begin(), entries_.end(), [](const Entry& e) { return e.state == State::kReceiving; });
}

void ThreadWire::abandon() noexcept {
  entries_.clear();
  free_.clear();
  waiting_.clear();
}

void ThreadWire::check_peer(int peer) const {
  TRIDENT_CHECK(peer >= 0 && peer < network_.ranks_ && peer != rank_, "rank {} talks to {}", rank_, peer);
}

Wire::Request ThreadWire::take(Entry entry) {
  entry.looks = static_cast<int>(random_() % static_cast<unsigned>(network_.options_.longest_delay + 1));
  if (free_.empty()) {
    entries_.push_back(std::move(entry));
    return static_cast<Request>(entries_.size()) - 1;
  }
  const Request index = free_.back();
  free_.pop_back();
  entries_[static_cast<std::size_t>(index)] = std::move(entry);
  return index;
}

Wire::Request ThreadWire::send(const std::byte* data, std::int64_t bytes, int peer, std::int32_t channel) {
  const AllocationExemption mailboxes;
  check_peer(peer);
  bytes_sent_ += bytes;
  ++messages_sent_;
  auto message = std::make_shared<ThreadNetwork::Message>();
  message->bytes.assign(data, data + bytes);
  {
    const std::lock_guard lock(network_.mutex_);
    network_.mailboxes_[{rank_, peer, channel}].push_back(message);
    network_.longest_ = std::max(network_.longest_.load(), bytes);
  }
  return take({State::kSending, peer, 0, channel, const_cast<std::byte*>(data), bytes, std::move(message)});
}

Wire::Request ThreadWire::recv(std::byte* data, std::int64_t bytes, int peer, std::int32_t channel) {
  const AllocationExemption mailboxes;
  check_peer(peer);
  if (bytes > 0) std::memset(data, 0xee, static_cast<std::size_t>(bytes));
  const Request request = take({State::kReceiving, peer, 0, channel, data, bytes});
  waiting_[{peer, channel}].push_back(request);
  return request;
}

bool ThreadWire::test(Request request) {
  const AllocationExemption mailboxes;
  Entry& entry = entries_.at(static_cast<std::size_t>(request));
  TRIDENT_CHECK(entry.state != State::kFree, "request {} is not in flight", request);
  if (entry.state == State::kReceiving) deliver(entry.peer, entry.channel);
  if (entry.state == State::kSending ? !test_send(entry) : entry.state != State::kArrived) return false;
  entry = {};
  free_.push_back(request);
  return true;
}

bool ThreadWire::test_send(Entry& entry) {
  if (entry.looks-- > 0) return false;
  const std::lock_guard lock(network_.mutex_);
  if (entry.bytes > network_.options_.eager_bytes && !entry.message->taken) return false;
  // Whoever writes the buffer before the message has left would corrupt it on a real network.
  TRIDENT_CHECK(entry.bytes == 0 ||
                    std::memcmp(entry.data, entry.message->bytes.data(), static_cast<std::size_t>(entry.bytes)) == 0,
                "rank {} changed a message of {} bytes to rank {} that had not left", rank_, entry.bytes, entry.peer);
  return true;
}

void ThreadWire::deliver(int peer, std::int32_t channel) {
  std::deque<Request>& requests = waiting_[{peer, channel}];
  while (!requests.empty()) {
    Entry& entry = entries_[static_cast<std::size_t>(requests.front())];
    if (entry.looks-- > 0) return;
    const std::lock_guard lock(network_.mutex_);
    auto& mailbox = network_.mailboxes_[{peer, rank_, channel}];
    if (mailbox.empty()) return;
    const auto message = mailbox.front();
    mailbox.pop_front();
    const auto sent = static_cast<std::int64_t>(message->bytes.size());
    if (sent != entry.bytes)
      throw CommunicationError(fmt::format("rank {}: a message of {} bytes from rank {} where {} were expected", rank_, sent, peer,
                                           entry.bytes));
    if (sent > 0) std::memcpy(entry.data, message->bytes.data(), message->bytes.size());
    message->taken = true;
    entry.state = State::kArrived;
    requests.pop_front();
  }
}

}  // namespace trident::conformance

// Exchanges between threads that stand for processes.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "parallel/communicator/rendezvous.h"

namespace trident::testing {

class Meeting {
 public:
  explicit Meeting(int ranks) : texts_(static_cast<std::size_t>(ranks)) {}
  int size() const { return static_cast<int>(texts_.size()); }

  // Collective: the texts of all, by rank.
  std::vector<std::string> exchange(int rank, const std::string& mine) {
    std::unique_lock lock(mutex_);
    texts_[static_cast<std::size_t>(rank)] = mine;
    const int round = round_;
    if (++arrived_ == static_cast<int>(texts_.size())) {
      arrived_ = 0;
      ++round_;
      result_ = texts_;
      everyone_.notify_all();
    }
    everyone_.wait(lock, [&] { return round_ != round; });
    return result_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable everyone_;
  std::vector<std::string> texts_, result_;
  int arrived_ = 0, round_ = 0;
};

// One rank's end of a meeting, which counts what it is used for.
class MeetingRank final : public Rendezvous {
 public:
  MeetingRank(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return meeting_.size(); }

  void all_reduce(std::span<std::int64_t> numbers, ReduceOp op) override {
    ++calls;
    const std::string mine(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
    const std::vector<std::string> all = meeting_.exchange(rank_, mine);
    for (std::size_t r = 0; r < all.size(); ++r)
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        std::int64_t n = 0;
        std::memcpy(&n, all[r].data() + i * sizeof n, sizeof n);
        numbers[i] = r == 0 ? n : op == ReduceOp::kSum ? numbers[i] + n : std::max(numbers[i], n);
      }
  }
  std::string broadcast(const std::string& text, int root) override {
    ++calls;
    return meeting_.exchange(rank_, text).at(static_cast<std::size_t>(root));
  }
  std::vector<std::string> gather(const std::string& mine) override {
    ++calls;
    gathered.push_back(mine);
    std::vector<std::string> all = meeting_.exchange(rank_, mine);
    return rank_ == 0 ? all : std::vector<std::string>();
  }

  int calls = 0;
  std::vector<std::string> gathered;  // what this rank said in gather()

 private:
  Meeting& meeting_;
  int rank_;
};

// Runs body(job, node) on a thread of each rank; nodes[r]: the node of rank r, numbered as ProcessWorld does.
template <class Body>
void on_meeting_ranks(const std::vector<int>& nodes, Body body) {
  Meeting job(static_cast<int>(nodes.size()));
  std::vector<std::unique_ptr<Meeting>> meetings;
  for (int node = 0; node <= *std::max_element(nodes.begin(), nodes.end()); ++node)
    meetings.push_back(std::make_unique<Meeting>(static_cast<int>(std::count(nodes.begin(), nodes.end(), node))));
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < nodes.size(); ++r)
    threads.emplace_back([&, r] {
      const auto gpu_slot = std::count(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(r), nodes[r]);
      MeetingRank mine(job, static_cast<int>(r)), local(*meetings[static_cast<std::size_t>(nodes[r])], static_cast<int>(gpu_slot));
      body(mine, local);
    });
}

}  // namespace trident::testing

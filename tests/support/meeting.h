// An exchange of texts between threads that stand for processes.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

namespace trident::testing {

class Meeting {
 public:
  explicit Meeting(int ranks) : texts_(static_cast<std::size_t>(ranks)) {}

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

}  // namespace trident::testing

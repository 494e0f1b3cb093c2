// Threads that each own an Encoder and work on tasks in the order of their submission.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace trident {

class EncoderPool {
 public:
  using Task = std::packaged_task<void(Encoder&)>;

  // ConfigError that names --workers where the system does not give so many threads.
  EncoderPool(const Tokenizer& tokenizer, int workers);
  // Tasks that have not begun are dropped; the others are waited for.
  ~EncoderPool();
  EncoderPool(const EncoderPool&) = delete;
  EncoderPool& operator=(const EncoderPool&) = delete;

  // Ready once `work` has run; holds what it threw.
  std::future<void> submit(std::function<void(Encoder&)> work);

  // A count of all threads' encoders together, such as Encoder::num_replaced. Only while no task runs.
  std::int64_t sum_of(std::int64_t (Encoder::*count)() const) const;

 private:
  void run(const std::stop_token& stop, Encoder& encoder);

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Task> tasks_;
  std::vector<std::unique_ptr<Encoder>> encoders_;
  std::vector<std::jthread> threads_;  // last: they use all of the above, and end with it even if the constructor throws
};

}  // namespace trident

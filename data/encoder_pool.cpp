#include "data/encoder_pool.h"

#include <iterator>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/counted.h"

namespace trident {

EncoderPool::EncoderPool(const Tokenizer& tokenizer, int workers) {
  for (int i = 0; i < workers; ++i) encoders_.push_back(tokenizer.new_encoder());
  try {
    for (const auto& encoder : encoders_)
      threads_.emplace_back([this, &encoder](const std::stop_token& stop) { run(stop, *encoder); });
  } catch (const std::system_error& error) {
    throw ConfigError(fmt::format("--workers = {}: the system gave {}: {}; use fewer, or raise ulimit -u or -v", workers,
                                  counted(std::ssize(threads_), "thread"), error.what()));
  }
}

EncoderPool::~EncoderPool() {
  const std::lock_guard lock(mutex_);
  tasks_.clear();
}

std::future<void> EncoderPool::submit(std::function<void(Encoder&)> work) {
  Task task(std::move(work));
  std::future<void> done = task.get_future();
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
  return done;
}

std::int64_t EncoderPool::sum_of(std::int64_t (Encoder::*count)() const) const {
  std::int64_t sum = 0;
  for (const auto& encoder : encoders_) sum += ((*encoder).*count)();
  return sum;
}

void EncoderPool::run(const std::stop_token& stop, Encoder& encoder) {
  for (;;) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return !tasks_.empty(); })) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task(encoder);
  }
}

}  // namespace trident

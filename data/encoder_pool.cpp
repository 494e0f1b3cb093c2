#include "data/encoder_pool.h"

#include <utility>

namespace trident {

EncoderPool::EncoderPool(const Tokenizer& tokenizer, int workers) {
  for (int i = 0; i < workers; ++i) encoders_.push_back(tokenizer.new_encoder());
  for (const auto& encoder : encoders_) threads_.emplace_back([this, &encoder] { run(*encoder); });
}

EncoderPool::~EncoderPool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    tasks_.clear();
  }
  changed_.notify_all();
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

std::int64_t EncoderPool::num_replaced() const {
  std::int64_t sum = 0;
  for (const auto& encoder : encoders_) sum += encoder->num_replaced();
  return sum;
}

void EncoderPool::run(Encoder& encoder) {
  for (;;) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
      if (ending_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task(encoder);
  }
}

}  // namespace trident

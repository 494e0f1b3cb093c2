// Background reads of a device that tests pretend: its memory is the host's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "device/background_reads.h"

namespace trident::test {

// Every read is done when it is enqueued, by `read`.
class PromptReads final : public BackgroundReads {
 public:
  using Read = std::function<void(void* to, ConstTensorView from)>;
  static void copy(void* to, ConstTensorView from) { std::memcpy(to, from.data(), static_cast<std::size_t>(from.num_bytes())); }

  explicit PromptReads(Read read = copy) : read_(std::move(read)) {}
  Buffer allocate(std::int64_t bytes, const std::string& name) override { return allocate_host(bytes, name); }
  void begin() override {}
  void hold(std::size_t) override {}
  void read(void* to, ConstTensorView from) override { read_(to, from); }
  void mark(std::size_t) override {}
  void wait(std::size_t) override {}
  void wait_all() override {}

 private:
  Read read_;
};

// No read is done before somebody waits for it: the other thread, or the rank's stream.
class LateReads final : public BackgroundReads {
 public:
  Buffer allocate(std::int64_t bytes, const std::string& name) override { return allocate_host(bytes, name); }
  void begin() override {}
  void hold(std::size_t mark) override { wait(mark); }
  void read(void* to, ConstTensorView from) override {
    const std::lock_guard lock(mutex_);
    late_.emplace_back(to, from);
    ++enqueued_;
  }
  void mark(std::size_t mark) override {
    const std::lock_guard lock(mutex_);
    marks_[mark] = enqueued_;
  }
  void wait(std::size_t mark) override {
    const std::lock_guard lock(mutex_);
    do_until(marks_.at(mark));
  }
  void wait_all() override {
    const std::lock_guard lock(mutex_);
    do_until(enqueued_);
  }

 private:
  void do_until(std::int64_t end) {
    for (; done_ < end; ++done_) {
      PromptReads::copy(late_.front().first, late_.front().second);
      late_.pop_front();
    }
  }

  std::mutex mutex_;
  std::deque<std::pair<void*, ConstTensorView>> late_;
  std::map<std::size_t, std::int64_t> marks_;
  std::int64_t enqueued_ = 0, done_ = 0;
};

}  // namespace trident::test

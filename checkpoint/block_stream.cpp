#include "checkpoint/block_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "checkpoint/format/box_file.h"
#include "core/check.h"

namespace trident {

BlockStream::BlockStream(BlockFile& file, std::int64_t begin)
    : file_(file), begin_(begin), memory_(allocate_host(kBlocks * kBlockBytes, "blocks of a file")) {
  TRIDENT_CHECK(begin % kDirectAlignment == 0, "blocks from byte {} on", begin);
  for (int b = 0; b < kBlocks; ++b) free_.push_back(static_cast<std::byte*>(memory_.data()) + b * kBlockBytes);
  thread_ = std::thread([this] { work(); });
}

BlockStream::~BlockStream() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    full_.clear();
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BlockStream::throw_if_failed() {
  if (error_) std::rethrow_exception(error_);
}

std::span<std::byte> BlockStream::room() {
  if (current_.memory == nullptr) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !free_.empty() || error_; });
    throw_if_failed();
    current_ = {free_.back(), 0};
    free_.pop_back();
  }
  return {current_.memory + current_.bytes, static_cast<std::size_t>(kBlockBytes - current_.bytes)};
}

void BlockStream::filled(std::size_t count) {
  current_.bytes += static_cast<std::int64_t>(count);
  TRIDENT_CHECK(current_.memory != nullptr && current_.bytes <= kBlockBytes, "{} bytes in a block", current_.bytes);
  if (current_.bytes == kBlockBytes) hand_over();
}

void BlockStream::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::span<std::byte> to = room();
    const std::size_t count = std::min(to.size(), bytes.size());
    std::memcpy(to.data(), bytes.data(), count);
    filled(count);
    bytes = bytes.subspan(count);
  }
}

void BlockStream::hand_over() {
  {
    const std::lock_guard lock(mutex_);
    throw_if_failed();
    full_.push_back(std::exchange(current_, {}));
  }
  changed_.notify_all();
}

std::vector<Hash128> BlockStream::finish() {
  if (current_.bytes > 0) hand_over();
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
  throw_if_failed();
  return std::move(hashes_);
}

void BlockStream::work() {
  for (;;) {
    Block block;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !full_.empty() || ends_; });
      if (full_.empty()) return;
      block = full_.front();
      full_.pop_front();
    }
    std::exception_ptr error;
    try {
      hashes_.push_back(hash128(std::span<const std::byte>(block.memory, static_cast<std::size_t>(block.bytes))));
      const std::int64_t padded = direct_size(block.bytes);
      std::memset(block.memory + block.bytes, 0, static_cast<std::size_t>(padded - block.bytes));
      file_.write(begin_ + written_, {block.memory, static_cast<std::size_t>(padded)});
      written_ += block.bytes;
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      free_.push_back(block.memory);
      if (error) {
        error_ = error;
        full_.clear();
      }
    }
    changed_.notify_all();
    if (error) return;
  }
}

}  // namespace trident

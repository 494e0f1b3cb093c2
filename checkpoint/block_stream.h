// Bytes of a new file in order, written and hashed block by block on a thread of their own while the next ones are made.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "checkpoint/format/hash128.h"
#include "core/block_file.h"
#include "device/buffer.h"

namespace trident {

// Memory: kBlocks blocks of kBlockBytes (box_file.h). Used by one thread.
class BlockStream {
 public:
  static constexpr int kBlocks = 8;

  // The bytes go to `file`, which outlives the stream, from `begin` on, a multiple of kDirectAlignment.
  BlockStream(BlockFile& file, std::int64_t begin);
  ~BlockStream();  // what is not written by then is given up
  BlockStream(const BlockStream&) = delete;
  BlockStream& operator=(const BlockStream&) = delete;

  // Where the next bytes go, at least one; and that the first `count` of them are there. Waits for the disk while all blocks are
  // full. StorageError of the writing thread.
  std::span<std::byte> room();
  void filled(std::size_t count);
  void append(std::span<const std::byte> bytes);

  // Writes what is left. The hashes of all blocks. Nothing is appended after this.
  std::vector<Hash128> finish();

 private:
  struct Block {
    std::byte* memory = nullptr;
    std::int64_t bytes = 0;
  };

  void work();
  void hand_over();
  void throw_if_failed();

  BlockFile& file_;
  std::int64_t begin_;
  Buffer memory_;
  Block current_;                // being filled; of the user's thread
  std::int64_t written_ = 0;     // bytes, of the writing thread
  std::vector<Hash128> hashes_;  // of the writing thread until it is over
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::byte*> free_;
  std::deque<Block> full_;
  bool ends_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace trident

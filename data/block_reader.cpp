#include "data/block_reader.h"

#include <algorithm>

namespace trident {

const std::byte* BlockReader::bytes_at(std::int64_t offset, std::int64_t bytes) {
  if (offset < begin_ || offset + bytes > begin_ + std::ssize(block_)) {
    begin_ = std::numeric_limits<std::int64_t>::max();  // should reading fail
    const std::int64_t rest = file_->size() - offset, there = std::max(bytes, std::min(block_bytes_, rest));
    block_.resize(static_cast<std::size_t>(there));
    file_->read(offset, block_);
    begin_ = offset;
    if (block_bytes_ > 0) file_->will_need(offset + there, std::min(block_bytes_, rest - there));
  }
  return block_.data() + (offset - begin_);
}

std::span<const std::byte> BlockReader::block_at(std::int64_t offset) {
  if (offset == file_->size()) return {};
  if (offset < begin_ || offset >= begin_ + std::ssize(block_)) bytes_at(offset, 1);
  return std::span<const std::byte>(block_).subspan(static_cast<std::size_t>(offset - begin_));
}

}  // namespace trident

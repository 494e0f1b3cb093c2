#include "checkpoint/box_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/at.h"
#include "core/check.h"
#include "core/json_reader.h"

namespace trident {

namespace {

constexpr std::string_view kRemedy = "the file is damaged: copy it again, or use an older checkpoint";

void check_size(const RandomAccessFile& file, const ManifestFile& entry) {
  if (file.size() != entry.bytes)
    throw DataError(fmt::format("{}: has {} bytes, the manifest says {}; {}", file.path(), file.size(), entry.bytes, kRemedy));
}

FileTable read_table(const RandomAccessFile& file, const ManifestFile& entry) {
  check_size(file, entry);
  const std::string text = file.text(0, entry.table_bytes);
  if (const Hash128 found = hash128(text); found != entry.table)
    throw DataError(fmt::format("{}: its table of tensors has the hash {}, the manifest says {}; {}", file.path(), to_string(found),
                                to_string(entry.table), kRemedy));
  return parse_file_table(text, file.size(), file.path());
}

// Which tensors bytes begin .. end of the data belong to: tensor "a", or tensors "a" to "b".
std::string tensors_at(const FileTable& table, std::int64_t begin, std::int64_t end) {
  const auto ends_behind = [](const FileBox& box, std::int64_t at) { return box.begin + box.bytes() <= at; };
  const auto first = std::lower_bound(table.boxes.begin(), table.boxes.end(), begin, ends_behind);
  const auto last = std::lower_bound(first, table.boxes.end(), end - 1, ends_behind);
  TRIDENT_CHECK(last != table.boxes.end(), "no box has byte {}", end - 1);
  if (first == last) return "tensor " + in_quotes(first->key);
  return fmt::format("tensors {} to {}", in_quotes(first->key), in_quotes(last->key));
}

}  // namespace

BoxReader::BoxReader(const std::string& folder, const ManifestFile& file, ReadAt read_at)
    : file_(RandomAccessFile::below(folder, file.path, std::move(read_at))),
      data_begin_(file.table_bytes),
      table_(std::make_shared<const FileTable>(read_table(file_, file))) {}

BoxReader::BoxReader(const std::string& folder, const ManifestFile& file, std::shared_ptr<const FileTable> table, ReadAt read_at)
    : file_(RandomAccessFile::below(folder, file.path, std::move(read_at))),
      data_begin_(file.table_bytes),
      table_(std::move(table)) {
  check_size(file_, file);
}

void BoxReader::read_block(std::int64_t block, std::span<std::byte> out) {
  const std::int64_t begin = block * table_->block_bytes, end = begin + std::ssize(out);
  if (block == last_ + 1) {
    const std::int64_t ahead = std::min(table_->block_bytes, table_->data_bytes() - end);
    file_.will_need(data_begin_ + end, ahead);
  }
  last_ = block;
  file_.read(data_begin_ + begin, out);
  if (hash128(out) == at(table_->blocks, block)) return;
  throw DataError(fmt::format("{}: block {} (bytes {} to {} of the file), {}: has not the hash that its table says; {}",
                              file_.path(), block, data_begin_ + begin, data_begin_ + end, tensors_at(*table_, begin, end),
                              kRemedy));
}

void BoxReader::read(std::int64_t begin, std::span<std::byte> out) {
  TRIDENT_CHECK(begin >= 0 && begin <= table_->data_bytes() - std::ssize(out), "{}: bytes {}+{} of {}", path(), begin, out.size(),
                table_->data_bytes());
  while (!out.empty()) {
    const std::int64_t block = begin / table_->block_bytes, block_begin = block * table_->block_bytes;
    const std::int64_t block_bytes = std::min(table_->block_bytes, table_->data_bytes() - block_begin);
    const auto inside = static_cast<std::size_t>(begin - block_begin);
    const std::size_t count = std::min(out.size(), static_cast<std::size_t>(block_bytes) - inside);
    if (block == cached_) {
      std::memcpy(out.data(), cache_.data() + inside, count);
    } else if (static_cast<std::int64_t>(count) == block_bytes) {
      read_block(block, out.first(count));
    } else {
      cached_ = -1;  // what a failed read leaves is no block
      cache_.resize(static_cast<std::size_t>(block_bytes));
      read_block(block, cache_);
      cached_ = block;
      std::memcpy(out.data(), cache_.data() + inside, count);
    }
    begin += static_cast<std::int64_t>(count);
    out = out.subspan(count);
  }
}

void BoxReader::release() {
  std::vector<std::byte>().swap(cache_);  // "= {}" would keep its memory
  cached_ = -1;
}

}  // namespace trident

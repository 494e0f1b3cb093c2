#include "data/indexed_dataset.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/check.h"
#include "data/dataset_files.h"

namespace trident {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and its fields are copied as they are");

namespace {

constexpr std::int64_t kHeaderBytes = 34;
constexpr std::int64_t kTypeAt = 17, kSequencesAt = 18, kDocumentsAt = 26;

// Where a copy stopped, and at which id; at = -1: nowhere.
struct BadToken {
  std::int64_t at, id;
};

template <class T>
BadToken copy_checked(const std::byte* source, std::int64_t count, std::int64_t vocab_size, std::int32_t* out,
                      std::int64_t stride) {
  for (std::int64_t i = 0; i < count; ++i) {
    T stored;
    std::memcpy(&stored, source + i * static_cast<std::int64_t>(sizeof stored), sizeof stored);
    const auto id = static_cast<std::int64_t>(stored);
    if (id < 0 || id >= vocab_size) [[unlikely]] return {i, id};
    out[i * stride] = static_cast<std::int32_t>(id);
  }
  return {-1, 0};
}

// Calls function(begin, ids) for blocks of ids that are worked on without a branch per token, until it returns false.
template <class T, class Function> void for_each_block(const std::byte* source, std::int64_t count, Function&& function) {
  constexpr std::int64_t kBlock = 4096;
  std::array<T, kBlock> block;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const auto n = static_cast<std::size_t>(std::min(kBlock, count - begin));
    std::memcpy(block.data(), source + begin * static_cast<std::int64_t>(sizeof(T)), n * sizeof(T));
    if (!function(begin, std::span<const T>(block.data(), n))) return;
  }
}

template <class T> IdRange range_of(std::span<const T> ids) {
  T low = ids[0], high = ids[0];
  for (const T id : ids) low = std::min(low, id), high = std::max(high, id);
  return {static_cast<std::int64_t>(low), static_cast<std::int64_t>(high)};
}

template <class T> BadToken find_outside(const std::byte* source, std::int64_t count, std::int64_t vocab_size) {
  BadToken bad{-1, 0};
  for_each_block<T>(source, count, [&](std::int64_t begin, std::span<const T> ids) {
    const IdRange range = range_of(ids);
    if (range.smallest >= 0 && range.largest < vocab_size) return true;
    for (std::int64_t i = 0; bad.at < 0; ++i) {
      const auto id = static_cast<std::int64_t>(ids[static_cast<std::size_t>(i)]);
      if (id < 0 || id >= vocab_size) bad = {begin + i, id};
    }
    return false;
  });
  return bad;
}

// function(T{}) for the C++ type T that holds a stored token.
template <class Function> auto with_stored_type(TokenType type, Function&& function) {
  switch (type) {
    case TokenType::kU8: return function(std::uint8_t{});
    case TokenType::kI8: return function(std::int8_t{});
    case TokenType::kI16: return function(std::int16_t{});
    case TokenType::kI32: return function(std::int32_t{});
    case TokenType::kI64: return function(std::int64_t{});
    case TokenType::kU16: return function(std::uint16_t{});
  }
  throw InternalError("a token type of no known width");
}

}  // namespace

std::int64_t size_of(TokenType type) {
  switch (type) {
    case TokenType::kU8: case TokenType::kI8: return 1;
    case TokenType::kI16: case TokenType::kU16: return 2;
    case TokenType::kI32: return 4;
    case TokenType::kI64: return 8;
  }
  return 0;
}

std::string_view name_of(TokenType type) {
  switch (type) {
    case TokenType::kU8: return "uint8";
    case TokenType::kI8: return "int8";
    case TokenType::kI16: return "int16";
    case TokenType::kI32: return "int32";
    case TokenType::kI64: return "int64";
    case TokenType::kU16: return "uint16";
  }
  return "?";
}

std::string bin_path(const std::string& prefix) { return prefix + ".bin"; }
std::string idx_path(const std::string& prefix) { return prefix + ".idx"; }

IndexedDataset::IndexedDataset(const std::string& prefix) : prefix_(prefix) {
  refuse_half_way(prefix);
  for (const std::string& path : {idx_path(prefix), bin_path(prefix)}) {
    if (file_exists(path)) continue;
    throw DataError(fmt::format(
        "{}: no such file; give the prefix that `trident data prepare --output` was given, without .bin or .idx", path));
  }
  idx_ = MappedFile(idx_path(prefix));
  bin_ = MappedFile(bin_path(prefix));
  read_header();
  check_sequences();
  check_documents();
}

void IndexedDataset::refuse(const MappedFile& file, const std::string& what) const {
  throw DataError(fmt::format("{}: {}; prepare the data again (trident data prepare)", file.path(), what));
}

template <class T>
T IndexedDataset::idx_at(std::int64_t offset) const {
  T value;
  std::memcpy(&value, idx_.bytes().data() + offset, sizeof value);
  return value;
}

void IndexedDataset::read_header() {
  if (idx_.size() < kHeaderBytes)
    refuse(idx_, fmt::format("truncated: {} bytes, the header alone has {}", idx_.size(), kHeaderBytes));
  if (idx_.text().substr(0, kIndexMagic.size()) != kIndexMagic)
    refuse(idx_, "magic is not MMIDIDX: not an index of Megatron's format");
  if (const auto version = idx_at<std::uint64_t>(9); version != kIndexVersion)
    refuse(idx_, fmt::format("version = {}, expected 1", version));
  const auto code = idx_at<std::uint8_t>(kTypeAt);
  type_ = static_cast<TokenType>(code);
  if (size_of(type_) == 0) refuse(idx_, fmt::format("dtype code = {}, expected an integer type (1 to 5, or 8)", code));

  // Each count is compared with the file's length alone first, so that the sum below cannot overflow.
  const auto sequences = idx_at<std::uint64_t>(kSequencesAt), entries = idx_at<std::uint64_t>(kDocumentsAt);
  const auto bytes = static_cast<std::uint64_t>(idx_.size());
  if (sequences > bytes || entries > bytes || kHeaderBytes + 12 * sequences + 8 * entries != bytes) {
    refuse(idx_, fmt::format("sequence_count = {} and document_count = {} do not fit its {} bytes: truncated or damaged", sequences,
                             entries, bytes));
  }
  if (entries == 0) refuse(idx_, "document_count = 0, expected documents + 1");
  num_sequences_ = static_cast<std::int64_t>(sequences);
  num_documents_ = static_cast<std::int64_t>(entries) - 1;
  num_tokens_ = bin_.size() / size_of(type_);
}

// Sequences must tile .bin in order: then token i of all sequences is token i of the file.
void IndexedDataset::check_sequences() const {
  std::int64_t expected = 0;  // at most 2^31 * 8 bytes more per sequence than a valid file, and we stop at the first that is beyond
  for (std::int64_t s = 0; s < num_sequences_; ++s) {
    const std::int64_t length = sequence_length(s);
    if (length < 0) refuse(idx_, fmt::format("length of sequence {} = {}", s, length));
    if (byte_offset(s) != expected) {
      refuse(idx_,
             fmt::format("offset of sequence {} = {}, expected {}: sequences must follow each other", s, byte_offset(s), expected));
    }
    expected += length * size_of(type_);
    if (expected > bin_.size()) {
      refuse(bin_, fmt::format("too short: {} bytes, sequence {} of its .idx ends at {}", bin_.size(), s, expected));
    }
  }
  if (expected != bin_.size()) refuse(bin_, fmt::format("{} bytes, its .idx describes {}", bin_.size(), expected));
}

void IndexedDataset::check_documents() const {
  std::int64_t previous = 0;
  for (std::int64_t d = 0; d <= num_documents_; ++d) {
    const std::int64_t first = first_sequence(d);
    if (first < previous || first > num_sequences_ || (d == 0 && first != 0)) {
      refuse(idx_, fmt::format("document index entry {} = {}: entries must ascend from 0 to {}", d, first, num_sequences_));
    }
    previous = first;
  }
  if (previous != num_sequences_) {
    refuse(idx_,
           fmt::format("document index ends at sequence {}, expected {}: the index was not finished", previous, num_sequences_));
  }
}

std::int64_t IndexedDataset::sequence_length(std::int64_t sequence) const {
  TRIDENT_CHECK(sequence >= 0 && sequence < num_sequences_, "sequence {} of {}", sequence, num_sequences_);
  return idx_at<std::int32_t>(kHeaderBytes + 4 * sequence);
}

std::int64_t IndexedDataset::byte_offset(std::int64_t sequence) const {
  return idx_at<std::int64_t>(kHeaderBytes + 4 * num_sequences_ + 8 * sequence);
}

std::int64_t IndexedDataset::first_sequence(std::int64_t document) const {
  TRIDENT_CHECK(document >= 0 && document <= num_documents_, "document {} of {}", document, num_documents_);
  return idx_at<std::int64_t>(kHeaderBytes + 12 * num_sequences_ + 8 * document);
}

std::int64_t IndexedDataset::document_begin(std::int64_t document) const {
  const std::int64_t sequence = first_sequence(document);
  return sequence == num_sequences_ ? num_tokens_ : byte_offset(sequence) / size_of(type_);
}

void IndexedDataset::will_need(std::int64_t first, std::int64_t count) const {
  TRIDENT_CHECK(first >= 0 && count >= 0 && first <= num_tokens_ - count, "tokens {}+{} of {}", first, count, num_tokens_);
  bin_.will_need(first * size_of(type_), count * size_of(type_));
}

std::int64_t IndexedDataset::token_at(std::int64_t position) const {
  return id_range(position, 1).smallest;
}

IdRange IndexedDataset::id_range(std::int64_t first, std::int64_t count) const {
  TRIDENT_CHECK(first >= 0 && count > 0 && first <= num_tokens_ - count, "tokens {}+{} of {}", first, count, num_tokens_);
  const std::byte* source = bin_.bytes().data() + first * size_of(type_);
  return with_stored_type(type_, [&]<class T>(T) {
    IdRange all{std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()};
    for_each_block<T>(source, count, [&](std::int64_t, std::span<const T> ids) {
      const IdRange range = range_of(ids);
      all = {std::min(all.smallest, range.smallest), std::max(all.largest, range.largest)};
      return true;
    });
    return all;
  });
}

void IndexedDataset::copy_tokens(std::int64_t first, std::int64_t count, std::int64_t vocab_size, std::int32_t* out,
                                 std::int64_t stride) const {
  TRIDENT_CHECK(first >= 0 && count >= 0 && first <= num_tokens_ - count, "tokens {}+{} of {}", first, count, num_tokens_);
  const std::byte* source = bin_.bytes().data() + first * size_of(type_);
  const BadToken bad =
      with_stored_type(type_, [&]<class T>(T) { return copy_checked<T>(source, count, vocab_size, out, stride); });
  if (bad.at >= 0) refuse_token(first + bad.at, bad.id, vocab_size);
}

void IndexedDataset::check_tokens(std::int64_t first, std::int64_t count, std::int64_t vocab_size) const {
  TRIDENT_CHECK(first >= 0 && count >= 0 && first <= num_tokens_ - count, "tokens {}+{} of {}", first, count, num_tokens_);
  const std::byte* source = bin_.bytes().data() + first * size_of(type_);
  const BadToken bad = with_stored_type(type_, [&]<class T>(T) { return find_outside<T>(source, count, vocab_size); });
  if (bad.at >= 0) refuse_token(first + bad.at, bad.id, vocab_size);
}

void IndexedDataset::refuse_token(std::int64_t position, std::int64_t id, std::int64_t vocab_size) const {
  throw DataError(
      fmt::format("{}: token {} has id {}, outside the model's vocabulary of {} tokens; set the model's vocab_size to that of "
                  "the tokenizer which made the file, or prepare the text with the model's tokenizer",
                  bin_.path(), position, id, vocab_size));
}

}  // namespace trident

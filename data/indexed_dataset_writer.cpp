#include "data/indexed_dataset_writer.h"

#include <limits>

#include "core/check.h"

namespace trident {

void append_index_header(AtomicFile& idx, TokenType type, std::int64_t num_sequences, std::int64_t num_documents) {
  idx.append(kIndexMagic);
  append_value(idx, kIndexVersion);
  append_value(idx, static_cast<std::uint8_t>(type));
  append_value(idx, static_cast<std::uint64_t>(num_sequences));
  append_value(idx, static_cast<std::uint64_t>(num_documents + 1));
}

IndexedDatasetWriter::IndexedDatasetWriter(const std::string& prefix, std::int64_t vocab_size, Overwrite overwrite,
                                           WithMask with_mask)
    : vocab_size_(vocab_size), type_(token_type_for(vocab_size)), output_(prefix, overwrite, with_mask) {}

IndexedDatasetWriter::IndexedDatasetWriter(const std::string& prefix, TokenType type, Overwrite overwrite, WithMask with_mask)
    : vocab_size_(type == TokenType::kU16 ? std::int64_t{1} << 16 : std::int64_t{1} << 31),
      type_(type),
      output_(prefix, overwrite, with_mask) {
  TRIDENT_CHECK(type == TokenType::kU16 || type == TokenType::kI32, "tokens written as {}", name_of(type));
}

void IndexedDatasetWriter::add_document(std::span<const std::int32_t> ids, std::span<const std::uint8_t> counts) {
  if (!ids.empty()) add_sequence(ids, counts);
  end_document();
}

void IndexedDatasetWriter::add_sequence(std::span<const std::int32_t> ids, std::span<const std::uint8_t> counts) {
  TRIDENT_CHECK(counts.size() == (output_.mask() != nullptr ? ids.size() : 0), "{} bits for {} tokens", counts.size(), ids.size());
  if (ids.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw DataError(fmt::format("{}: document {} has {} tokens, the format holds 2^31 - 1; split it", output_.bin().path(),
                                num_documents(), ids.size()));
  }
  for (const std::int32_t id : ids) TRIDENT_CHECK(id >= 0 && id < vocab_size_, "token {} of a vocabulary of {}", id, vocab_size_);
  if (type_ == TokenType::kU16) {
    narrow_.assign(ids.begin(), ids.end());
    output_.bin().append(std::as_bytes(std::span(narrow_)));
  } else {
    output_.bin().append(std::as_bytes(ids));
  }
  for (const std::uint8_t count : counts) counts_.push_back(count != 0);
  lengths_.push_back(static_cast<std::int32_t>(ids.size()));
  num_tokens_ += static_cast<std::int64_t>(ids.size());
}

void IndexedDatasetWriter::finish(const DatasetOrigin& origin) {
  AtomicFile& idx = output_.idx();
  append_index_header(idx, type_, num_sequences(), num_documents());
  for (const std::int32_t length : lengths_) append_value(idx, length);
  std::int64_t offset = 0;
  for (const std::int32_t length : lengths_) {
    append_value(idx, offset);
    offset += length * size_of(type_);
  }
  append_value(idx, std::int64_t{0});
  for (const std::int64_t end : ends_) append_value(idx, end);
  if (output_.mask() != nullptr) {
    LossMaskWriter mask(*output_.mask(), num_tokens_);
    for (const bool counts : counts_) mask.append(counts);
    mask.finish();
  }
  output_.commit(origin, {num_documents(), num_sequences(), num_tokens_});
}

}  // namespace trident

#include "data/indexed_dataset_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
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

void commit_pair(AtomicFile& bin, AtomicFile& idx) {
  bin.commit();
  try {
    idx.commit();
  } catch (const Error&) {
    ::unlink(bin.path().c_str());  // a .bin without its .idx is nothing
    throw;
  }
}

IndexedDatasetWriter::IndexedDatasetWriter(const std::string& prefix, std::int64_t vocab_size)
    : vocab_size_(vocab_size), type_(token_type_for(vocab_size)), bin_(bin_path(prefix)), idx_(idx_path(prefix)) {}

void IndexedDatasetWriter::add_document(std::span<const std::int32_t> ids) {
  if (ids.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw DataError(fmt::format("{}: document {} has {} tokens, the format holds 2^31 - 1; split it", bin_.path(), num_documents(),
                                ids.size()));
  }
  for (const std::int32_t id : ids) TRIDENT_CHECK(id >= 0 && id < vocab_size_, "token {} of a vocabulary of {}", id, vocab_size_);
  if (type_ == TokenType::kU16) {
    narrow_.assign(ids.begin(), ids.end());
    bin_.append(std::as_bytes(std::span(narrow_)));
  } else {
    bin_.append(std::as_bytes(ids));
  }
  lengths_.push_back(static_cast<std::int32_t>(ids.size()));
  num_tokens_ += static_cast<std::int64_t>(ids.size());
}

void IndexedDatasetWriter::finish() {
  append_index_header(idx_, type_, num_documents() - std::count(lengths_.begin(), lengths_.end(), 0), num_documents());
  for (const std::int32_t length : lengths_)
    if (length > 0) append_value(idx_, length);
  std::int64_t offset = 0;
  for (const std::int32_t length : lengths_) {
    if (length > 0) append_value(idx_, offset);
    offset += length * size_of(type_);
  }
  std::int64_t sequences = 0;
  append_value(idx_, sequences);
  for (const std::int32_t length : lengths_) append_value(idx_, sequences += length > 0);
  commit_pair(bin_, idx_);
}

}  // namespace trident

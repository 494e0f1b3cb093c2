// Writing Megatron-LM's indexed dataset (indexed_dataset.h).
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "data/dataset_output.h"
#include "data/indexed_dataset.h"

namespace trident {

// The token type of a vocabulary: u16 below 65500 tokens, else i32 (Megatron's rule).
constexpr TokenType token_type_for(std::int64_t vocab_size) { return vocab_size < 65500 ? TokenType::kU16 : TokenType::kI32; }

// Streams documents into PREFIX.bin and PREFIX.idx, which appear complete with their record, in finish(), or not at all. Keeps 4
// bytes per sequence and 8 per document in memory, and for PREFIX.mask a bit per token. Errors as DatasetOutput's.
class IndexedDatasetWriter {
 public:
  IndexedDatasetWriter(const std::string& prefix, std::int64_t vocab_size, Overwrite overwrite, WithMask with_mask = WithMask::kNo);
  // Stored as `type`, kU16 or kI32; ids may be whatever that holds.
  IndexedDatasetWriter(const std::string& prefix, TokenType type, Overwrite overwrite, WithMask with_mask);

  // One document: one sequence, or none where it is empty (as Megatron-LM's preprocess_data.py writes it). Ids must lie in the
  // vocabulary; more than 2^31 - 1 of them: DataError. `counts`: with a mask, not 0 for each id that counts as a target.
  void add_document(std::span<const std::int32_t> ids, std::span<const std::uint8_t> counts = {});
  // A document of several sequences, none of them empty: add_sequence() for each, as add_document() takes them, and end_document().
  void add_sequence(std::span<const std::int32_t> ids, std::span<const std::uint8_t> counts = {});
  void end_document() { ends_.push_back(std::ssize(lengths_)); }
  void finish(const DatasetOrigin& origin);

  std::int64_t num_documents() const { return std::ssize(ends_); }
  std::int64_t num_sequences() const { return std::ssize(lengths_); }
  std::int64_t num_tokens() const { return num_tokens_; }

 private:
  std::int64_t vocab_size_;
  TokenType type_;
  DatasetOutput output_;
  std::vector<std::int32_t> lengths_;  // of sequences
  std::vector<std::int64_t> ends_;     // of each document: how many sequences there are up to its end
  std::vector<std::uint16_t> narrow_;  // scratch
  std::vector<bool> counts_;           // of tokens, with a mask
  std::int64_t num_tokens_ = 0;
};

// ---- parts that other writers of the format use -------------------------------------------------------------------------------

void append_index_header(AtomicFile& idx, TokenType type, std::int64_t num_sequences, std::int64_t num_documents);

template <class T> void append_value(AtomicFile& file, T value) { file.append(std::as_bytes(std::span(&value, 1))); }

}  // namespace trident

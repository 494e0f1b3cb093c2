// Megatron-LM's indexed dataset: PREFIX.bin holds token ids back to back, PREFIX.idx where each sequence lies in it.
//
// .idx, little-endian, nothing aligned: 9 bytes "MMIDIDX\0\0", u64 version = 1, u8 type code, u64 S sequences, u64 D = documents +
// 1, i32[S] lengths in tokens, i64[S] byte offsets into .bin, i64[D] number of the first sequence of each document, and S at the
// end. (NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py.)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/file_io.h"

namespace trident {

inline constexpr std::string_view kIndexMagic{"MMIDIDX\0\0", 9};
inline constexpr std::uint64_t kIndexVersion = 1;

// Megatron's type codes; 6 and 7 are floating point and hold no tokens.
enum class TokenType : std::uint8_t { kU8 = 1, kI8 = 2, kI16 = 3, kI32 = 4, kI64 = 5, kU16 = 8 };

std::int64_t size_of(TokenType type);
std::string_view name_of(TokenType type);  // as NumPy says it: "uint16"

// The two file names of a prefix.
std::string bin_path(const std::string& prefix);
std::string idx_path(const std::string& prefix);

struct IdRange {
  std::int64_t smallest = 0, largest = 0;
};

// Memory-mapped reading. Immutable: threads share one. The files are checked against each other when they are opened; what does not
// fit throws DataError that names file, field and remedy. Positions count tokens of the whole .bin in int64.
class IndexedDataset {
 public:
  explicit IndexedDataset(const std::string& prefix);

  const std::string& prefix() const { return prefix_; }
  TokenType type() const { return type_; }
  std::int64_t num_sequences() const { return num_sequences_; }
  std::int64_t num_documents() const { return num_documents_; }
  std::int64_t num_tokens() const { return num_tokens_; }

  // Position of the first token of document 0 .. num_documents(); the last one is num_tokens().
  std::int64_t document_begin(std::int64_t document) const;
  std::int64_t sequence_length(std::int64_t sequence) const;
  // Number of the first sequence of document 0 .. num_documents(); the last one is num_sequences(). An empty document has none.
  std::int64_t first_sequence(std::int64_t document) const;

  // Asks the kernel to read these tokens from the disk; does not wait and allocates nothing.
  void will_need(std::int64_t first, std::int64_t count) const;

  // The id of a token as it is stored, whatever a vocabulary says.
  std::int64_t token_at(std::int64_t position) const;
  // The extremes of the ids of tokens first .. first + count - 1 (count > 0), at the speed of reading.
  IdRange id_range(std::int64_t first, std::int64_t count) const;

  std::span<const std::byte> stored_bytes() const { return bin_.bytes(); }
  std::int64_t index_bytes() const { return idx_.size(); }

  // out[i * stride] = token first + i, for i < count. A token outside 0 .. vocab_size - 1: DataError that names file, position, id.
  void copy_tokens(std::int64_t first, std::int64_t count, std::int64_t vocab_size, std::int32_t* out, std::int64_t stride) const;
  // The same DataError without a copy, at the speed of reading.
  void check_tokens(std::int64_t first, std::int64_t count, std::int64_t vocab_size) const;

 private:
  void read_header();
  void check_sequences() const;
  void check_documents() const;
  template <class T> T idx_at(std::int64_t offset) const;
  std::int64_t byte_offset(std::int64_t sequence) const;
  [[noreturn]] void refuse(const MappedFile& file, const std::string& what) const;
  [[noreturn]] void refuse_token(std::int64_t position, std::int64_t id, std::int64_t vocab_size) const;

  std::string prefix_;
  MappedFile idx_;
  MappedFile bin_;
  TokenType type_ = TokenType::kU16;
  std::int64_t num_sequences_ = 0;
  std::int64_t num_documents_ = 0;
  std::int64_t num_tokens_ = 0;
};

}  // namespace trident

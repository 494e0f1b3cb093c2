// Megatron-LM's indexed dataset: PREFIX.bin holds token ids back to back, PREFIX.idx where each sequence lies in it.
//
// .idx, little-endian, nothing aligned: 9 bytes "MMIDIDX\0\0", u64 version = 1, u8 type code, u64 S sequences, u64 D = documents +
// 1, i32[S] lengths in tokens, i64[S] byte offsets into .bin, i64[D] number of the first sequence of each document, and S at the
// end. (NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/file_io.h"
#include "data/block_reader.h"
#include "data/loss_mask.h"

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

// How the files that a prefix lacks would be made, for the message that there are none.
struct PrepareHint {
  std::string tokenizer = {};  // the model's; "": not known
  std::int64_t pack = 0;       // tokens of a pack; 0: not packed
};

struct IdRange {
  std::int64_t smallest = 0, largest = 0;
};

// Reading by pread. Immutable: threads share one. Opening reads the header, the last sequence and the ends of the document index,
// whatever the size, and checks that they fit both files; sample_dataset() looks at more, summarize() at everything. Every other
// value of the index is checked when it is looked up. What does not fit, or is replaced meanwhile, throws DataError that names
// file, field and remedy; a file that cannot be read, or became shorter: StorageError. Positions count tokens of the whole .bin in
// int64. A PREFIX.mask that is there is opened, too; whether there must be one, the record says (read_record()).
class IndexedDataset {
 public:
  explicit IndexedDataset(const std::string& prefix, const ReadAt& read_at = ::pread, const PrepareHint& hint = {});

  const std::string& prefix() const { return prefix_; }
  TokenType type() const { return type_; }
  std::int64_t num_sequences() const { return num_sequences_; }
  std::int64_t num_documents() const { return num_documents_; }
  std::int64_t num_tokens() const { return num_tokens_; }
  const RandomAccessFile& bin() const { return bin_; }
  const RandomAccessFile& idx() const { return idx_; }
  const LossMask* mask() const { return mask_ ? &*mask_ : nullptr; }  // nullptr: every token counts as a target

  // Position of the first token of document 0 .. num_documents(); the last one is num_tokens(). Reads two values; who wants many of
  // them in order takes an IndexReader.
  std::int64_t document_begin(std::int64_t document) const;

  // Asks the kernel to read these tokens from the disk; does not wait and allocates nothing.
  void will_need(std::int64_t first, std::int64_t count) const;

  // Tokens first .. first + count - 1 as they are stored, into count * size_of(type()) bytes. One pread; allocates nothing.
  void read_tokens(std::int64_t first, std::int64_t count, std::span<std::byte> stored) const;

  // out[i * stride] = token i of `stored`, i < count, which begins with token `first` of the .bin. An id outside
  // 0 .. vocab_size - 1: DataError that names file, position, id and document.
  void decode_tokens(const std::byte* stored, std::int64_t first, std::int64_t count, std::int64_t vocab_size, std::int32_t* out,
                     std::int64_t stride) const;
  // The same DataError without a copy, at the speed of memory, else the extremes of the ids (count > 0). Without a vocabulary
  // any id will do.
  IdRange check_tokens(const std::byte* stored, std::int64_t first, std::int64_t count, std::optional<std::int64_t> vocab) const;

  // The id of one token as it is stored, whatever a vocabulary says.
  std::int64_t token_at(std::int64_t position) const;

 private:
  friend class IndexReader;
  struct Files {
    RandomAccessFile idx, bin;
    std::optional<RandomAccessFile> mask = {};
  };
  static Files open(const std::string& prefix, const ReadAt& read_at, const PrepareHint& hint);
  IndexedDataset(const std::string& prefix, Files files);
  void read_header();
  void check_ends() const;
  // "document 3, its token 17": where a token lies, as the index has it.
  std::string place_of(std::int64_t position) const;
  [[noreturn]] void refuse_token(std::int64_t position, std::int64_t id, std::int64_t vocab_size) const;

  std::string prefix_;
  RandomAccessFile idx_;
  RandomAccessFile bin_;
  std::optional<LossMask> mask_;
  TokenType type_ = TokenType::kU16;
  std::int64_t num_sequences_ = 0;
  std::int64_t num_documents_ = 0;
  std::int64_t num_tokens_ = 0;
};

// Throws the DataError for a file of a dataset that is not what it should be.
[[noreturn]] void refuse_dataset(const RandomAccessFile& file, const std::string& what);

// Values of the index, each refused where it cannot be true of these two files. Reads blocks ahead: for one thread that reads
// it in ascending order. The dataset outlives it.
class IndexReader {
 public:
  enum class Blocks : std::uint8_t { kAhead, kNone };  // kNone: for single values

  explicit IndexReader(const IndexedDataset& dataset, Blocks blocks = Blocks::kAhead);

  const IndexedDataset& dataset() const { return dataset_; }

  std::int64_t sequence_length(std::int64_t sequence);  // in tokens
  std::int64_t byte_offset(std::int64_t sequence);      // in the .bin
  // Number of the first sequence of document 0 .. num_documents(); the last one is num_sequences(). An empty document has none.
  std::int64_t first_sequence(std::int64_t document);
  // As IndexedDataset's.
  std::int64_t document_begin(std::int64_t document);
  // Refuses a sequence that does not end where the next one begins, or a first one that does not begin at 0: sequences tile the
  // .bin, so that token i of all of them is token i of the file. Returns its end, in bytes.
  std::int64_t check_sequence(std::int64_t sequence);
  // first_sequence() of a document that must not begin before the one before it.
  std::int64_t check_document(std::int64_t document);
  [[noreturn]] void refuse_document(std::int64_t document, std::int64_t first) const;

 private:
  const IndexedDataset& dataset_;
  BlockReader lengths_, offsets_, documents_;
};

}  // namespace trident

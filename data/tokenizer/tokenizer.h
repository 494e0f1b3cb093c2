// Text to token ids and back.
//
// A Tokenizer is immutable and shared by threads; what a thread keeps between calls (scratch memory, a cache) is its Encoder.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

// One thread's encoder. Lives no longer than the Tokenizer that made it.
class Encoder {
 public:
  virtual ~Encoder() = default;

  // Appends the ids of `text` (UTF-8) to *ids. Bytes that are not UTF-8 are read as U+FFFD, one for each maximal ill-formed
  // subsequence (what Rust's from_utf8_lossy and Python's errors="replace" do), and counted.
  virtual void encode(std::string_view text, std::vector<std::int32_t>* ids) = 0;

  // Replacements so far, over all calls.
  std::int64_t num_replaced() const { return num_replaced_; }

 protected:
  std::int64_t num_replaced_ = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::unique_ptr<Encoder> new_encoder() const = 0;
  // The bytes the ids stand for. Not always UTF-8: a token may end inside a character. An id outside the vocabulary: DataError.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  // Ids are 0 .. vocab_size()-1, added tokens included.
  virtual std::int64_t vocab_size() const = 0;
  // The token that ends a document.
  virtual std::int32_t eod() const = 0;
  virtual const std::string& name() const = 0;
  // Equal for tokenizers that turn every text into the same ids, whatever their names and files.
  virtual const std::string& fingerprint() const = 0;

  // For a few short texts: an encoder for one call. Loops keep an Encoder.
  std::vector<std::int32_t> encode(std::string_view text) const;
};

// "gpt2": the vocabulary inside the binary. Otherwise a folder that holds vocab.json and merges.txt of a GPT-2 style byte-level
// BPE, or its tokenizer.json; where all are there they must say the same. An unknown name, or a folder without them: ConfigError
// that names `key` and lists what is known. Damaged files, and a tokenizer.json that splits text otherwise: DataError.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name_or_path, std::string_view key = "tokenizer");

}  // namespace trident

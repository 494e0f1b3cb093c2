// Text to token ids and back.
//
// A Tokenizer is immutable and shared by threads; what a thread keeps between calls (scratch memory, a cache) is its Encoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/index_range.h"

namespace trident {

// Control texts, such as <|im_end|>, that stand in a text: they become their tokens, or are read as the text they are.
enum class Specials : std::uint8_t { kParsed, kPlain };
// Whether a text gets what its tokenizer's post-processor puts around one, such as <|begin_of_text|>.
enum class Around : std::uint8_t { kAdded, kLeftOut };

// How a text becomes ids; the default is what tokenizer(text) gives in Hugging Face's transformers.
struct TextRule {
  Specials specials = Specials::kParsed;
  Around around = Around::kAdded;
  std::span<const ByteRange> plain = {};     // ascending; a control text that reaches into one is text, whatever `specials` says
  std::vector<std::size_t>* ends = nullptr;  // gets for each id that is appended where its bytes end in the text
};

struct ControlText {
  std::size_t at = 0;  // byte of the text
  std::int32_t id = -1;
};

// One thread's encoder. Lives no longer than the Tokenizer that made it.
class Encoder {
 public:
  virtual ~Encoder() = default;

  // Appends the ids of `text` (UTF-8) to *ids. Bytes that are not UTF-8 are read as U+FFFD, one for each maximal ill-formed
  // subsequence (what Rust's from_utf8_lossy and Python's errors="replace" do), and counted; `rule.plain` and `rule.ends` are of
  // the text as it is then. DataError: a pattern that takes too many steps.
  virtual void encode(std::string_view text, std::vector<std::int32_t>* ids, const TextRule& rule = {}) = 0;

  // Over all calls so far: replacements, control texts that became their tokens, characters without a token.
  std::int64_t num_replaced() const { return num_replaced_; }
  std::int64_t num_controls() const { return num_controls_; }
  std::int64_t num_unknown() const { return num_unknown_; }
  // The first control text of the last call that became its token.
  const std::optional<ControlText>& first_control() const { return first_control_; }

 protected:
  std::int64_t num_replaced_ = 0, num_controls_ = 0, num_unknown_ = 0;
  std::optional<ControlText> first_control_;
};

struct SpecialIds {
  std::optional<std::int32_t> bos, pad;  // as the tokenizer's files name them
  std::vector<std::int32_t> eos;               // eod alone where they name none
  std::optional<std::int32_t> eod;             // ends a document: the first of eos, else <|endoftext|>
  std::vector<std::int32_t> before, after;     // what Around::kAdded puts before a text, and behind it
  std::optional<std::string> eos_in_template;  // the text of eos where the chat template writes it: it may end turns, not documents
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::unique_ptr<Encoder> new_encoder() const = 0;
  // The bytes the ids stand for. Not always UTF-8: a token may end inside a character. An id outside the vocabulary: DataError.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  // The bytes of one token, wherever it stands; "" where no token has the id. It must be below vocab_size().
  virtual std::string_view token_text(std::int32_t id) const = 0;
  // Ids are 0 .. vocab_size()-1, added tokens included.
  virtual std::int64_t vocab_size() const = 0;
  virtual const SpecialIds& special_ids() const = 0;
  // The token of this very text, an added one before others.
  virtual std::optional<std::int32_t> find(std::string_view token) const = 0;
  // Whether it is a control token: "special" in tokenizer.json.
  virtual bool is_control(std::int32_t id) const = 0;
  virtual const std::string& name() const = 0;
  // Equal for tokenizers that turn every text into the same ids, whatever their names and files.
  virtual const std::string& fingerprint() const = 0;
  // Says what it does to a text, a line for each step.
  virtual const std::vector<std::string>& description() const = 0;

  // For a few short texts: an encoder for one call. Loops keep an Encoder.
  std::vector<std::int32_t> encode(std::string_view text, const TextRule& rule = {}) const;
  // special_ids().eod; where there is none, ConfigError that names `key`, which needs it, and says what to do.
  std::int32_t eod_for(std::string_view key, std::string_view remedy) const;
  // Bytes of each token's text, by id; 0 for those that stand for no text: what begins, ends and fills up texts.
  std::vector<std::int32_t> text_lengths() const;
};

// A user says this of a tokenizer.
struct TokenizerSource {
  std::string name_or_path;
  std::string_view key = "tokenizer";            // for messages: the option that gave it
  std::optional<std::string> pattern = {};       // of bare ranks: "cl100k" and the like, or a regular expression
  std::optional<std::string> special_file = {};  // of bare ranks: {"text": id, ...}
};

// "gpt2", "cl100k" and "bytes" are inside the binary. Otherwise a file, or a folder that holds one, of the kinds that
// data/tokenizer/tokenizer_readers.cpp lists. An unknown name, or a folder without any: ConfigError that names `key` and lists what
// is known. A damaged file, a kind or a component that is not built, files of a folder that contradict each other: DataError.
std::unique_ptr<Tokenizer> load_tokenizer(const TokenizerSource& source);
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name_or_path, std::string_view key = "tokenizer");

// Names and contents of the files that make a folder's tokenizer "gpt2" or "bytes", here and in transformers. Empty for every
// other name.
std::vector<std::pair<std::string, std::string>> files_of_built_in(std::string_view name);

}  // namespace trident

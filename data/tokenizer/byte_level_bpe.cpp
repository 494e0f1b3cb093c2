#include "data/tokenizer/byte_level_bpe.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <unordered_set>
#include <utility>

#include "core/check.h"
#include "core/fnv1a.h"
#include "core/int_math.h"
#include "core/json_reader.h"
#include "core/json_scanner.h"
#include "core/utf8.h"
#include "data/tokenizer/merge_table.h"
#include "data/tokenizer/piece_scanner.h"

namespace trident {

namespace {

constexpr std::string_view kBpeEndOfText = "<|endoftext|>";
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 20;
constexpr std::size_t kMaxIdValues = 8;
constexpr std::string_view kBpeRemedy = "use the files of one GPT-2 style tokenizer";

// The file format spells bytes as printable characters: 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF stand for themselves, the other 68 are
// U+0100, U+0101, ... in increasing order. Returns character -> byte, -1 where a character stands for none.
constexpr std::array<std::int16_t, 0x144> kByteOfCharacter = [] {
  std::array<std::int16_t, 0x144> bytes{};
  for (auto& b : bytes) b = -1;
  std::size_t next = 0x100;
  for (std::int16_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    bytes[printable ? static_cast<std::size_t>(b) : next++] = b;
  }
  return bytes;
}();

// The bytes a token's spelling stands for; nothing if a character stands for no byte. `spelling` is well-formed UTF-8.
std::optional<std::string> bytes_of_spelling(std::string_view spelling) {
  std::string bytes;
  for (std::size_t at = 0; at < spelling.size();) {
    const CodePoint c = code_point_at(spelling, at);
    at += c.size;
    if (c.value >= kByteOfCharacter.size() || kByteOfCharacter[c.value] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kByteOfCharacter[c.value]));
  }
  return bytes;
}

// Texts by id, one behind the other: there may be a million, and a string for each takes several times the memory.
class TextsById {
 public:
  void reserve(std::size_t bytes) { all_.reserve(bytes); }
  bool add(std::size_t id, std::string_view text) {  // false: the id has one
    if (id >= places_.size()) places_.resize(id + 1);
    if (has(id)) return false;
    places_[id] = {all_.size(), text.size()};
    all_ += text;
    return true;
  }
  bool has(std::size_t id) const { return places_[id].begin != Place().begin; }
  std::string_view operator[](std::size_t id) const { return {all_.data() + places_[id].begin, places_[id].size}; }
  std::size_t num_ids() const { return places_.size(); }
  std::size_t num_bytes() const { return all_.size(); }

 private:
  struct Place {
    std::size_t begin = std::string::npos, size = 0;
  };
  std::string all_;
  std::vector<Place> places_;
};

struct Vocabulary {
  TextsById bytes_of_id;
  std::array<std::int32_t, 256> id_of_byte;
  std::int32_t eod;
  AddedTokens added;
  MergeTable merges;
  std::string fingerprint;
  std::unique_ptr<const PieceScanner> scanner =
      piece_scanner(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", "gpt2");
};

// The ids of spellings, by hash; at most half of the slots are taken.
class Spellings {
 public:
  explicit Spellings(std::size_t bytes) { of_id_.reserve(bytes); }

  bool add(std::string_view spelling, std::size_t id) {  // false: another token has the id
    if (!of_id_.add(id, spelling)) return false;
    if (++size_ > slots_.size() / 2) {
      slots_.assign(2 * slots_.size(), -1);
      for (std::size_t i = 0; i < of_id_.num_ids(); ++i)
        if (of_id_.has(i)) slots_[slot_of(of_id_[i])] = static_cast<std::int32_t>(i);
    }
    slots_[slot_of(spelling)] = static_cast<std::int32_t>(id);
    return true;
  }
  std::int32_t find(std::string_view spelling) const { return slots_[slot_of(spelling)]; }  // -1: no token
  const TextsById& of_id() const { return of_id_; }
  std::size_t size() const { return size_; }

 private:
  std::size_t slot_of(std::string_view text) const {
    std::size_t slot = std::hash<std::string_view>()(text) & (slots_.size() - 1);
    while (slots_[slot] >= 0 && of_id_[static_cast<std::size_t>(slots_[slot])] != text) slot = (slot + 1) & (slots_.size() - 1);
    return slot;
  }

  TextsById of_id_;
  std::vector<std::int32_t> slots_ = std::vector<std::int32_t>(1024, -1);
  std::size_t size_ = 0;
};

[[noreturn]] void refuse(const std::string& file, const std::string& what) {
  throw DataError(fmt::format("{}: {}; {}", file, what, kBpeRemedy));
}

Spellings parse_vocab(const ByteLevelBpeFiles& files) {
  Spellings spellings(files.vocab_json.size());
  const auto add = [&](const std::string& spelling, const JsonValue& id) {
    if (!id.is_integer() || id.as_integer() < 0 || id.as_integer() >= kMaxTokens)
      refuse(files.vocab_source, fmt::format("token {} has id {}, expected 0 .. {}", in_quotes(spelling), to_json_text(id), kMaxTokens - 1));
    const auto at = static_cast<std::size_t>(id.as_integer());
    if (!spellings.add(spelling, at)) refuse(files.vocab_source, fmt::format("id {} occurs twice", at));
  };
  bool reads = true;  // what it throws then is about JSON
  try {
    JsonScanner scanner(files.vocab_json, files.vocab_source,
                        {.comments = JsonComments::kRefused, .max_bytes = files.vocab_json.size(), .blame = ExitCode::kData});
    if (scanner.kind() != JsonValue::Kind::kObject) reads = false, refuse(files.vocab_source, "not a JSON object of token: id");
    scanner.members([&](const std::string& spelling) {
      std::size_t values_left = kMaxIdValues;
      const JsonValue id = scanner.value(values_left);
      reads = false;
      add(spelling, id);
      reads = true;
    });
    scanner.end();
  } catch (DataError& error) {
    if (reads) error.add_context(fmt::format("; not a JSON object of token: id; {}", kBpeRemedy));
    throw;
  }
  const std::size_t ids = spellings.of_id().num_ids();
  if (ids > spellings.size())
    refuse(files.vocab_source, fmt::format("token {} has id {}, expected 0 .. {}", in_quotes(spellings.of_id()[ids - 1]), ids - 1,
                                           spellings.size() - 1));
  return spellings;
}

// Adds to `hash` what the merges are and in which order.
MergeTable parse_merges(const ByteLevelBpeFiles& files, const Spellings& ids, Fnv1a& hash) {
  const auto lines = static_cast<std::size_t>(std::count(files.merges_txt.begin(), files.merges_txt.end(), '\n')) + 1;
  if (lines / 4 > ids.size())  // a merge makes a token, and the table takes more memory than its text
    refuse(files.merges_source, fmt::format("{} merges, and {} has {} tokens", lines, files.vocab_source, ids.size()));
  MergeTable table(lines);
  std::string merged;
  std::int32_t rank = 0;
  std::int64_t line_number = 0;
  for (std::string_view rest = files.merges_txt; !rest.empty();) {
    const std::size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    ++line_number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      refuse(files.merges_source, fmt::format("line {} is not \"left right\"", line_number));
    }
    const std::string_view left = line.substr(0, space), right = line.substr(space + 1);
    merged.assign(left).append(right);
    const std::int32_t left_id = ids.find(left), right_id = ids.find(right), result = ids.find(merged);
    if (left_id < 0 || right_id < 0 || result < 0) {
      refuse(files.merges_source, fmt::format("line {} merges {}: a part or the result is not in {}", line_number, in_quotes(line),
                                              files.vocab_source));
    }
    hash.add(static_cast<std::uint64_t>(left_id) << 32 | static_cast<std::uint64_t>(right_id));
    table.insert(left_id, right_id, {rank++, result});
  }
  return table;
}

// In the order of the file, as the library numbers them: those that the vocabulary lacks follow it. Adds to `hash` what they are,
// unless they are GPT-2's: fingerprints are stored.
std::vector<AddedToken> check_added(const ByteLevelBpeFiles& files, const Spellings& ids, Fnv1a& hash) {
  std::vector<AddedToken> added = files.added;
  std::unordered_set<std::string_view> seen;
  auto next = static_cast<std::int32_t>(ids.size());
  for (AddedToken& token : added) {
    const std::int32_t found = ids.find(token.content);
    if (found < 0 && token.id < 0) refuse(files.vocab_source, fmt::format("no token {}", in_quotes(token.content)));
    const std::int32_t expected = found < 0 ? next++ : found;
    if (!seen.insert(token.content).second)
      refuse(files.vocab_source, fmt::format("added token {} occurs twice", in_quotes(token.content)));
    if (token.id >= 0 && token.id != expected)
      refuse(files.vocab_source,
             fmt::format("added token {} has id {}, expected {}", in_quotes(token.content), token.id, expected));
    token.id = expected;
  }
  TRIDENT_CHECK(seen.contains(kBpeEndOfText), "{}: no added token {}", files.vocab_source, kBpeEndOfText);
  AddedToken first = added.front();
  first.normalized = false;  // says nothing of a token alone
  if (added.size() == 1 && first == AddedToken{.content = first.content, .id = first.id}) return added;
  for (const AddedToken& token : added) {
    hash.add(token.content);
    hash.add(static_cast<std::uint64_t>(token.id) << 32 | static_cast<std::uint64_t>(token.single_word) << 3 |
             static_cast<std::uint64_t>(token.lstrip) << 2 | static_cast<std::uint64_t>(token.rstrip) << 1 |
             static_cast<std::uint64_t>(token.normalized));
  }
  return added;
}

Vocabulary read_vocabulary(const ByteLevelBpeFiles& files) {
  const Spellings ids = parse_vocab(files);
  Fnv1a hash;
  hash.add("byte-level BPE, GPT-2's pieces");
  const std::vector<AddedToken> added = check_added(files, ids, hash);
  Vocabulary vocabulary{.bytes_of_id = {},
                        .id_of_byte = {},
                        .eod = std::ranges::find(added, kBpeEndOfText, &AddedToken::content)->id,
                        .added = AddedTokens(added),
                        .merges = parse_merges(files, ids, hash),
                        .fingerprint = {}};
  vocabulary.id_of_byte.fill(-1);
  vocabulary.bytes_of_id.reserve(ids.of_id().num_bytes());
  std::map<std::size_t, std::string_view> plain;
  for (const AddedToken& token : added) plain[static_cast<std::size_t>(token.id)] = token.content;
  const std::size_t size = plain.empty() ? ids.size() : std::max(ids.size(), plain.rbegin()->first + 1);
  for (std::size_t id = 0; id < size; ++id) {
    const std::string_view spelling = id < ids.size() ? ids.of_id()[id] : plain.at(id);
    std::optional<std::string> bytes = bytes_of_spelling(spelling);
    // The library spells added tokens plainly, and reads them as bytes all the same where it can.
    if (!bytes && !plain.contains(id))
      refuse(files.vocab_source, fmt::format("token {} has a character that stands for no byte", in_quotes(spelling)));
    if (bytes && bytes->size() == 1 && id < ids.size())
      vocabulary.id_of_byte[static_cast<unsigned char>((*bytes)[0])] = static_cast<std::int32_t>(id);
    vocabulary.bytes_of_id.add(id, bytes ? *bytes : spelling);
  }
  for (std::size_t b = 0; b < 256; ++b) {
    if (vocabulary.id_of_byte[b] < 0) refuse(files.vocab_source, fmt::format("no token for the byte 0x{:02x}", b));
  }
  for (std::size_t id = 0; id < size; ++id) {
    hash.add(vocabulary.bytes_of_id[id].size());
    hash.add(vocabulary.bytes_of_id[id]);
  }
  vocabulary.fingerprint = hash.text();
  return vocabulary;
}

// Piece -> ids, direct-mapped, one cache line a slot: words repeat (Zipf), so most pieces never reach the merge loop.
class PieceCache {
 public:
  static constexpr std::size_t kMaxBytes = 31;
  static constexpr std::size_t kMaxIds = 7;

  struct Slot {
    std::array<std::uint64_t, 4> key{};  // the piece, zero-padded; its length in the last byte, so 0 is the empty slot
    std::int32_t count = 0;
    std::array<std::int32_t, kMaxIds> ids{};
  };

  // From the system, zeros take neither time nor memory until they are written: a short text fills few slots.
  PieceCache() : slots_(static_cast<Slot*>(std::calloc(kNumSlots, sizeof(Slot)))) {
    if (slots_ == nullptr) throw std::bad_alloc();
  }

  static std::array<std::uint64_t, 4> key_of(std::string_view piece) {
    std::array<char, 32> bytes{};
    std::memcpy(bytes.data(), piece.data(), piece.size());
    bytes[31] = static_cast<char>(piece.size());
    std::array<std::uint64_t, 4> key;
    std::memcpy(key.data(), bytes.data(), sizeof key);
    return key;
  }

  Slot& slot_of(const std::array<std::uint64_t, 4>& key) {
    std::uint64_t hash = 0;
    for (const std::uint64_t word : key) hash = (hash ^ (hash >> 29) ^ word) * 0x9E3779B97F4A7C15u;
    return slots_[static_cast<std::size_t>(hash >> 49)];
  }

 private:
  struct Free {
    void operator()(Slot* slots) const { std::free(slots); }
  };
  static constexpr std::size_t kNumSlots = std::size_t{1} << 15;  // 2 MiB, fits a second-level cache
  std::unique_ptr<Slot[], Free> slots_;
};

class ByteLevelBpeEncoder final : public Encoder {
 public:
  explicit ByteLevelBpeEncoder(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  void encode(std::string_view text, std::vector<std::int32_t>* ids) override {
    if (valid_prefix(text) != text.size()) {
      num_replaced_ += replace_ill_formed(text, &repaired_);
      text = repaired_;
    }
    vocabulary_.added.cut(text, ids, [&](std::string_view between) { encode_pieces(between, ids); });
  }

 private:
  void encode_pieces(std::string_view text, std::vector<std::int32_t>* ids) {
    std::size_t begin = 0;
    vocabulary_.scanner->cut(text, [&](std::span<const PieceScanner::Piece> pieces) {
      for (const PieceScanner::Piece& piece : pieces) {
        encode_piece(text.substr(begin, piece.end - begin), ids);
        begin = piece.end;
      }
    });
  }

  void encode_piece(std::string_view piece, std::vector<std::int32_t>* ids) {
    if (piece.size() > PieceCache::kMaxBytes) {
      merge_piece(piece);
      ids->insert(ids->end(), symbols_.begin(), symbols_.end());
      return;
    }
    const auto key = PieceCache::key_of(piece);
    PieceCache::Slot& slot = cache_.slot_of(key);
    if (slot.key == key) {
      ids->insert(ids->end(), slot.ids.begin(), slot.ids.begin() + slot.count);
      return;
    }
    merge_piece(piece);
    ids->insert(ids->end(), symbols_.begin(), symbols_.end());
    if (symbols_.size() > PieceCache::kMaxIds) return;
    slot.key = key;
    slot.count = static_cast<std::int32_t>(symbols_.size());
    std::copy(symbols_.begin(), symbols_.end(), slot.ids.begin());
  }

  void merge_piece(std::string_view piece) {
    symbols_.clear();
    for (const char c : piece) symbols_.push_back(vocabulary_.id_of_byte[static_cast<unsigned char>(c)]);
    if (symbols_.size() > 1) merger_.merge(vocabulary_.merges, &symbols_);
  }

  const Vocabulary& vocabulary_;
  PieceCache cache_;
  Merger merger_;
  std::vector<std::int32_t> symbols_;
  std::string repaired_;
};

class ByteLevelBpe final : public Tokenizer {
 public:
  explicit ByteLevelBpe(const ByteLevelBpeFiles& files) : name_(files.name), vocabulary_(read_vocabulary(files)) {}

  std::unique_ptr<Encoder> new_encoder() const override { return std::make_unique<ByteLevelBpeEncoder>(vocabulary_); }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string bytes;
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= vocab_size()) {
        throw DataError(
            fmt::format("token id {}: outside the vocabulary of tokenizer \"{}\" (0 .. {}); decode with the tokenizer that "
                        "encoded it",
                        id, name_, vocab_size() - 1));
      }
      bytes += vocabulary_.bytes_of_id[static_cast<std::size_t>(id)];
    }
    return bytes;
  }

  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(vocabulary_.bytes_of_id.num_ids()); }
  std::int32_t eod() const override { return vocabulary_.eod; }
  const std::string& name() const override { return name_; }
  const std::string& fingerprint() const override { return vocabulary_.fingerprint; }

 private:
  std::string name_;
  Vocabulary vocabulary_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_level_bpe(const ByteLevelBpeFiles& files) { return std::make_unique<ByteLevelBpe>(files); }

}  // namespace trident

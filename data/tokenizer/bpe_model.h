// Byte-pair encoding of one piece of text (Sennrich et al. 2016), over bytes or over characters.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/merge_table.h"
#include "data/tokenizer/piece_cache.h"
#include "data/tokenizer/piece_scanner.h"
#include "data/tokenizer/token_texts.h"

namespace trident {

struct BpeMerge {
  std::int32_t left, right, result;
  bool operator==(const BpeMerge&) const = default;
};

// As the fields of a tokenizer.json's model say it.
struct BpeRules {
  bool over_bytes = true;      // pieces are bytes, and tokens are spelled as byte_spelling.h does; else both are characters
  bool ignore_merges = false;  // a piece that is a token is that token, whatever the merges would make of it
  bool byte_fallback = false;  // a character without a token becomes <0x..> for each of its bytes, if all have tokens
  bool fuse_unk = false;
  std::optional<std::int32_t> unk = {};  // for each character that has no token otherwise; without it such a character is left out
  std::string prefix = {}, suffix = {};  // of characters behind the first, and of the last
};

class BpeModel {
 public:
  // `tokens` are spelled as the rules say. Merges are in the order of their ranks; of two for one pair the later counts. By
  // ignore_merges a piece becomes one of `controls` only where a Worker takes them.
  BpeModel(TokenTexts tokens, std::span<const BpeMerge> merges, const BpeRules& rules, std::span<const std::int32_t> controls);
  // Ranks: tokens are bytes, and each but the single bytes is a merge of any two tokens, of the rank of its id.
  BpeModel(TokenTexts tokens_of_bytes, std::span<const std::int32_t> never_whole);

  const BpeRules& rules() const { return rules_; }
  std::size_t num_merges() const { return num_merges_; }

  // A thread encodes pieces with these.
  class Worker {
   public:
    explicit Worker(const BpeModel& model) : model_(model) {}
    // Appends the ids of pieces of `text`, the first from `begin` on: bytes, or well-formed UTF-8. Returns how many characters of
    // them have no token.
    std::int64_t encode(std::string_view text, std::size_t begin, std::span<const PieceScanner::Piece> pieces,
                        std::vector<std::int32_t>* ids);
    std::int64_t steps() const { return merger_.steps(); }
    void take_controls(bool takes) { takes_controls_ = takes; }

   private:
    // Into symbols_, both.
    std::int64_t encode_rare(std::string_view text, std::size_t begin, std::size_t size, bool may_be_long);
    std::int64_t merge(std::string_view piece);
    std::int64_t add_symbols(std::string_view piece);

    const BpeModel& model_;
    bool takes_controls_ = false;
    using Short = PieceCache<16, 3>;
    Short short_{1 << 16};             // 2 MiB; without an id: a piece of more of them, which long_ has, or had
    PieceCache<32, 7> long_{1 << 14};  // 1 MiB
    Merger merger_;
    std::vector<std::int32_t> symbols_;
    std::string unit_;
  };

 private:
  void set_bytes(const TokenTexts& spelled);

  BpeRules rules_;
  MergeTable merges_;
  std::size_t num_merges_;
  // By byte where pieces are bytes, -1 for none: of one that is neither first nor last, first alone, last alone, both.
  std::array<std::array<std::int32_t, 256>, 4> of_byte_{};
  std::array<std::int32_t, 256> fallback_{};  // <0x00> .. <0xFF>
  TokenTexts whole_;                          // what pieces are looked up in; with characters also those
  std::vector<bool> is_control_;              // by id; empty: whole_ has none
  bool has_affixes_ = false;
};

}  // namespace trident

// A tokenizer does this to a text before its model: normalizers, then splitters, each in the order of its files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/function_ref.h"
#include "data/tokenizer/piece_scanner.h"
#include "data/tokenizer/unicode.h"

namespace trident {

using SharedScanner = std::shared_ptr<const PieceScanner>;

// A change of a text, by a normalizer or by a decoder.
struct TextStep {
  enum class Kind : std::uint8_t {
    kForm,
    kLowercase,
    kReplace,
    kPrepend,
    kStrip,
    kStripAccents,
    kBytes,      // spelled bytes become bytes; a text with another character stays
    kFallback,   // <0x..> becomes that byte
    kStripText,  // at most so many `found` at the begin and at the end
  };
  Kind kind;
  NormalForm form = NormalForm::kNfc;
  std::string found = {}, content = {};  // of kReplace: what is replaced, unless by a pattern, and by what; of kPrepend: the latter
  SharedScanner pattern = nullptr;
  bool left = false, right = false;  // of kStrip
  std::size_t begin = 0, end = 0;    // of kStripText
};

// The text that the steps make: `text` itself, a part of it, or what is written to *buffer. DataError: replacements of
// replacements grow without end, and each character of a short text may stand for many.
std::string_view changed(std::string_view text, std::span<const TextStep> steps, std::string* buffer);

struct SplitStep {
  enum class Kind : std::uint8_t {
    kPattern,
    kPrefixSpace,  // before a text that does not begin with one
    kSpell,        // bytes become characters: what follows sees those
  };
  // Says what becomes of a match of the pattern, and of the gaps where `invert` is set.
  enum class Behavior : std::uint8_t { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };
  Kind kind = Kind::kPattern;
  SharedScanner pattern = nullptr;
  Behavior behavior = Behavior::kIsolated;
  bool invert = false;
};

// All text is well-formed UTF-8; after kSpell and back again pieces are bytes of it.
struct TextChain {
  std::vector<TextStep> normalizers;
  std::vector<SplitStep> splits;

  std::string_view normalize(std::string_view text, std::string* buffer) const { return changed(text, normalizers, buffer); }
  // Gives the pieces of a normalized text in order, many at a time: of `of`, from `begin` on, each to its end. None is empty.
  using Take = FunctionRef<void(std::string_view of, std::size_t begin, std::span<const PieceScanner::Piece> pieces)>;
  void split(std::string_view text, Take take) const { split_from(0, text, take, false); }

 private:
  void split_from(std::size_t step, std::string_view text, Take take, bool is_spelled) const;
};

}  // namespace trident

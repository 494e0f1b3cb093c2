// Cuts text into the pieces that a regular expression of a tokenizer matches, and those between them.
//
// known_patterns() have scanners of their own, chosen by the pattern's exact text; a backtracking matcher takes every other one
// (data/tokenizer/pattern.h). Both mean what the library means that has the pattern: of the matches the one that begins first,
// and of those the one that the first alternatives give.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/function_ref.h"

namespace trident {

// Immutable; threads share it.
class PieceScanner {
 public:
  struct Piece {
    std::size_t end;  // where the next piece begins; the first begins at 0
    bool matched;     // false: a gap between matches
  };
  virtual ~PieceScanner() = default;

  // Gives all pieces of `text` (well-formed UTF-8) to `take` in order, some hundreds at a time. No piece is empty: where the
  // pattern matches nothing at all, a gap ends there. A text that costs the matcher more than 64 steps a byte: DataError.
  virtual void cut(std::string_view text, FunctionRef<void(std::span<const Piece>)> take) const = 0;
};

// Hugging Face's tokenizers read patterns with Oniguruma, tiktoken with fancy-regex; a few constructs mean something else there.
enum class PatternDialect : std::uint8_t { kOniguruma, kFancyRegex };

// ByteLevel's own.
inline constexpr std::string_view kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// A pattern with a scanner of its own.
struct KnownPattern {
  std::string_view name;  // a tokenizer's; further spellings of a pattern, and DeepSeek's second and third one, have their own
  std::string_view text;
  PatternDialect dialect;  // of the library that has it; the other one may read it otherwise
  std::unique_ptr<const PieceScanner> (*make)();
};
std::span<const KnownPattern> known_patterns();

// `where` begins errors: the file and the JSON path, or the option. A pattern with what is not known here, or that is too long or
// too deep: DataError that names the construct, its position and the pattern.
std::unique_ptr<const PieceScanner> piece_scanner(std::string_view pattern, std::string_view where,
                                                  PatternDialect dialect = PatternDialect::kOniguruma);

}  // namespace trident

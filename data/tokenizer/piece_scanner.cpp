#include "data/tokenizer/piece_scanner.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>

#include "data/tokenizer/pattern.h"
#include "data/tokenizer/piece_rules.h"

namespace trident {
namespace {

using TakePieces = FunctionRef<void(std::span<const PieceScanner::Piece>)>;

// Collects pieces for those who take some hundreds at a time.
class PieceBlock {
 public:
  explicit PieceBlock(TakePieces take) : take_(take) {}
  void add(PieceScanner::Piece piece) {
    pieces_[size_++] = piece;
    if (size_ == pieces_.size()) flush();
  }
  void flush() {
    if (size_ > 0) take_({pieces_.data(), std::exchange(size_, 0)});
  }

 private:
  TakePieces take_;
  std::array<PieceScanner::Piece, 256> pieces_;
  std::size_t size_ = 0;
};

template <class Rule>
class RuleScanner final : public PieceScanner {
 public:
  void cut(std::string_view text, TakePieces take) const override {
    const rules::TextCursor cursor(text);
    PieceBlock block(take);
    for (std::size_t begin = 0; begin < text.size();) {
      const Piece piece = Rule::next(cursor, begin);
      block.add(piece);
      begin = piece.end;
    }
    block.flush();
  }
};

class PatternScanner final : public PieceScanner {
 public:
  PatternScanner(std::string_view pattern, std::string_view where, PatternDialect dialect)
      : program_(parse_pattern(pattern, where, dialect), pattern, where) {}

  // A match that takes nothing ends a gap and is no piece.
  void cut(std::string_view text, TakePieces take) const override {
    PatternProgram::Matcher matcher(program_, text);
    PieceBlock block(take);
    for (std::size_t begin = 0, at = 0; at < text.size();) {
      const std::optional<std::size_t> end = matcher.match_at(at);
      if (end && at > begin) block.add({at, false}), begin = at;
      if (end && *end > at) {
        block.add({*end, true});
        begin = at = *end;
        continue;
      }
      at += code_point_at(text, at).size;
      if (at == text.size()) block.add({at, false});
    }
    block.flush();
  }

 private:
  PatternProgram program_;
};

template <class Rule>
std::unique_ptr<const PieceScanner> scanner_of() {
  return std::make_unique<RuleScanner<Rule>>();
}

constexpr auto kHuggingFace = PatternDialect::kOniguruma, kTiktoken = PatternDialect::kFancyRegex;

constexpr KnownPattern kKnown[] = {
    {"gpt2", kGpt2Pattern, kHuggingFace, scanner_of<rules::Gpt2>},
    {"r50k", R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)", kTiktoken,
     scanner_of<rules::Gpt2>},
    {"llama3",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     kHuggingFace, scanner_of<rules::Cl100k<kLetters, 3>>},
    {"cl100k",
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)",
     kTiktoken, scanner_of<rules::Cl100k<kLetters, 3, rules::Spaces::kLinesButAtEnd>>},
    {"qwen2", R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     kHuggingFace, scanner_of<rules::Cl100k<kLetters, 1>>},
    {"qwen3.5",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
     kHuggingFace, scanner_of<rules::Cl100k<kLetters | kMarks, 1>>},
    {"o200k",
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     kTiktoken, scanner_of<rules::O200k<true, 3>>},
    {"tekken",
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
     R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     kTiktoken, scanner_of<rules::O200k<false, 1>>},
    {"deepseek-1", R"(\p{N}{1,3})", kHuggingFace, scanner_of<rules::WithGaps<rules::DeepSeekNumbers>>},
    {"deepseek-2", "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+", kHuggingFace,
     scanner_of<rules::WithGaps<rules::DeepSeekIdeographs>>},
    {"deepseek-3",
     "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
     "\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
     kHuggingFace, scanner_of<rules::WithGaps<rules::DeepSeekWords>>},
    {"deepseek-3-escaped",
     R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
     kHuggingFace, scanner_of<rules::WithGaps<rules::DeepSeekWords>>},
};

}  // namespace

std::span<const KnownPattern> known_patterns() { return kKnown; }

std::unique_ptr<const PieceScanner> piece_scanner(std::string_view pattern, std::string_view where, PatternDialect dialect) {
  const auto known = std::ranges::find(kKnown, pattern, &KnownPattern::text);
  // Oniguruma reads one of these patterns otherwise: in cl100k's, {1,3}+ is a repeat of a repeat.
  if (known != std::end(kKnown) && (dialect == known->dialect || known->name != "cl100k")) return known->make();
  return std::make_unique<PatternScanner>(pattern, where, dialect);
}

}  // namespace trident

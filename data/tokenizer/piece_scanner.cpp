#include "data/tokenizer/piece_scanner.h"

#include <array>
#include <utility>

#include "data/tokenizer/pattern.h"
#include "data/tokenizer/piece_rules.h"

namespace trident {

namespace {

using Piece = PieceScanner::Piece;
using Take = FunctionRef<void(std::span<const Piece>)>;

// Collects pieces for those who take some hundreds at a time.
class Block {
 public:
  explicit Block(Take take) : take_(take) {}
  void add(Piece piece) {
    pieces_[size_++] = piece;
    if (size_ == pieces_.size()) flush();
  }
  void flush() {
    if (size_ > 0) take_({pieces_.data(), std::exchange(size_, 0)});
  }

 private:
  Take take_;
  std::array<Piece, 256> pieces_;
  std::size_t size_ = 0;
};

template <class Rule>
class RuleScanner final : public PieceScanner {
 public:
  void cut(std::string_view text, Take take) const override {
    const rules::TextCursor cursor(text);
    Block block(take);
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
  void cut(std::string_view text, Take take) const override {
    PatternProgram::Matcher matcher(program_, text);
    Block block(take);
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

struct Known {
  std::string_view pattern;
  std::unique_ptr<const PieceScanner> (*make)();
};

constexpr Known kKnown[] = {
    // GPT-2
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", scanner_of<rules::Gpt2>},
    // cl100k, Llama 3
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     scanner_of<rules::Cl100k<kLetters, 3>>},
    // Qwen2, Qwen3
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     scanner_of<rules::Cl100k<kLetters, 1>>},
    // Qwen3.5
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     scanner_of<rules::Cl100k<kLetters | kMarks, 1>>},
    // o200k
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     scanner_of<rules::O200k<true, 3>>},
    // Tekken
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
     R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     scanner_of<rules::O200k<false, 1>>},
    // DeepSeek V3 and later: three patterns, one behind the other
    {R"(\p{N}{1,3})", scanner_of<rules::WithGaps<rules::DeepSeekNumbers>>},
    {"[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+", scanner_of<rules::WithGaps<rules::DeepSeekIdeographs>>},
    {"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
     "\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
     scanner_of<rules::WithGaps<rules::DeepSeekWords>>},
    {R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
     scanner_of<rules::WithGaps<rules::DeepSeekWords>>},
};

}  // namespace

std::unique_ptr<const PieceScanner> piece_scanner(std::string_view pattern, std::string_view where, PatternDialect dialect) {
  for (const Known& known : kKnown)
    if (known.pattern == pattern) return known.make();
  return std::make_unique<PatternScanner>(pattern, where, dialect);
}

}  // namespace trident

#include "data/tokenizer/text_chain.h"

#include <charconv>
#include <utility>

#include "core/check.h"
#include "core/utf8.h"
#include "data/tokenizer/byte_spelling.h"

namespace trident {
namespace {

struct Span {
  std::size_t begin, end;
  bool matched;
};

std::string_view stripped(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    const CodePoint c = code_point_at(text, 0);
    if (!is_white_space(c.value)) break;
    text.remove_prefix(c.size);
  }
  while (right && !text.empty()) {
    const std::size_t at = character_before(text, text.size());
    if (!is_white_space(code_point_at(text, at).value)) break;
    text = text.substr(0, at);
  }
  return text;
}

std::string without_accents(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (!is_accent(c.value)) out += text.substr(at, c.size);
    at += c.size;
  }
  return out;
}

// How long a text may become.
constexpr std::size_t most_made_of(std::size_t bytes) {
  return std::max(4 * bytes, std::min(256 * bytes + 4096, std::size_t{64} << 20));
}

[[noreturn]] void refuse_growth(std::size_t most, std::size_t bytes) {
  throw DataError(fmt::format(
      "a text grows to {} bytes by the tokenizer's replacements, the limit for it is {}; use another tokenizer", bytes, most));
}

std::string replaced(std::string_view text, const PieceScanner* pattern, std::string_view found, std::string_view content,
                     std::size_t most) {
  std::string out;
  const auto put = [&](std::string_view part) {
    out += part;
    if (out.size() > most) refuse_growth(most, out.size());
  };
  while (pattern != nullptr && !text.empty()) {
    const std::string_view part = text.substr(0, valid_prefix(text));
    std::size_t begin = 0;
    pattern->cut(part, [&](std::span<const PieceScanner::Piece> pieces) {
      for (const PieceScanner::Piece& piece : pieces) {
        put(piece.matched ? content : part.substr(begin, piece.end - begin));
        begin = piece.end;
      }
    });
    text.remove_prefix(part.size());
    put(text.substr(0, 1));  // decoded texts may have bytes of no character
    text.remove_prefix(std::min<std::size_t>(1, text.size()));
  }
  if (pattern != nullptr) return out;
  std::size_t at = 0;
  for (std::size_t next = 0; (next = text.find(found, at)) != std::string_view::npos; at = next + found.size()) {
    put(text.substr(at, next - at));
    put(content);
  }
  put(text.substr(at));
  return out;
}

std::string_view without(std::string_view text, const TextStep& step) {
  for (std::size_t i = 0; i < step.begin && text.starts_with(step.found); ++i) text.remove_prefix(step.found.size());
  for (std::size_t i = 0; i < step.end && text.ends_with(step.found); ++i) text.remove_suffix(step.found.size());
  return text;
}

// Returns the value of a <0x..>, or -1.
int fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  unsigned value = 0;
  const char* const end = std::from_chars(token.data() + 3, token.data() + 5, value, 16).ptr;
  return end == token.data() + 5 ? static_cast<int>(value) : -1;
}

std::string_view apply(const TextStep& step, std::string_view text, std::size_t most, std::string* out) {
  switch (step.kind) {
    case TextStep::Kind::kForm: return normalized(text, step.form, out);
    case TextStep::Kind::kLowercase: return lowercased(text, out);
    case TextStep::Kind::kStrip: return stripped(text, step.left, step.right);
    case TextStep::Kind::kReplace:
      if (step.pattern == nullptr && text.find(step.found) == std::string_view::npos) return text;
      return *out = replaced(text, step.pattern.get(), step.found, step.content, most);
    case TextStep::Kind::kPrepend:
      if (text.empty() || step.content.empty()) return text;
      return *out = step.content + std::string(text);
    case TextStep::Kind::kStripAccents: return *out = without_accents(text);
    case TextStep::Kind::kBytes:
      out->clear();
      return valid_prefix(text) == text.size() && append_bytes_of_spelling(text, out) ? *out : text;
    case TextStep::Kind::kFallback: {
      const int byte = fallback_byte(text);
      return byte < 0 ? text : *out = std::string(1, static_cast<char>(byte));
    }
    case TextStep::Kind::kStripText: return without(text, step);
  }
  return text;
}

// Spans that stay, as Hugging Face's NormalizedString::split makes them of matches and gaps.
std::vector<Span> behaved(std::vector<Span> spans, SplitStep::Behavior behavior) {
  using enum SplitStep::Behavior;
  if (behavior == kIsolated) return spans;
  std::vector<Span> kept;
  if (behavior == kRemoved) {
    for (const Span& span : spans)
      if (!span.matched) kept.push_back(span);
    return kept;
  }
  bool before = false;  // whether the span before was a match
  const auto walk = [&](auto first, auto last, auto join) {
    for (; first != last; ++first) {
      // Two gaps have a match without text between them.
      const bool joins = first->matched && before == (behavior == kContiguous);
      if (joins && !kept.empty()) join(kept.back(), *first);
      else kept.push_back(*first);
      before = first->matched;
    }
  };
  if (behavior != kMergedWithNext) {
    walk(spans.begin(), spans.end(), [](Span& last, const Span& span) { last.end = span.end; });
    return kept;
  }
  walk(spans.rbegin(), spans.rend(), [](Span& last, const Span& span) { last.begin = span.begin; });
  return {kept.rbegin(), kept.rend()};
}

}  // namespace

std::string_view changed(std::string_view text, std::span<const TextStep> steps, std::string* buffer) {
  std::string other;
  const std::size_t most = most_made_of(text.size());
  for (const TextStep& step : steps) {
    if (text.size() > most) refuse_growth(most, text.size());
    const std::string_view made = apply(step, text, most, &other);
    if (made.data() != other.data()) {
      text = made;
      continue;
    }
    std::swap(*buffer, other);  // `text` may have been in *buffer
    text = *buffer;
  }
  return text;
}

void TextChain::split_from(std::size_t step, std::string_view text, Take take, bool is_spelled) const {
  if (text.empty()) return;
  std::string made;
  if (step == splits.size()) {
    if (!is_spelled || !append_bytes_of_spelling(text, &made)) made.clear();
    if (is_spelled) text = made;
    const PieceScanner::Piece all{text.size(), true};
    return take(text, 0, {&all, 1});
  }
  const SplitStep& split = splits[step];
  if (split.kind == SplitStep::Kind::kPrefixSpace) {
    if (!text.starts_with(' ')) text = made.append(" ").append(text);
    return split_from(step + 1, text, take, is_spelled);
  }
  if (split.kind == SplitStep::Kind::kSpell) {
    for (const char c : text) spell(static_cast<unsigned char>(c), &made);
    return split_from(step + 1, made, take, true);
  }
  const bool is_last = step + 1 == splits.size() && !is_spelled;
  std::size_t begin = 0;
  if (split.behavior == SplitStep::Behavior::kIsolated) {
    split.pattern->cut(text, [&](std::span<const PieceScanner::Piece> pieces) {
      if (is_last) take(text, begin, pieces);
      for (const PieceScanner::Piece& piece : pieces) {
        if (!is_last) split_from(step + 1, text.substr(begin, piece.end - begin), take, is_spelled);
        begin = piece.end;
      }
    });
    return;
  }
  std::vector<Span> spans;
  split.pattern->cut(text, [&](std::span<const PieceScanner::Piece> pieces) {
    for (const PieceScanner::Piece& piece : pieces)
      spans.push_back({std::exchange(begin, piece.end), piece.end, piece.matched != split.invert});
  });
  for (const Span& span : behaved(std::move(spans), split.behavior))
    split_from(step + 1, text.substr(span.begin, span.end - span.begin), take, is_spelled);
}

}  // namespace trident

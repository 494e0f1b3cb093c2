#include "core/utf8.h"

#include <cstring>

namespace trident {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Sequence {
  std::size_t size;  // bytes of the code point, or of the maximal ill-formed subsequence
  bool well_formed;
};

// Looks at the sequence that starts at text[at]. The second byte's range depends on the lead byte: that is what excludes overlong
// forms, surrogates, and values beyond U+10FFFF.
Sequence sequence_at(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const std::size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned char low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (std::size_t i = 1; i < size; ++i) {
    if (at + i >= text.size()) return {i, false};
    const auto next = static_cast<unsigned char>(text[at + i]);
    if (next < low || next > high) return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {size, true};
}

}  // namespace

std::size_t valid_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t word;
    while (at + sizeof word <= text.size()) {  // eight ASCII bytes at once
      std::memcpy(&word, text.data() + at, sizeof word);
      if ((word & 0x8080808080808080u) != 0) break;
      at += sizeof word;
    }
    if (at == text.size()) break;
    const Sequence sequence = sequence_at(text, at);
    if (!sequence.well_formed) break;
    at += sequence.size;
  }
  return at;
}

std::int64_t replace_ill_formed(std::string_view text, std::string* out) {
  out->clear();
  std::int64_t replaced = 0;
  while (!text.empty()) {
    const std::size_t valid = valid_prefix(text);
    out->append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) break;
    out->append(kReplacement);
    text.remove_prefix(sequence_at(text, 0).size);
    ++replaced;
  }
  return replaced;
}

}  // namespace trident

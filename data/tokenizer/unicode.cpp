#include "data/tokenizer/unicode.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "core/packed_numbers.h"
#include "core/utf8.h"

namespace trident {

#include "data/tokenizer/unicode_tables.inc"

namespace {

constexpr char32_t kHangul = 0xAC00, kLead = 0x1100, kVowel = 0x1161, kTail = 0x11A7;
constexpr char32_t kVowels = 21, kTails = 28, kSyllables = 19 * kVowels * kTails;

// The code point that two make together; 0: none.
char32_t composed(char32_t first, char32_t second) {
  if (first >= kLead && first < kLead + 19 && second >= kVowel && second < kVowel + kVowels)
    return kHangul + ((first - kLead) * kVowels + (second - kVowel)) * kTails;
  const bool is_open = first >= kHangul && first < kHangul + kSyllables && (first - kHangul) % kTails == 0;
  if (is_open && second > kTail && second < kTail + kTails) return first + (second - kTail);
  const auto pair_at = [](std::size_t place) { return std::pair(kCanonical.at(place)[0], kCanonical.at(place)[1]); };
  static const std::vector<std::size_t> places = [&] {
    std::vector<std::size_t> all;
    for (std::size_t place = 0; place < kCanonical.keys.size(); ++place)
      if (kCanonical.at(place).size() == 2 && !is_between(kNotComposed, kCanonical.keys[place])) all.push_back(place);
    std::ranges::sort(all, {}, pair_at);
    return all;
  }();
  const auto found = std::ranges::lower_bound(places, std::pair(first, second), {}, pair_at);
  return found != places.end() && pair_at(*found) == std::pair(first, second) ? kCanonical.keys[*found] : 0;
}

class Normalizer {
 public:
  explicit Normalizer(NormalForm form)
      : compatible_(form == NormalForm::kNfkc || form == NormalForm::kNfkd),
        composes_(form == NormalForm::kNfc || form == NormalForm::kNfkc) {
    for (std::size_t kind = 0; kind < std::size(kUnsettledForms); ++kind)
      unsettled_ |= (kUnsettledForms[kind] >> static_cast<unsigned>(form) & 1u) << kind;
  }

  // Where the first code point stands that may change, combine with what is before it, or change places.
  std::size_t next_unsettled(std::string_view text, std::size_t at) const {
    while (at < text.size()) {
      std::uint64_t word;
      while (at + sizeof word <= text.size()) {  // eight ASCII bytes at once
        std::memcpy(&word, text.data() + at, sizeof word);
        if ((word & 0x8080808080808080u) != 0) break;
        at += sizeof word;
      }
      while (at < text.size()) {
        const CodePoint c = code_point_at(text, at);
        if (is_unsettled(c.value)) return at;
        at += c.size;
        if (c.size == 1) break;
      }
    }
    return at;
  }
  std::size_t next_settled(std::string_view text, std::size_t at) const {
    while (at < text.size()) {
      const CodePoint c = code_point_at(text, at);
      if (!is_unsettled(c.value)) break;
      at += c.size;
    }
    return at;
  }

  void append(std::string_view text, std::string* out) {
    characters_.clear();
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint c = code_point_at(text, at);
      decompose(c.value);
      at += c.size;
    }
    for (auto begin = characters_.begin(); begin != characters_.end();) {
      const auto is_starter = [](const Character& c) { return c.combining == 0; };
      const auto end = std::find_if(begin, characters_.end(), is_starter);
      std::stable_sort(begin, end, [](const Character& a, const Character& b) { return a.combining < b.combining; });
      begin = std::find_if_not(end, characters_.end(), is_starter);
    }
    if (composes_) compose();
    for (const Character& c : characters_) append_utf8(*out, c.value);
  }

 private:
  struct Character {
    char32_t value;
    std::uint8_t combining;
  };

  bool is_unsettled(char32_t c) const { return (unsettled_ >> (unicode_properties(c) >> 5) & 1u) != 0; }

  void decompose(char32_t c) {
    if (c >= kHangul && c < kHangul + kSyllables) {
      const char32_t syllable = c - kHangul, tail = syllable % kTails;
      characters_.push_back({kLead + syllable / kTails / kVowels, 0});
      characters_.push_back({kVowel + syllable / kTails % kVowels, 0});
      if (tail > 0) characters_.push_back({kTail + tail, 0});
      return;
    }
    const auto push = [&](char32_t part) {
      characters_.push_back({part, static_cast<std::uint8_t>(value_in(kCombiningClasses, part))});
    };
    if (const std::span<const char32_t> all = compatible_ ? kCompatible.of(c) : std::span<const char32_t>(); !all.empty())
      return std::ranges::for_each(all, push), void();
    const std::span<const char32_t> parts = kCanonical.of(c);
    for (const char32_t part : parts) decompose(part);
    if (parts.empty()) push(c);
  }

  // A character joins the last starter unless one between them has a class as high as its own.
  void compose() {
    std::size_t size = 0, starter = 0;
    bool any = false;
    for (const Character c : characters_) {
      if (any && (size == starter + 1 || characters_[size - 1].combining < c.combining)) {
        if (const char32_t both = composed(characters_[starter].value, c.value); both != 0) {
          characters_[starter].value = both;
          continue;
        }
      }
      if (c.combining == 0) starter = size, any = true;
      characters_[size++] = c;
    }
    characters_.resize(size);
  }

  const bool compatible_, composes_;
  unsigned unsettled_ = 0;  // a bit for each kind of kUnsettledForms
  std::vector<Character> characters_;
};

}  // namespace

constexpr std::array<CategorySet, 128> kAsciiSets = [] {
  std::array<CategorySet, 128> sets{};
  for (std::size_t c = 0; c < sets.size(); ++c)
    sets[c] = CategorySet{1} << (kUnicodeProperties[kUnicodeBlock[0] * 256u + c] & 31u);
  return sets;
}();

std::span<const char32_t> word_bounds() { return kWordBounds; }

bool is_word_character(char32_t c) {
  return is_in(c, kWordCategories) || c == 0x200C || c == 0x200D || is_between(kWordBounds, c);
}

bool is_accent(char32_t c) { return is_in(c, kMarks) != is_between(kAccentExceptions, c); }

std::span<const char32_t> script_bounds(std::string_view script) {
  struct Script {
    std::string_view name;
    std::span<const char32_t> bounds;
  };
  static constexpr Script kScripts[] = {
      {"han", kHanBounds},           {"hiragana", kHiraganaBounds}, {"katakana", kKatakanaBounds}, {"hangul", kHangulBounds},
      {"latin", kLatinBounds},       {"greek", kGreekBounds},       {"cyrillic", kCyrillicBounds}, {"arabic", kArabicBounds},
      {"hebrew", kHebrewBounds},     {"thai", kThaiBounds},         {"devanagari", kDevanagariBounds}};
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  for (const Script& s : kScripts)
    if (std::ranges::equal(script, s.name, same)) return s.bounds;
  return {};
}

std::string_view normalized(std::string_view text, NormalForm form, std::string* buffer) {
  Normalizer normalizer(form);
  std::size_t unsettled = normalizer.next_unsettled(text, 0), done = 0;
  if (unsettled == text.size()) return text;
  buffer->clear();
  buffer->reserve(text.size() + text.size() / 8);
  while (unsettled < text.size()) {
    // The character before may take what follows into itself.
    const std::size_t begin = unsettled > done ? character_before(text, unsettled) : unsettled;
    buffer->append(text.substr(done, begin - done));
    done = normalizer.next_settled(text, unsettled);
    normalizer.append(text.substr(begin, done - begin), buffer);
    unsettled = normalizer.next_unsettled(text, done);
  }
  buffer->append(text.substr(done));
  return *buffer;
}

std::string_view lowercased(std::string_view text, std::string* buffer) {
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    const std::int32_t shift = c.size > 1 || (c.value >= 'A' && c.value <= 'Z') ? value_in(kLower, c.value) : 0;
    if (shift != 0) {
      if (done == 0) buffer->clear();
      buffer->append(text.substr(done, at - done));
      append_utf8(*buffer, static_cast<char32_t>(static_cast<std::int32_t>(c.value) + shift));
      if (c.value == 0x130) append_utf8(*buffer, 0x307);  // the only one that becomes two
      done = at + c.size;
    }
    at += c.size;
  }
  if (done == 0) return text;
  buffer->append(text.substr(done));
  return *buffer;
}

}  // namespace trident

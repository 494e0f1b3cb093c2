#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <system_error>

#include "core/check.h"
#include "core/json_reader.h"
#include "core/utf8.h"
#include "data/tokenizer/pattern.h"

namespace trident {
namespace {

constexpr std::size_t kMaxPatternBytes = 16384, kMaxPatternSets = 512;
constexpr int kMaxPatternDepth = 64;
constexpr std::uint32_t kMaxTimes = 1000;

struct NamedCategories {
  std::string_view name;
  CategorySet categories;
};
constexpr CategorySet kControlCategories = set_of(Category::kCc) | set_of(Category::kControlSpace) | kLineEnds;
constexpr CategorySet kOtherCategories = set_of(Category::kCc, Category::kCn) | kControlCategories;
constexpr CategorySet kSeparators = set_of(Category::kZs, Category::kZp);
// In the order of Category; Cc is three of them.
constexpr std::string_view kShortNames = "lullltlmlo" "mnmcme" "ndnlno" "pcpdpspepipfpo" "smscskso" "zszlzp" "  cfcscocn";
constexpr NamedCategories kCategoryNames[] = {
    {"l", kLetters}, {"m", kMarks}, {"n", kNumbers}, {"p", kPunctuation}, {"s", kSymbols}, {"z", kSeparators},
    {"c", kOtherCategories}, {"letter", kLetters}, {"mark", kMarks}, {"number", kNumbers}, {"punctuation", kPunctuation},
    {"symbol", kSymbols}, {"separator", kSeparators}, {"other", kOtherCategories}, {"any", ~CategorySet{0}},
    {"cc", kControlCategories}};

class PatternParser {
 public:
  PatternParser(std::string_view text, std::string_view where, PatternDialect dialect)
      : text_(text), where_(where), dialect_(dialect) {}

  Pattern parse() {
    if (text_.size() > kMaxPatternBytes)
      throw DataError(fmt::format("{}: a pattern of {} bytes, at most {} are read; use a shorter one", where_, text_.size(),
                                  kMaxPatternBytes));
    if (valid_prefix(text_) != text_.size()) refuse(valid_prefix(text_), "bytes that are no UTF-8");
    pattern_.root = alternatives(0);
    if (at_ < text_.size()) refuse(at_, "a ) without its (");
    return std::move(pattern_);
  }

 private:
  [[noreturn]] void refuse(std::size_t at, std::string_view what) const {
    const std::string_view before = text_.substr(0, at);
    const auto character = 1 + std::ranges::count_if(before, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
    throw DataError(fmt::format("{}: pattern {}: {} at character {}; docs/patterns.md lists what patterns may hold", where_,
                                in_quotes(text_, 200), what, character));
  }

  bool next_is(std::string_view word) const { return text_.substr(at_).starts_with(word); }
  bool take(std::string_view word) {
    if (!next_is(word)) return false;
    at_ += word.size();
    return true;
  }
  bool ended() const { return at_ == text_.size(); }

  PatternNode alternatives(int depth) {
    if (depth > kMaxPatternDepth) refuse(at_, fmt::format("groups more than {} deep", kMaxPatternDepth));
    PatternNode all{.kind = PatternNode::Kind::kAlternatives};
    all.parts.push_back(sequence(depth));
    while (take("|")) {
      folded_ = 0;
      all.parts.push_back(sequence(depth));
    }
    if (all.parts.size() == 1) return std::move(all.parts.front());
    folded_ = 0;
    return all;
  }

  PatternNode sequence(int depth) {
    PatternNode all{.kind = PatternNode::Kind::kSequence};
    while (!ended() && text_[at_] != '|' && text_[at_] != ')') {
      const std::size_t begin = at_;
      PatternNode one = atom(depth);
      all.parts.push_back(repeated(std::move(one), begin));
    }
    return all.parts.size() == 1 ? std::move(all.parts.front()) : std::move(all);
  }

  PatternNode atom(int depth) {
    const char c = text_[at_];
    if (c == '(') return group(depth);
    if (c == '?' || c == '*' || c == '+') refuse(at_, fmt::format("a {} that repeats nothing", c));
    if (c == '{') refuse(at_, "a { that begins no count");
    if (take("^")) return anchor(dialect_ == PatternDialect::kOniguruma ? Anchor::kLineBegin : Anchor::kTextBegin);
    if (take("$")) return anchor(dialect_ == PatternDialect::kOniguruma ? Anchor::kLineEnd : Anchor::kTextEnd);
    if (take("\\A")) return anchor(Anchor::kTextBegin);
    if (take("\\z")) return anchor(Anchor::kTextEnd);
    if (dialect_ == PatternDialect::kOniguruma && take("\\Z")) return anchor(Anchor::kTextEndOrLastLine);
    if (next_is("\\b") || next_is("\\B")) return word_edge();
    if (take(".")) return in_set(~CharSet::of_range('\n', '\n'));
    if (c == '[') {
      ++at_;
      folded_ = 0;
      return in_set(char_class(depth + 1));
    }
    const std::size_t begin = at_;
    CharSet set;
    if (const auto literal = character(&set, false)) {
      set = CharSet::of_range(*literal, *literal);
      if (fold_) set = folded(set, begin), refuse_joined(*literal, begin);
    }
    return in_set(std::move(set));
  }

  // \b has a character of words on one side alone, \B on both or none.
  PatternNode word_edge() {
    const bool is_edge = text_[at_ + 1] == 'b';
    const PatternNode word = in_set(words(at_, false));
    PatternNode all{.kind = PatternNode::Kind::kAlternatives};
    for (const bool is_behind : {false, true}) {
      const PatternNode behind{.kind = PatternNode::Kind::kLook, .parts = {word}, .behind = true, .negative = !is_behind};
      const PatternNode ahead{.kind = PatternNode::Kind::kLook, .parts = {word}, .negative = is_behind == is_edge};
      all.parts.push_back({.parts = {behind, ahead}});
    }
    at_ += 2;
    return all;
  }

  static PatternNode anchor(Anchor which) { return {.kind = PatternNode::Kind::kAnchor, .anchor = which}; }

  PatternNode in_set(CharSet set) {
    auto found = std::ranges::find(pattern_.sets, set);
    if (found == pattern_.sets.end()) {
      if (pattern_.sets.size() == kMaxPatternSets) refuse(at_, fmt::format("more than {} different classes", kMaxPatternSets));
      pattern_.sets.push_back(std::move(set));
      found = pattern_.sets.end() - 1;
      found->write_out();
    }
    return {.kind = PatternNode::Kind::kSet, .set = static_cast<std::size_t>(found - pattern_.sets.begin())};
  }

  // Reads a group from its "(" on.
  PatternNode group(int depth) {
    const std::size_t begin = at_++;
    const bool outer_fold = fold_;
    PatternNode node{.kind = PatternNode::Kind::kSequence};
    if (take("?=") || take("?!") || take("?<=") || take("?<!")) {
      node = {.kind = PatternNode::Kind::kLook, .behind = text_[begin + 2] == '<', .negative = text_[at_ - 1] == '!'};
    } else if (take("?>")) {
      node.kind = PatternNode::Kind::kAtomic;
    } else if (take("?i:") || take("?-i:")) {
      fold_ = text_[begin + 2] == 'i';
    } else if (take("?i)")) {
      // Elsewhere the dialects disagree about how far it goes.
      if (begin > 0 && text_[begin - 1] != '(' && text_[begin - 1] != ':') refuse(begin, "a (?i) that does not begin a group");
      fold_ = true;
      return node;
    } else if (!take("?:") && next_is("?")) {
      refuse(begin, fmt::format("the group {}", in_quotes(text_.substr(begin, 4))));
    }
    PatternNode inside = alternatives(depth + 1);
    if (!take(")")) refuse(begin, "a ( without its )");
    fold_ = outer_fold;
    if (node.kind == PatternNode::Kind::kSequence) return inside;
    if (node.behind) check_known_lengths(inside, begin);
    node.parts.push_back(std::move(inside));
    return node;
  }

  void check_known_lengths(const PatternNode& inside, std::size_t begin) const {
    const auto is_known = [](const PatternNode& node) { return node.lengths().are_one(); };
    if (inside.kind == PatternNode::Kind::kAlternatives ? !std::ranges::all_of(inside.parts, is_known) : !is_known(inside))
      refuse(begin, "a look-behind of no fixed length");
  }

  PatternNode repeated(PatternNode node, std::size_t begin) {
    std::uint32_t min = 0, max = PatternNode::kNoMax;
    const std::size_t sign = at_;
    const bool counted = next_is("{");
    if (counted ? !counts(&min, &max) : !take("?") && !take("*") && !take("+")) return node;
    if (!counted) {
      min = text_[sign] == '+';
      if (text_[sign] == '?') max = 1;
      folded_ = 0;
    }
    if (node.kind == PatternNode::Kind::kLook || node.kind == PatternNode::Kind::kAnchor) refuse(sign, "a repeat of a place");
    if (!(min == 0 && max == 1) && node.lengths().least == 0) refuse(begin, "a repeat of what may be empty");
    PatternNode repeat{.kind = PatternNode::Kind::kRepeat, .min = min, .max = max};
    repeat.parts.push_back(std::move(node));
    if (next_is("?")) {
      if (counted && min == max) refuse(at_, "a ? behind one count");
      ++at_;
      repeat.repeat = RepeatKind::kLazy;
    } else if (take("+")) {
      // Behind counts Oniguruma takes it for a repeat of the repeat.
      if (!counted || dialect_ == PatternDialect::kFancyRegex) {
        repeat.repeat = RepeatKind::kPossessive;
      } else {
        if (repeat.lengths().least == 0) refuse(begin, "a repeat of what may be empty");
        PatternNode outer{.kind = PatternNode::Kind::kRepeat, .min = 1, .max = PatternNode::kNoMax};
        outer.parts.push_back(std::move(repeat));
        repeat = std::move(outer);
      }
    }
    if (next_is("?") || next_is("*") || next_is("+") || next_is("{")) refuse(at_, "a repeat of a repeat");
    return repeat;
  }

  // Reads {m}, {m,}, {m,n} or {,n}.
  bool counts(std::uint32_t* min, std::uint32_t* max) {
    const std::size_t begin = at_++;
    const bool has_min = number(min);
    const bool has_comma = take(",");
    const bool has_max = has_comma ? number(max) : has_min;
    if (!has_comma) *max = *min;
    if (!take("}") || (!has_min && !has_max)) refuse(begin, "a { that begins no count");
    if (*min > *max) refuse(begin, "counts in the wrong order");
    return true;
  }

  bool number(std::uint32_t* value) {
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), *value);
    if (error == std::errc::result_out_of_range || (end > begin && *value > kMaxTimes))
      refuse(at_, fmt::format("a count above {}", kMaxTimes));
    at_ += static_cast<std::size_t>(end - begin);
    return end > begin;
  }

  // Returns a literal character, or nothing and fills *set for an escape that stands for several.
  std::optional<char32_t> character(CharSet* set, bool in_class) {
    const std::size_t begin = at_;
    if (!take("\\")) {
      const CodePoint c = code_point_at(text_, at_);
      at_ += c.size;
      return c.value;
    }
    if (ended()) refuse(begin, "a \\ at the end");
    const CodePoint c = code_point_at(text_, at_);
    at_ += c.size;
    switch (c.value) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case 'f': return '\f';
      case 'a': return '\a';
      case 'x': return hexadecimal(begin, take("{") ? 0 : 2);
      case 'u': return hexadecimal(begin, 4);
      case 's': *set = CharSet::of_categories(kWhiteSpace); break;
      case 'S': *set = CharSet::of_categories(~kWhiteSpace); break;
      case 'd': *set = CharSet::of_categories(set_of(Category::kNd)); break;
      case 'D': *set = CharSet::of_categories(~set_of(Category::kNd)); break;
      case 'w': *set = words(begin, in_class); break;
      case 'W': *set = ~words(begin, in_class); break;
      case 'p':
      case 'P': *set = property(begin); break;
      default:
        if (c.value < 128 && (std::isalnum(static_cast<int>(c.value)) || is_word_edge(text_[begin + 1])))
          refuse(begin, fmt::format("the escape \\{}", text_[begin + 1]));
        return c.value;
    }
    folded_ = 0;
    return std::nullopt;
  }

  // fancy-regex takes \< and \> for the beginning and the end of a word.
  bool is_word_edge(char c) const { return dialect_ == PatternDialect::kFancyRegex && (c == '<' || c == '>'); }

  char32_t hexadecimal(std::size_t begin, int digits) {
    const std::string_view rest = text_.substr(at_, digits == 0 ? 8 : static_cast<std::size_t>(digits));
    std::uint32_t value = 0;
    const auto count = std::from_chars(rest.data(), rest.data() + rest.size(), value, 16).ptr - rest.data();
    at_ += static_cast<std::size_t>(count);
    if (count == 0 || count < digits || (digits == 0 && !take("}")) || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000) ||
        (digits == 2 && value > 0x7F))
      refuse(begin, "an escape that is no code point");
    return value;
  }

  CharSet words(std::size_t begin, bool in_class) const {
    if (fold_) refuse(begin, "\\w inside (?i)");
    // Outside classes Oniguruma has the numbers of Latin-1 among them, too.
    constexpr char32_t kLatin[] = {0xB2, 0xB4, 0xB9, 0xBA, 0xBC, 0xBF}, kJoiners[] = {0x200C, 0x200E};
    const CharSet more = dialect_ == PatternDialect::kFancyRegex ? CharSet(kJoiners)
                         : in_class                              ? CharSet()
                                                                 : CharSet(kLatin);
    return CharSet::of_categories(kWordCategories) | CharSet(word_bounds()) | more;
  }

  // Reads what follows \p or \P.
  CharSet property(std::size_t begin) {
    if (fold_) refuse(begin, "\\p{..} inside (?i)");
    const std::size_t end = text_.find('}', at_);
    if (!take("{") || end == std::string_view::npos) refuse(begin, "a \\p without {..}");
    const bool negated = take("^") != (text_[begin + 1] == 'P');
    std::string name;
    for (const char c : text_.substr(at_, end - at_))
      if (c != ' ' && c != '_' && c != '-') name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    at_ = end + 1;
    const auto script = script_bounds(name);
    CategorySet categories = 0;
    if (const auto found = std::ranges::find(kCategoryNames, name, &NamedCategories::name); found != std::end(kCategoryNames))
      categories = found->categories;
    for (std::size_t i = 0; i * 2 < kShortNames.size(); ++i)
      if (kShortNames.substr(i * 2, 2) == name) categories = CategorySet{1} << i;
    if (script.empty() && categories == 0)
      refuse(begin, fmt::format("the property {}", in_quotes(text_.substr(begin, at_ - begin))));
    const CharSet set = categories != 0 ? CharSet::of_categories(categories) : CharSet(script);
    return negated ? ~set : set;
  }

  // Reads what follows "[".
  CharSet char_class(int depth) {
    const std::size_t begin = at_ - 1;
    if (depth > kMaxPatternDepth) refuse(begin, fmt::format("classes more than {} deep", kMaxPatternDepth));
    const bool negated = take("^");
    CharSet all = class_items(begin, depth);
    while (take("&&")) all = all & class_items(begin, depth);
    ++at_;  // ]
    return negated ? ~all : all;
  }

  // Reads up to "&&" or "]".
  CharSet class_items(std::size_t begin, int depth) {
    CharSet all;
    std::size_t count = 0;
    for (; !ended() && text_[at_] != ']' && !next_is("&&"); ++count) {
      const std::size_t place = at_;
      CharSet several;
      std::optional<char32_t> first;
      if (take("[")) {
        if (next_is(":")) refuse(place, "a class [:..:]");
        several = char_class(depth + 1);
      } else {
        first = character(&several, true);
      }
      if (!first) {
        all = all | several;
        if (next_is("-") && !next_is("-]")) refuse(at_, "a - behind what is no single character");
        continue;
      }
      char32_t last = *first;
      if (next_is("-") && !next_is("-]")) {
        ++at_;
        if (ended() || text_[at_] == '[' || next_is("&&")) refuse(place, "a range without its end");
        const auto end = character(&several, true);
        if (!end) refuse(place, "a range that ends with what is no single character");
        last = *end;
        if (last < *first) refuse(place, "a range from the higher to the lower");
      }
      const CharSet range = CharSet::of_range(*first, last);
      all = all | (fold_ ? folded(range, place) : range);
    }
    if (ended()) refuse(begin, "a [ without its ]");
    if (count == 0) refuse(begin, "an empty class");
    return all;
  }

  // Adds the other case; U+017F is an s and U+212A a k.
  CharSet folded(const CharSet& set, std::size_t begin) const {
    if (!set.is_ascii()) refuse(begin, "a character beyond ASCII inside (?i)");
    CharSet all = set;
    for (char32_t c = 'a'; c <= 'z'; ++c)
      if (set.contains(c) || set.contains(c - 32)) all = all | CharSet::of_range(c, c) | CharSet::of_range(c - 32, c - 32);
    if (all.contains('s')) all = all | CharSet::of_range(0x17F, 0x17F);
    if (all.contains('k')) all = all | CharSet::of_range(0x212A, 0x212A);
    return all;
  }

  // One character stands for some pairs of letters, without regard to case.
  void refuse_joined(char32_t c, std::size_t begin) {
    const auto lower = static_cast<char>(c < 128 ? std::tolower(static_cast<int>(c)) : 0);
    constexpr std::array<std::string_view, 5> kPairs = {"ss", "ff", "fi", "fl", "st"};
    for (const std::string_view pair : kPairs)
      if (pair[0] == folded_ && pair[1] == lower)
        refuse(begin, fmt::format("\"{}\" inside (?i), which is also one character", pair));
    folded_ = lower;
  }

  const std::string_view text_, where_;
  const PatternDialect dialect_;
  std::size_t at_ = 0;
  bool fold_ = false;  // inside (?i)
  char folded_ = 0;    // the letter before, inside (?i)
  Pattern pattern_;
};

}  // namespace

PatternNode::Lengths PatternNode::lengths() const {
  Lengths all{0, 0};
  switch (kind) {
    case Kind::kSet: return {1, 1};
    case Kind::kAnchor:
    case Kind::kLook: return all;
    case Kind::kSequence:
      for (const PatternNode& part : parts) {
        const Lengths one = part.lengths();
        all = {all.least + one.least, all.most + one.most};
      }
      break;
    case Kind::kAlternatives:
      all = parts.front().lengths();
      for (const PatternNode& part : parts) {
        const Lengths one = part.lengths();
        all = {std::min(all.least, one.least), std::max(all.most, one.most)};
      }
      break;
    case Kind::kAtomic: return parts.front().lengths();
    case Kind::kRepeat:
      all = parts.front().lengths();
      all = {all.least * min, max == kNoMax ? kNoEnd : all.most * max};
      break;
  }
  return {std::min(all.least, kNoEnd), std::min(all.most, kNoEnd)};
}

Pattern parse_pattern(std::string_view text, std::string_view where, PatternDialect dialect) {
  return PatternParser(text, where, dialect).parse();
}

}  // namespace trident

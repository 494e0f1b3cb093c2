#include "import/shell_words.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace trident::shell {
namespace {

// A backslash makes a letter of the sign behind it.
bool is_match(std::string_view text, std::string_view pattern) {
  std::size_t t = 0, p = 0, star = pattern.npos, from = 0;
  while (t < text.size() || p < pattern.size()) {
    const std::size_t letter = p + 1 < pattern.size() && pattern[p] == '\\' ? p + 1 : p;
    if (p < pattern.size() && pattern[p] == '*') star = p++, from = t;
    else if (t < text.size() && p < pattern.size() && (pattern[p] == '?' || pattern[letter] == text[t])) ++t, p = letter + 1;
    else if (star != pattern.npos && from < text.size()) t = ++from, p = star + 1;
    else return false;
  }
  return true;
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<signed char>(c) >= 0; });
}

std::string without_escapes(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) plain += text[i] == '\\' && i + 1 < text.size() ? text[++i] : text[i];
  return plain;
}

// The first and one behind the last of `size` things that ":1" or ":0:3" names; nothing: it names none so.
std::optional<std::pair<std::size_t, std::size_t>> range_of(std::string_view how, std::size_t size) {
  const double all = static_cast<double>(size), first = sum_of(how.substr(1, how.find(':', 1) - 1));
  const double begin = first < 0 ? all + first : std::min(first, all);
  const std::size_t colon = how.find(':', 1);
  const double length = colon == how.npos ? all - begin : sum_of(how.substr(colon + 1));
  const double end = length < 0 ? all + length : std::min(begin + length, all);
  if (!(begin >= 0 && end >= begin)) return std::nullopt;
  return std::pair(static_cast<std::size_t>(begin), static_cast<std::size_t>(end));
}

// The value after an expansion such as "%.*", "##*/", "//a/b", ":0:3" or "^^"; nothing: one that is not followed.
std::optional<std::string> expanded(std::string_view text, std::string_view how) {
  constexpr std::size_t kLongest = 512;  // of texts whose parts are compared
  const char sign = how[0];
  if (has(":^,", sign) && !is_ascii(text)) return std::nullopt;
  if (sign == ':') {
    const auto range = range_of(how, text.size());
    return range ? std::optional<std::string>(text.substr(range->first, range->second - range->first)) : std::nullopt;
  }
  const bool is_twice = how.size() > 1 && how[1] == sign;
  how.remove_prefix(is_twice ? 2 : 1);
  if (text.size() > kLongest) return std::nullopt;
  if (has("^,", sign)) {
    std::string changed(text);
    for (char& c : std::span(changed).first(is_twice ? changed.size() : std::min<std::size_t>(1, changed.size())))
      if (sign == '^' ? c >= 'a' && c <= 'z' : c >= 'A' && c <= 'Z') c = static_cast<char>(c ^ 0x20);
    return how.empty() ? std::optional(changed) : std::nullopt;
  }
  std::size_t slash = how.size();
  for (std::size_t i = 0; i < how.size(); i += how[i] == '\\' ? 2 : 1)
    if (sign == '/' && how[i] == '/') slash = std::min(slash, i);
    else if (has("[~", how[i]) || (how[i] == '?' && !is_ascii(text))) return std::nullopt;
  std::string_view pattern = how.substr(0, slash);
  const std::string other = without_escapes(how.substr(std::min(how.size(), slash + 1)));
  if (has(other, '&')) return std::nullopt;  // the text that matched, unless an option is off
  const bool is_anchored = sign == '/' && !is_twice && (pattern.starts_with('#') || pattern.starts_with('%')),
             is_longest = is_twice || sign == '/';
  const char end = is_anchored ? pattern[0] : text.empty() && !pattern.empty() ? '#' : sign;
  pattern.remove_prefix(is_anchored ? 1 : 0);
  for (std::size_t i = 0; end != '/' && i <= text.size(); ++i) {
    const std::size_t length = is_longest ? text.size() - i : i, cut = end == '#' ? length : text.size() - length;
    const std::string first(text.substr(0, cut)), last(text.substr(cut));
    if (is_match(end == '#' ? first : last, pattern)) return end == '#' ? other + last : first + other;
  }
  if (end != '/') return std::string(text);
  std::string changed;
  const bool is_open = has(pattern, '*');
  const std::size_t letters = without_escapes(pattern).size();  // else it is of texts as long as it
  for (std::size_t i = 0, times = 0; i < text.size();) {
    const std::size_t rest = times == 0 || is_twice ? text.size() - i : 0;
    std::size_t length = is_open ? rest : letters <= rest ? letters : 0;
    while (length > 0 && !is_match(text.substr(i, length), pattern)) length = is_open ? length - 1 : 0;
    if (length > 0) changed += other, i += length, ++times;
    else changed += text[i++];
  }
  return changed;
}

// Leaves the items that ":1" or ":0:3" names; false: it names none so.
bool cut(std::vector<Text>& items, std::string_view how) {
  const auto range = range_of(how, items.size());
  const std::size_t colon = how.find(':', 1);
  if (!range || (colon != how.npos && sum_of(how.substr(colon + 1)) < 0)) return false;
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(range->second), items.end());
  items.erase(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(range->first));
  return true;
}

}  // namespace

std::string bytes_of(const Text& text) {
  std::string bytes;
  for (const Char& c : text) bytes += c.c;
  return bytes;
}
int why_of(const Text& text) {
  const auto found = std::ranges::find_if(text, [](const Char& c) { return c.why != 0; });
  return found == text.end() ? 0 : found->why;
}

Outcome outcome_of(const std::vector<Text>& words) {
  std::vector<std::string> texts;
  for (const Text& word : words) {
    if (why_of(word) != 0) return Outcome::kUnknown;
    texts.push_back(bytes_of(word));
  }
  const bool is_not = !texts.empty() && texts[0] == "!";
  texts.erase(texts.begin(), texts.begin() + (is_not ? 1 : 0));
  const std::size_t count = texts.size();
  const std::string sign = count == 3 ? texts[1] : "";
  bool is_true = count == 1 && !texts[0].empty();
  if (count == 2 && is_listed(texts[0], "-z -n")) {
    is_true = texts[1].empty() == (texts[0] == "-z");
  } else if (count == 2 && is_listed(texts[0], "= == != -eq -ne -lt -le -gt -ge")) {
    return Outcome::kFalse;  // an error
  } else if (is_listed(sign, "= == !=") && texts[2].find_first_of("*?[") == std::string::npos) {
    is_true = (texts[0] == texts[2]) == is_listed(sign, "= ==");
  } else if (is_listed(sign, "-eq -ne -lt -le -gt -ge")) {
    const auto number = [](const std::string& text) { return sum_of(text.empty() || text[0] == '-' ? "0" + text : text); };
    const double a = number(texts[0]), b = number(texts[2]);
    if (!std::isfinite(a - b)) return Outcome::kUnknown;
    is_true = sign == "-eq" ? a == b : sign == "-ne" ? a != b : sign == "-lt" ? a < b : sign == "-le" ? a <= b
            : sign == "-gt" ? a > b : a >= b;
    // An empty text is 0 in [[ ]] and an error, which is false, in [ ].
    if ((texts[0].empty() || texts[2].empty()) && is_true != is_not) return Outcome::kUnknown;
  } else if (count != 1) {
    return Outcome::kUnknown;
  }
  return is_true != is_not ? Outcome::kTrue : Outcome::kFalse;
}

Outcome match_of(const Text& text, const Text& pattern) {
  constexpr std::size_t kMostComparisons = 1'000'000;
  const std::string signs = bytes_of(pattern);
  if (why_of(text) != 0 || why_of(pattern) != 0 || signs.find_first_of("[\\") != signs.npos) return Outcome::kUnknown;
  if (text.size() > kMostComparisons / std::max<std::size_t>(signs.size(), 1)) return Outcome::kUnknown;
  return is_match(bytes_of(text), signs) ? Outcome::kTrue : Outcome::kFalse;
}

bool WordReader::puts_path(Fields& out, std::size_t begin, std::size_t inner, std::size_t end) {
  const Level level(script_, at(begin));
  WordReader reader(script_, part(inner, end));
  reader.runs_ = kNever;  // what stands in it assigns nothing
  std::vector<std::string> words;
  while (reader.skip_blanks(), !reader.at_end()) {
    if (reader.takes("&&") || reader.takes(";")) {
      words.push_back("&&");
    } else if (has("&>", reader.peek())) {  // errors and answers go elsewhere
      while (has("&>", reader.peek()) && !reader.at_end()) ++reader.pos_;
      reader.skip_blanks();
      reader.scanned_word();
    } else if (ends_word(reader.peek())) {
      return false;
    } else {
      const Text word = reader.scanned_word();
      if (why_of(word) != 0) return false;
      const std::string text = bytes_of(word);
      if (!is_listed(text, "-- -P -L -f -e -m") && !(is_digit(text[0]) && reader.peek() == '>')) words.push_back(text);
    }
  }
  const std::string value = path_said(script_, words);
  script_.spend(value.size(), at(begin));
  for (const char c : value) out.put({c, at(begin)}, true);
  return !value.empty();
}

bool WordReader::puts_document(Fields& out, std::size_t inner, std::size_t end, bool is_quoted) {
  WordReader reader(script_, part(inner, end));
  reader.skip_blanks();
  if (!reader.takes("cat") || (reader.skip_blanks(), !reader.at_document())) return false;
  reader.pos_ += 2;
  reader.here_documents_.push_back(reader.here_document());
  reader.here_documents_.back().use = Use::kVariable;
  if (reader.skip_blanks(), reader.peek() != '\n') return false;
  if (reader.skip_lines(), !reader.at_end()) return false;
  Text text = reader.content_of(reader.written_.front());
  while (!text.empty() && text.back().c == '\n') text.pop_back();
  script_.spend(text.size(), at(inner));
  return out.put_value(text, is_quoted), true;
}

// Puts ~ at the begin of a word as $HOME, and {a,b} as what would have to be executed; false: there is neither here.
bool WordReader::puts_expansion(Fields& out, std::size_t begin) {
  const std::size_t from = pos_;
  if (peek() == '~' && pos_ == begin && (peek(1) == '/' || ends_word(peek(1)))) {
    for (const Char c : text_of("$HOME", at(pos_), script_.reason("\"~\" is known where the script runs"))) out.put(c);
    return ++pos_, true;
  }
  if (peek() != '{' || !out.splits) return false;
  bool expands = false;
  std::size_t length = 1;
  for (int open = 1; open > 0; ++length) {
    const char c = peek(length);
    if (ends_word(c)) return script_.spend(length, at(from)), false;
    open += c == '{' ? 1 : c == '}' ? -1 : 0;
    expands |= c == ',' || (c == '.' && peek(length + 1) == '.');
  }
  script_.spend(length, at(from));  // the next brace may look as far
  if (!expands) return false;
  pos_ += length;
  const int why = script_.reason(fmt::format("{} in line {} stands for several words; write them in its place",
                                             in_quotes(typed(from), 40), line_of(from)));
  out.put({'$', at(from), why});
  put_unknown(out, from, why);
  return true;
}
void WordReader::scan(Fields& out, Stop stop, bool is_quoted) {
  const Level level(script_, here());
  const std::size_t begin = pos_;
  while (true) {
    const char c = peek();
    const std::size_t from = pos_;
    if (const std::size_t length = stop == Stop::kWord ? placeholder() : 0; length > 0) {
      pos_ += length;
      const int why = script_.reason(fmt::format("{} in line {} stands for a value of yours; write it in its place",
                                                 in_quotes(typed(from), 60), line_of(from)));
      out.put({'$', at(from), why});
      put_unknown(out, from, why);
      continue;
    }
    if ((stop == Stop::kWord && ends_word(c)) || (stop == Stop::kEnd && at_end())) return;
    if (at_end()) script_.fail(at(begin), stop == Stop::kQuote ? "nothing closes this quote" : "nothing closes this brace");
    if ((stop == Stop::kQuote && takes("\"")) || (stop == Stop::kBrace && takes("}"))) return;
    if (takes("\\\n")) continue;
    if (stop == Stop::kWord && puts_expansion(out, begin)) continue;
    if (c == '\\' && pos_ + 1 < text_.size() && (!is_quoted || has("$`\\", peek(1)) ||
                                                  (stop != Stop::kEnd && peek(1) == '"') ||
                                                  (stop == Stop::kBrace && peek(1) == '}'))) {
      out.put(text_[pos_ + 1], true);
      pos_ += 2;
    } else if (c == '\'' && !is_quoted) {
      skip_quoted(at(from));
      out.is_open = true;
      for (std::size_t i = from + 1; i + 1 < pos_; ++i) out.put(text_[i], true);
    } else if (stop != Stop::kEnd && takes("\"")) {
      const bool was_open = std::exchange(out.is_open, true);
      has_no_items_ = false;
      scan(out, Stop::kQuote, true);
      if (has_no_items_ && !was_open) out.is_open = !out.current.empty();
    } else if (c == '$') {
      dollar(out, is_quoted);
    } else if (c == '`') {
      skip_quoted(at(from));
      if (!puts_path(out, from, from + 1, pos_ - 1)) put_not_executed(out, from);
    } else {
      out.put(text_[pos_++], is_quoted);
    }
  }
}

void WordReader::dollar(Fields& out, bool is_quoted) {
  const std::size_t begin = pos_++;
  if (const bool is_sum = takes("(("); is_sum || takes("(")) {
    const std::size_t inner = pos_;
    skip_parentheses(at(begin));
    const std::size_t end = pos_ - 1;
    if (is_sum && !takes(")")) script_.fail(at(begin), "nothing closes this parenthesis");
    const bool is_expr = bytes_of(part(inner, std::min(inner + 5, end))) == "expr ";
    if (is_sum || is_expr) arithmetic(out, begin, inner + (is_sum ? 0 : 5), end, is_sum ? Syntax::kShell : Syntax::kExpr);
    else if (!puts_document(out, inner, end, is_quoted) && !puts_path(out, begin, inner, end)) put_not_executed(out, begin);
  } else if (peek() == '[') {
    script_.refuse(at(begin), "$[");
  } else if (takes("{")) {
    parameter(out, begin, is_quoted);
  } else if (peek() == '\'' && !is_quoted) {
    skip_quoted(at(begin), true);
    const std::string text = typed(begin);
    if (!is_listed(text, "$'\\n' $'\\t' $'\\n\\t'")) return put_not_executed(out, begin);
    for (std::size_t i = 3; i + 1 < text.size(); i += 2) out.put({text[i] == 'n' ? '\n' : '\t', at(begin)});
  } else if (const std::string name = parameter_name(false); !name.empty()) {
    put_variable(out, begin, {name}, is_quoted);
  } else if (peek() != '"' || is_quoted) {
    out.put(text_[begin]);
  }
}

void WordReader::arithmetic(Fields& out, std::size_t begin, std::size_t inner, std::size_t end, Syntax syntax) {
  const Level level(script_, at(begin));
  const bool has_names = syntax == Syntax::kShell;
  WordReader reader(script_, part(inner, end));
  reader.runs_ = runs_, reader.has_words_ = false;
  if (const std::vector<std::string> names = has_names ? assigned_in(bytes_of(reader.text_)) : std::vector<std::string>();
      !names.empty() && runs_ != kNever) {
    const int why = runs_ != 0 ? runs_ : doubt("the sum", begin);
    for (const std::string& name : names) script_.doubt(name, at(begin), why);
    return put_unknown(out, begin, why);
  }
  Fields content{false};
  bool has_sum = false;  // as the value of a variable, which is computed before what stands beside it
  while (!reader.at_end()) {
    const std::size_t from = reader.pos_, before = content.current.size();
    if (reader.peek() == '$') {
      reader.dollar(content, true);
    } else if (!has_names || !is_name(reader.peek()) || is_digit(reader.peek())) {
      content.put(reader.text_[reader.pos_++]);
    } else {
      reader.put_variable(content, from, {reader.parameter_name(false)}, true);
      const std::span value = std::span(content.current).subspan(before);
      has_sum |= std::ranges::any_of(value, [](const Char& c) { return c.why == 0 && !is_digit(c.c) && !is_space(c.c); });
    }
  }
  const Text text = content.take_one();
  if (why_of(text) != 0) return put_unknown(out, begin, why_of(text));
  std::string sum = bytes_of(text);
  std::erase(sum, '\\');  // expr has \*
  // expr takes each number and sign as a word.
  for (std::size_t i = 1; !has_names && i < sum.size(); ++i)
    has_sum |= is_digit(sum[i - 1]) != is_digit(sum[i]) && !is_space(sum[i - 1]) && !is_space(sum[i]);
  const double value = sum_of(sum);
  if (has_sum || !std::isfinite(value)) return put_not_executed(out, begin);
  for (const char digit : fmt::format("{}", static_cast<std::int64_t>(value))) out.put({digit, at(begin)});
}

void WordReader::parameter(Fields& out, std::size_t begin, bool is_quoted) {
  const bool counts = peek(1) != '}' && (is_name(peek(1)) || peek(1) == '@') && takes("#");
  const std::string name = peek() == '#' && peek(1) != '}' ? "" : parameter_name(true);
  std::string subscript;
  if (!name.empty() && takes("["))
    while (!at_end() && !takes("]")) subscript += text_[pos_++].c;
  if (!name.empty() && takes("}")) return put_variable(out, begin, {name, subscript, counts}, is_quoted);
  if (!name.empty() && !counts && (has("#%/^,", peek()) || (peek() == ':' && !has("-=+?", peek(1))))) {
    Fields rest{false};
    rest.is_pattern = true;
    scan(rest, Stop::kBrace, false);  // quotes around the whole are none of the pattern
    const Text value = rest.take_one();
    if (why_of(value) != 0) return put_unknown(out, begin, why_of(value));
    return put_variable(out, begin, {name, subscript, false, bytes_of(value)}, is_quoted);
  }
  const bool counts_empty = !name.empty() && takes(":");
  const char sign = peek();
  const bool is_followed = !name.empty() && has("-=+?", sign);
  pos_ += is_followed ? 1 : 0;
  Fields other{false};
  scan(other, Stop::kBrace, is_quoted);
  const bool is_all = is_listed(name, "@ *") || is_listed(subscript, "@ *");
  if (!is_followed || counts || (!subscript.empty() && !is_all)) return put_not_executed(out, begin);
  const auto found = script_.variables.find(name);
  if (found == script_.variables.end() && script_.anything != 0 && !is_digit(name[0]))
    return put_unknown(out, begin, script_.anything);
  const bool is_there = found != script_.variables.end() && !found->second.items.empty() &&
                        (!counts_empty || std::ranges::any_of(found->second.items.begin(),
                                                              is_all ? found->second.items.end() : found->second.items.begin() + 1,
                                                              [](const Text& one) { return !one.empty(); }));
  if (sign == '?' || (is_there && sign != '+')) return put_variable(out, begin, {name, subscript}, is_quoted);
  if (is_there != (sign == '+')) return;
  const Text value = other.take_one();
  script_.spend(value.size(), at(begin));
  if (sign == '=' && runs_ == 0) script_.change(name, at(begin)) = {{value}};
  else if (sign == '=' && runs_ != kNever) script_.doubt(name, at(begin), runs_);
  out.put_value(value, is_quoted);
}

void WordReader::put_variable(Fields& out, std::size_t begin, const Parameter& what, bool is_quoted) {
  const auto& [name, subscript, counts, how] = what;
  const bool is_of_arguments = is_listed(name, "@ * #"), is_all = is_of_arguments || is_listed(subscript, "@ *");
  const auto found = script_.variables.find(is_of_arguments ? "@" : name);
  const bool is_set = found != script_.variables.end(), is_known = !is_set || count_of(found->second) >= 0;
  const std::string path = !is_set && (subscript.empty() || subscript == "0") ? script_.path_of(name) : "";
  std::vector<Text> changed;  // where the items are not the variable's own
  if (!path.empty()) changed = {text_of(path, at(begin))};
  if (!is_set && path.empty() && !is_empty(out, begin, name, is_quoted)) return;
  std::span<const Text> items = is_set ? found->second.items : changed;
  const auto put_count = [&](std::size_t count) {
    for (const char digit : fmt::format("{}", count)) out.put({digit, at(begin)});
  };
  if (name == "#" && is_known) return put_count(items.size());
  if (!is_all && (subscript.size() > 4 || !std::ranges::all_of(subscript, is_digit))) return put_not_executed(out, begin);
  const bool joins = is_all && subscript != "@" && name != "@";
  if (((out.splits && !is_quoted) || joins) && !items.empty() && script_.variables.contains("IFS"))
    return put_unknown(out, begin, doubt("IFS", begin));
  if (!is_all) {
    const std::size_t first = subscript.empty() || !is_known ? 0 : std::stoul(subscript);
    items = items.subspan(std::min(first, items.size()), first < items.size() ? 1 : 0);
  }
  for (const Text& item : items) {
    script_.spend(item.size() * (how.starts_with('/') && has(how, '*') ? item.size() : 1) + 1, at(begin));
    if ((counts || !how.empty()) && why_of(item) != 0) return put_unknown(out, begin, why_of(item));
  }
  if (counts) {
    const Text text = is_all || items.empty() ? Text() : items[0];
    return is_ascii(bytes_of(text)) ? put_count(is_all ? items.size() : text.size()) : put_not_executed(out, begin);
  }
  if (!how.empty()) {
    std::vector<Text> parts(items.begin(), items.end());
    const bool cuts_items = is_all && how[0] == ':';
    if (cuts_items && is_of_arguments)
      parts.insert(parts.begin(), text_of("$0", at(begin), script_.reason("\"$0\" is known where the script runs")));
    if (cuts_items && !cut(parts, how)) return put_not_executed(out, begin);
    for (std::size_t i = 0; !cuts_items && i < parts.size(); ++i) {
      const std::optional<std::string> text = expanded(bytes_of(parts[i]), how);
      if (!text) return put_not_executed(out, begin);
      script_.spend(text->size(), at(begin));
      parts[i] = text_of(*text, at(begin));
    }
    changed = std::move(parts), items = changed;
  }
  has_no_items_ |= is_all && items.empty();
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0 && out.splits && (subscript == "@" || name == "@" || !is_quoted)) out.close();
    else if (i > 0) out.put({' ', at(begin)});
    out.is_open |= is_quoted;
    out.put_value(items[i], is_quoted);
  }
}

bool WordReader::is_empty(Fields& out, std::size_t begin, const std::string& name, bool is_quoted) {
  const bool are_all = is_listed(name, "@ * #"), is_argument = (is_digit(name[0]) && name != "0") || are_all,
             is_folder = name.starts_with("SLURM_") ||
                         is_listed(name, "HOME PWD OLDPWD TMPDIR USER HOSTNAME PATH SHELL UID EUID PPID RANDOM SECONDS LINENO 0"),
             is_own = is_name(name[0]) && !is_folder && !(is_argument && script_.has_open_arguments);
  if (are_all && !script_.has_open_arguments) return true;  // the script has none
  if (const auto all = script_.variables.find("@"); is_argument && all != script_.variables.end()) {
    if (count_of(all->second) < 0) out.put_value(all->second.items[0], true);
    return count_of(all->second) >= 0;
  }
  if (script_.anything != 0 && is_own && !is_digit(name[0])) return put_unknown(out, begin, script_.anything), false;
  if ((in_test_ && is_own) || (script_.own_names.contains(name) && stands_apart(begin, out.splits && is_quoted))) return true;
  const std::string shown = in_quotes("$" + name, 60);
  if (!is_quoted && script_.own_names.contains(name)) script_.reasons_of_own_names.insert(static_cast<int>(script_.reasons.size()));
  put_unknown(out, begin, script_.reason(
      is_argument ? shown + " is an argument of the script (set -- ARGUMENTS above its first command gives it)"
      : is_folder || !is_name(name[0]) ? shown + " is known where the script runs"
                                       : fmt::format("{} is set nowhere before line {}; write {}=... above it", shown,
                                                     line_of(begin), name)));
  return false;
}

bool WordReader::stands_apart(std::size_t begin, bool makes_word) const {
  const std::string text = typed(begin);
  const bool is_array = text.ends_with("[@]}");
  const char before = begin == 0 ? ' ' : text_[begin - 1].c;
  if (!has_words_ || (!is_array && (makes_word || (before == '"' && peek() == '"')))) return false;
  if (text.find_first_of("#:%/^,+-") != text.npos) return false;
  if (!has(" \t\n\"(", before) || (!ends_word(peek()) && peek() != '"')) return false;
  std::size_t end = begin;
  while (end > 0 && has(" \t\r\n\"\\", text_[end - 1].c)) --end;
  std::size_t first = end;
  while (first > 0 && !is_space(text_[first - 1].c) && !has("\"(", text_[first - 1].c)) --first;
  script_.spend(begin - first, at(begin));
  const std::string word = bytes_of(part(first, end));
  return !word.starts_with('-') || (has(word, '=') && !word.ends_with('='));
}

Outcome WordReader::test(std::string_view end, std::size_t begin) {
  Outcome all = Outcome::kTrue, any = Outcome::kFalse;
  bool is_followed = true;
  std::vector<Text> words;
  in_test_ = true;
  why_test_ = 0;
  for (bool ends = false; !ends;) {
    skip_lines();
    if (at_end()) script_.fail(at(begin), fmt::format("no \"{}\" closes this", end));
    ends = plain_word() == end;
    if (const bool is_or = ends || takes("||"); is_or || takes("&&")) {
      all = std::min(all, outcome_of(std::exchange(words, {})));
      if (is_or) any = std::max(any, std::exchange(all, Outcome::kTrue));
    } else if (ends_word(peek())) {
      is_followed = false, ++pos_;
    } else {  // "[" is a command, of which an empty variable without quotes is no word
      Fields fields{end == "]"};
      scan(fields, Stop::kWord, false);
      if (fields.splits) std::ranges::move(fields.take(), std::back_inserter(words));
      else words.push_back(fields.take_one());
      if (why_test_ == 0 && !words.empty()) why_test_ = why_of(words.back());
    }
  }
  in_test_ = false;
  pos_ += end.size();
  return is_followed ? any : Outcome::kUnknown;
}

int WordReader::doubt(std::string_view what, std::size_t begin, int why) {
  constexpr std::size_t kLongest = 400;  // of reasons of reasons
  const std::string& earlier = script_.reasons[static_cast<std::size_t>(why)];
  std::string text = fmt::format("it depends on {} in line {}{}", what, line_of(begin),
                                 why == 0 || earlier.size() > kLongest ? ", which import does not follow" : ": " + earlier);
  script_.spend(text.size(), at(begin));
  return script_.reason(std::move(text));
}

}  // namespace trident::shell

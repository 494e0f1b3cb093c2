#include "import/shell_words.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace trident::shell {
namespace {

bool is_match(std::string_view text, std::string_view pattern) {
  std::size_t t = 0, p = 0, star = pattern.npos, from = 0;
  while (t < text.size() || p < pattern.size()) {
    if (p < pattern.size() && pattern[p] == '*') star = p++, from = t;
    else if (t < text.size() && p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) ++t, ++p;
    else if (star != pattern.npos && from < text.size()) t = ++from, p = star + 1;
    else return false;
  }
  return true;
}

// From the root, without a slash at its end.
std::string whole_path(const std::string& path) {
  std::error_code error;
  std::string whole = (std::filesystem::current_path(error) / path).lexically_normal().string();
  if (whole.size() > 1 && whole.ends_with('/')) whole.pop_back();
  return error ? "" : whole;
}

}  // namespace

void set_unknown(Variable& variable, const std::string& name, int at, int why) {
  variable.items.assign(1, {});
  for (const char c : "$" + name) variable.items[0].push_back({c, at, why});
}

std::string bytes_of(const Text& text) {
  std::string bytes;
  for (const Char& c : text) bytes += c.c;
  return bytes;
}
int why_of(const Text& text) {
  const auto found = std::ranges::find_if(text, [](const Char& c) { return c.why != 0; });
  return found == text.end() ? 0 : found->why;
}

double sum_of(std::string_view text) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  double sum = 0, term = 0;
  for (char sign = '+'; has("+-*/%", sign); text.remove_prefix(1)) {
    const std::string digits(text.substr(0, text.find_first_not_of("0123456789")));
    text.remove_prefix(digits.size());
    if (digits.empty() || digits.size() > 15 || (digits[0] == '0' && digits.size() > 1)) return kNone;
    const double next = std::stod(digits);
    if (has("+-", sign)) sum += std::exchange(term, sign == '+' ? next : -next);
    else term = sign == '*' ? term * next : sign == '/' ? std::trunc(term / next) : std::fmod(term, next);
    if (!(std::abs(term) < 4e15 && std::abs(sum) < 4e15)) return kNone;
    if (text.empty()) return sum + term;
    sign = text[0];
  }
  return kNone;
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

std::string Script::path_of(std::string_view name) const {
  if (is_listed(name, "0 BASH_SOURCE")) return source == "-" ? "" : std::string(source);
  return name == "PWD" && folder ? whole_path(*folder) : "";
}

std::string path_said(const Script& script, const std::vector<std::string>& words) {
  const std::size_t count = words.size();
  const std::string name = count > 0 ? words[0] : "", path = count > 1 ? words[1] : "";
  const bool goes = count == 4 && name == "cd" && words[2] == "&&" && words[3] == "pwd";
  if (count == 1 && name == "pwd") return script.path_of("PWD");
  if (goes || (count == 2 && is_listed(name, "realpath readlink"))) {
    const std::optional<std::string> folder = script.folder_at(path);
    return folder ? whole_path(*folder) : "";
  }
  const std::string bare = path.substr(0, path.find_last_not_of('/') + 1);
  const std::size_t slash = bare.rfind('/');
  if (bare.empty() || (count != 2 && !(count == 3 && name == "basename"))) return "";
  if (name == "dirname") return slash == bare.npos ? "." : slash == 0 ? "/" : bare.substr(0, slash);
  if (name != "basename") return "";
  const std::string last = bare.substr(slash + 1), end = count == 3 ? words[2] : "";
  return last.ends_with(end) && last != end ? last.substr(0, last.size() - end.size()) : last;
}

std::vector<std::string> changed_by(const std::vector<std::string>& words) {
  const bool copies = is_listed(words[0], "cp ln install rsync"), moves = words[0] == "mv";
  const auto in_place = [](const std::string& word) {
    return word.starts_with("--in-place") || (word.starts_with('-') && !word.starts_with("--") && has(word, 'i'));
  };
  const bool edits = is_listed(words[0], "sed perl yq") && std::ranges::any_of(words, in_place);
  std::vector<std::string> files;
  if (!copies && !moves && !edits && !is_listed(words[0], "tee rm truncate patch ed")) return files;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const bool is_last = i + 1 == words.size();
    if (!copies || is_last) files.push_back(words[i]);
    if ((copies || moves) && !is_last) files.push_back(words.back() + '/' + words[i].substr(words[i].rfind('/') + 1));
  }
  return files;
}

std::vector<std::string> assigned_in(std::string_view sum) {
  bool assigns = sum.find("++") != sum.npos || sum.find("--") != sum.npos;
  for (std::size_t i = sum.find('='); i != sum.npos; i = sum.find('=', i + 1))
    assigns |= !has("=<>!", sum[i - 1]) && sum[i + 1] != '=';
  std::vector<std::string> names;
  for (std::size_t end = 0, i = 0; assigns && i < sum.size(); i = end + 1) {
    for (end = i; end < sum.size() && is_name(sum[end]);) ++end;
    if (end > i && !is_digit(sum[i])) names.emplace_back(sum.substr(i, end - i));
  }
  return names;
}

bool has_quoted_sign(const Text& word) {
  char quote = 0;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const char c = word[i].c;
    if (const bool escapes = c == '\\' && quote != '\''; escapes || quote != 0) {
      i += escapes ? 1 : 0;
      if (i < word.size() && has("*?", word[i].c)) return true;
    }
    if (c == quote) quote = 0;
    else if (quote == 0 && has("'\"", c)) quote = c;
  }
  return false;
}

}  // namespace trident::shell

namespace trident {

std::string shell_file_name(const std::string& path) {
  const std::filesystem::path whole = shell::whole_path(path), below = whole.lexically_relative(shell::whole_path(""));
  return below.empty() || *below.begin() == ".." ? whole.string() : below.string();
}

}  // namespace trident

#include "import/shell_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace trident::shell {
namespace {

// From the root, without a slash at its end.
std::string whole_path(const std::string& path) {
  std::error_code error;
  std::string whole = (std::filesystem::current_path(error) / path).lexically_normal().string();
  if (whole.size() > 1 && whole.ends_with('/')) whole.pop_back();
  return error ? "" : whole;
}

// Integers with + - * / %, comparisons, ?: and parentheses. NaN stands for all else, and stays.
struct Sum {
  static constexpr double kMost = 4e15, kNone = std::numeric_limits<double>::quiet_NaN();
  std::string_view text;
  int levels = 0;

  void skip_blanks() { text.remove_prefix(std::min(text.size(), text.find_first_not_of(" \t\r\n"))); }
  bool takes(std::string_view sign) {
    skip_blanks();
    if (!text.starts_with(sign)) return false;
    return text.remove_prefix(sign.size()), true;
  }
  double choice() {
    const double condition = binary(0);
    if (!takes("?")) return condition;
    if (levels == kMaxForeignDepth) return kNone;
    ++levels;
    const double yes = choice(), no = takes(":") ? choice() : kNone;
    --levels;
    return std::isnan(condition + yes + no) ? kNone : condition != 0 ? yes : no;
  }
  // Signs of one level count from the left, those of the next before them.
  double binary(std::size_t level) {
    static constexpr std::string_view kLevels[][4] = {{"==", "!="}, {"<=", ">=", "<", ">"}, {"+", "-"}, {"*", "/", "%"}};
    if (level == std::size(kLevels)) return factor();
    double a = binary(level + 1);
    while (true) {
      const auto sign = std::ranges::find_if(kLevels[level], [&](std::string_view one) { return !one.empty() && takes(one); });
      if (sign == std::end(kLevels[level])) return a;
      const double b = binary(level + 1);
      a = std::abs(a + b) < 2 * kMost ? value_of(*sign, a, b) : kNone;
    }
  }
  static double value_of(std::string_view sign, double a, double b) {
    switch (sign[0]) {
      case '=': return a == b;
      case '!': return a != b;
      case '<': return sign.size() == 2 ? a <= b : a < b;
      case '>': return sign.size() == 2 ? a >= b : a > b;
      case '+': return a + b;
      case '-': return a - b;
      case '*': return std::abs(a * b) < kMost ? a * b : kNone;
      case '/': return std::trunc(a / b);
      default: return std::fmod(a, b);
    }
  }
  double factor() {
    double value = kNone;
    if (levels == kMaxForeignDepth) return value;
    ++levels;
    if (takes("-")) {
      value = -factor();
    } else if (takes("(")) {
      if (const double inner = choice(); takes(")")) value = inner;
    } else {
      const std::string digits(text.substr(0, text.find_first_not_of("0123456789")));
      text.remove_prefix(digits.size());
      if (!digits.empty() && digits.size() < 16 && (digits[0] != '0' || digits.size() == 1)) value = std::stod(digits);
    }
    --levels;
    skip_blanks();
    return value;
  }
};

}  // namespace

double sum_of(std::string_view text) {
  Sum sum{text};
  const double value = sum.choice();
  return sum.text.empty() && std::abs(value) < Sum::kMost ? value : std::numeric_limits<double>::quiet_NaN();
}

int count_of(const Variable& array) {
  return array.items.empty() || why_of(array.items[0]) == 0 ? static_cast<int>(array.items.size()) : -1;
}
void set_unknown(Variable& variable, const std::string& name, int at, int why) {
  variable.items = {text_of("$" + name, at, why)};
}

std::string Script::path_of(std::string_view name) const {
  if (name == "BASH_SOURCE" && !sourced.empty()) return sourced;
  if (is_listed(name, "0 BASH_SOURCE")) return source == "-" ? "" : std::string(source);
  if (name == "SLURM_SUBMIT_DIR") return whole_path("");  // where import is called, as sbatch is
  return name == "PWD" && folder ? whole_path(*folder) : "";
}

Variable& Script::change(const std::string& name, int at) {
  const auto found = variables.find(name);
  std::size_t bytes = name.size();
  if (found != variables.end())
    for (const Text& item : found->second.items) bytes += item.size();
  spend(bytes + 64, at);
  changes.emplace_back(name, found == variables.end() ? std::nullopt : std::optional(found->second));
  return variables[name];
}
void Script::erase(const std::string& name, int at) {
  change(name, at);
  variables.erase(name);
}
void Script::forget(const Mark& since) {
  for (; changes.size() > since.changes; changes.pop_back())
    if (auto& [name, before] = changes.back(); before) variables[name] = std::move(*before);
    else variables.erase(name);
  folder = since.folder;
}
void Script::doubt_all(int at, int why) {
  std::vector<std::string> names;
  for (const auto& [name, variable] : variables)
    if (is_name(name[0]) && !is_digit(name[0]) && !name.starts_with("SLURM_")) names.push_back(name);
  for (const std::string& name : names) doubt(name, at, why);
  anything = why;
}
void Script::set_arguments(const std::vector<Text>& items, int at, int runs) {
  std::size_t bytes = items.size();
  for (const Text& item : items) bytes += item.size();
  spend(bytes, at);
  for (auto one = variables.lower_bound("0"); one != variables.end() && is_digit(one->first[0]);)
    erase(std::string((one++)->first), at);
  if (runs != 0) return doubt("@", at, runs);
  change("@", at).items = items;
  for (std::size_t i = 0; i < items.size(); ++i) change(fmt::format("{}", i + 1), at).items = {items[i]};
}
void Script::set(const std::vector<Text>& words, const std::vector<std::string>& texts, int at, int runs) {
  const std::size_t count = texts.size();
  std::size_t i = 1;
  for (; i < count && has("-+", texts[i][0]) && !is_listed(texts[i], "-- -"); ++i) {
    i += has(texts[i], 'o') && i + 1 < count ? 1 : 0;
  }
  if (i == count || (i + 1 == count && texts[i] == "-")) return;
  i += is_listed(texts[i], "-- -") ? 1 : 0;
  set_arguments({words.begin() + static_cast<std::ptrdiff_t>(i), words.end()}, at, runs);
}
void Script::shift(const std::vector<Text>& words, int at, int runs) {
  const auto all = variables.find("@");
  if (all == variables.end() || count_of(all->second) < 0) return;
  const double by = words.size() == 1 ? 1 : sum_of(bytes_of(words[1]));
  std::vector<Text> items = all->second.items;
  if (by >= 0 && by <= static_cast<double>(items.size())) items.erase(items.begin(), items.begin() + static_cast<int>(by));
  set_arguments(items, at, runs != 0 || words.size() == 1 ? runs : why_of(words[1]));
}
void Script::unset(const std::vector<Text>& words, int why) {
  const bool is_function = words.size() > 1 && bytes_of(words[1]) == "-f";
  for (const Text& word : words) {
    if (is_function && why == 0) functions.erase(bytes_of(word));
    if (is_function) continue;
    const std::string text = bytes_of(word), name = text.substr(0, text.find('['));
    if (why == 0 && name == text && is_name(name[0])) change(name, word.front().at) = {};
    else if (variables.contains(name)) doubt(name, word.front().at, why);
  }
}
void Script::keep_exported(int at) {
  std::vector<std::string> names;
  for (const auto& [name, variable] : variables)
    if (!variable.is_exported) names.push_back(name);
  for (const std::string& name : names) erase(name, at);
}
void Script::write(ShellFile file) {
  newest_files[file.name] = files.size();
  files.push_back(std::move(file));
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
  const bool copies = is_listed(words[0], "cp ln install rsync scp"), moves = words[0] == "mv";
  const auto in_place = [](const std::string& word) {
    return word.starts_with("--in-place") || (word.starts_with('-') && !word.starts_with("--") && has(word, 'i'));
  };
  const bool edits = is_listed(words[0], "sed perl yq") && std::ranges::any_of(words, in_place);
  std::vector<std::string> files;
  if (!copies && !moves && !edits && !is_listed(words[0], "tee rm truncate patch ed curl wget")) return files;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const bool is_last = i + 1 == words.size();
    if (!copies || is_last) files.push_back(words[i]);
    const std::string last = words[i].substr(words[i].rfind('/') + 1);
    if ((copies || moves) && !is_last) files.push_back(words.back() + '/' + last);
    if (is_listed(words[0], "curl wget")) files.push_back(last);
  }
  return files;
}

std::vector<std::string> assigned_in(std::string_view sum) {
  bool assigns = sum.find("++") != sum.npos || sum.find("--") != sum.npos;
  for (std::size_t i = sum.find('='); i != sum.npos; i = sum.find('=', i + 1))
    assigns |= i > 0 && !has("=<>!", sum[i - 1]) && sum.substr(i + 1, 1) != "=";
  std::vector<std::string> names;
  for (std::size_t end = 0, i = 0; assigns && i < sum.size(); i = end + 1) {
    for (end = i; end < sum.size() && is_name(sum[end]);) ++end;
    if (end > i && !is_digit(sum[i])) names.emplace_back(sum.substr(i, end - i));
  }
  return names;
}

std::vector<std::string> set_by(const std::vector<std::string>& words) {
  const bool reads = is_listed(words[0], "read mapfile readarray getopts"), declares = is_listed(words[0], kDeclarations);
  std::vector<std::string> names;
  if (reads) names = {"REPLY", "MAPFILE", "OPTARG"};
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string before = words[i].substr(0, words[i].find_first_of("=[+-"));
    if (words[0] == "let") std::ranges::move(assigned_in(words[i]), std::back_inserter(names));
    else if (reads || (declares && before != words[i]) || (words[0] == "printf" && words[i - 1] == "-v")) names.push_back(before);
  }
  std::erase(names, "");  // of flags
  return names;
}

bool is_environment(std::string_view text) {
  const std::string_view last = text.substr(text.rfind('/') + 1);
  return is_listed(last, "activate conda.sh mamba.sh .bashrc .bash_profile .profile modules.sh setvars.sh") ||
         text.starts_with("/etc/") || text.find("conda shell") != text.npos || text.find("/init/") != text.npos;
}

}  // namespace trident::shell

namespace trident {

std::string shell_file_name(const std::string& path) {
  const std::filesystem::path whole = shell::whole_path(path), below = whole.lexically_relative(shell::whole_path(""));
  return below.empty() || *below.begin() == ".." ? whole.string() : below.string();
}

}  // namespace trident

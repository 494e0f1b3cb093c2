// The state of a script while it is read: reasons, variables, files, functions. For import alone.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "import/shell_reader.h"
#include "import/text_limits.h"

namespace trident::shell {

struct Char {
  char c;
  int at;       // offset in the script
  int why = 0;  // number of the reason for which it has no value; 0: it has one
};
using Text = std::vector<Char>;

struct Variable {
  std::vector<Text> items;  // one, unless it is an array; none: it is unset
  bool is_exported = false, is_readonly = false;
};
using Variables = std::map<std::string, Variable, std::less<>>;

inline bool has(std::string_view any, char c) { return any.find(c) != any.npos; }
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c); }
inline bool is_space(char c) { return has(" \t\r\n", c); }
inline bool ends_word(char c) { return c == '\0' || is_space(c) || has(";&|()<>", c); }

// How many items an array has; -1: nobody knows.
int count_of(const Variable& array);
void set_unknown(Variable& variable, const std::string& name, int at, int why);
inline Text text_of(std::string_view bytes, int at, int why = 0) {
  Text text;
  for (const char c : bytes) text.push_back({c, at, why});
  return text;
}
std::string bytes_of(const Text& text);
int why_of(const Text& text);

// Builtins that take NAME=value.
inline constexpr std::string_view kDeclarations = "export declare local readonly typeset";

// The value of integers with + - * / % and comparisons between them; not finite: all else, a division by zero, 9e15 and beyond.
double sum_of(std::string_view text);

// In this order "and" is the lower and "or" the higher of two. kPresumed: of a command that is not executed, whose success `&&`
// takes for granted and `if` does not.
enum class Outcome : std::uint8_t { kFalse, kUnknown, kTrue, kPresumed };

// Returns what a test of these words, which stand between && and ||, comes to.
Outcome outcome_of(const std::vector<Text>& words);
// Returns whether a pattern of letters, * and ? is of the whole text. Texts so long that the comparison would take seconds are in
// nobody's `case`.
Outcome match_of(const Text& text, const Text& pattern);
struct Script;
// Returns what dirname, basename, realpath, readlink, pwd, or cd and pwd with these words say; "": other commands.
std::string path_said(const Script& script, const std::vector<std::string>& words);
// Returns the files that a command with these words changes: all that it names, but those that are copied.
std::vector<std::string> changed_by(const std::vector<std::string>& words);
// Returns the variables in ((N += 1)); none where nothing is assigned.
std::vector<std::string> assigned_in(std::string_view sum);
// Returns the variables that a builtin with these words sets to values that are not followed: read, mapfile, printf -v, let, ...
std::vector<std::string> set_by(const std::vector<std::string>& words);
// Whether a file that `source` names, or a program that `eval` runs, sets up a machine's environment and no training.
bool is_environment(std::string_view text);

constexpr int kNever = -1;  // in the place of a doubt: commands do not run

// The fields that a word becomes.
struct Fields {
  bool splits;
  bool is_open = false;
  Text current = {};
  std::vector<Text> done = {};
  bool is_pattern = false;  // a backslash stands before each character that quotes make a letter

  void put(Char c, bool is_quoted = false) {
    if (is_pattern && is_quoted) current.push_back({'\\', c.at});
    current.push_back(c), is_open = true;
  }
  // A variable's value: blanks end fields where the word is not quoted.
  void put_value(const Text& value, bool is_quoted) {
    for (const Char& c : value)
      if (splits && !is_quoted && is_space(c.c) && c.why == 0) close();
      else put(c, is_quoted || c.c == '/');  // no slash of a value ends a pattern
  }
  void close() {
    if (is_open) done.push_back(std::move(current));
    current.clear(), is_open = false;
  }
  std::vector<Text> take() { return close(), std::move(done); }
  Text take_one() { return close(), done.empty() ? Text() : std::move(done.front()); }
};

struct Function {
  Text body;
  int runs;  // as WordReader's runs_: of its definition
};

// A text that `source` reads: its characters lie behind those of the script.
struct SourcedText {
  int begin;
  std::string name;
  int called_at;
};

// A place that a shell of its own goes back to at its end.
struct Mark {
  std::size_t changes;
  std::optional<std::string> folder;
};

// The readers of a script and of the scripts in its words share this.
struct Script {
  std::string_view source;
  std::span<const std::string_view> settings;
  const ShellSources& sources;
  bool has_open_arguments = false;  // what the arguments are nobody knows; else there are none
  int end = 0;                      // of all texts that are read
  std::vector<int> line_starts = {0};
  std::vector<SourcedText> sourced_texts = {};
  std::vector<std::string> reasons = {""};
  int anything = 0;          // number of the reason for which any variable may have been set; 0: none
  Variables variables = {};  // which change() and erase() alone write
  std::set<std::string, std::less<>> own_names = {};  // set by commands that do not run, though the user may have set them, too
  std::set<int> reasons_of_own_names = {};            // where these stand without quotes
  std::vector<std::pair<std::string, std::optional<Variable>>> changes = {};  // what they were before
  std::map<std::string, Function, std::less<>> functions = {};
  std::vector<ShellCommand> commands = {};
  ShellFiles files = {};
  std::map<std::string, std::size_t, std::less<>> newest_files = {};  // indices in `files`
  std::string sourced = {};                // the file that `source` reads now
  std::optional<std::string> folder = "";  // that `cd` went to, from the working directory; nothing: nobody knows which
  std::size_t spent = 0;  // bytes that expansions wrote
  int levels = 0;

  Text characters_of(std::string_view text) {
    Text characters;
    for (const char c : text) {
      if (c != '\r') characters.push_back({c, end});
      if (++end; c == '\n') line_starts.push_back(end);
    }
    return characters;
  }
  // nullptr: it is in the script itself.
  const SourcedText* sourced_text_of(int at) const {
    const auto next = std::ranges::upper_bound(sourced_texts, at, {}, &SourcedText::begin);
    return next == sourced_texts.begin() ? nullptr : &*std::prev(next);
  }
  std::ptrdiff_t line_index(int at) const { return std::ranges::upper_bound(line_starts, at) - line_starts.begin() - 1; }
  int column(int at) const { return at - line_starts[static_cast<std::size_t>(line_index(at))] + 1; }
  // Returns line and column in the script, where it reads the text.
  std::pair<int, int> place(int at) const {
    while (const SourcedText* const text = sourced_text_of(at)) at = text->called_at;
    return {static_cast<int>(line_index(at)) + 1, column(at)};
  }
  // Names the text's own place.
  [[noreturn]] void fail(int at, std::string_view why) const {
    const SourcedText* const text = sourced_text_of(at);
    const std::ptrdiff_t line = line_index(at) - line_index(text == nullptr ? 0 : text->begin);
    refuse_at(text == nullptr ? source : text->name, static_cast<int>(line) + 1, column(at), why);
  }
  [[noreturn]] void refuse(int at, std::string_view what) const {
    fail(at, fmt::format("{} is not followed; give import the command alone", what));
  }
  void spend(std::size_t bytes, int at) {
    if ((spent += bytes) > std::size_t{1} << 22)
      fail(at, "more than 4 MiB once variables are replaced; give import the command alone");
  }
  int reason(std::string text) {
    reasons.push_back(std::move(text));
    return static_cast<int>(reasons.size()) - 1;
  }
  Variable& change(const std::string& name, int at);
  void erase(const std::string& name, int at);
  void doubt(const std::string& name, int at, int why) { set_unknown(change(name, at), name, at, why); }
  void doubt_all(int at, int why);
  Mark mark() const { return {changes.size(), folder}; }
  void forget(const Mark& since);
  void set_arguments(const std::vector<Text>& items, int at, int runs);
  // The builtin with these words, which `texts` are.
  void set(const std::vector<Text>& words, const std::vector<std::string>& texts, int at, int runs);
  void shift(const std::vector<Text>& words, int at, int runs);
  void unset(const std::vector<Text>& words, int why);
  void keep_exported(int at);
  void write(ShellFile file);
  // The folder that `cd` would go to; nothing: nobody knows which.
  std::optional<std::string> folder_at(const std::string& path) const {
    if (path.empty() || path == "-" || (!folder && path[0] != '/')) return std::nullopt;
    if (path[0] == '~' || path.find_first_of("*?[{") != path.npos) return std::nullopt;  // a shell makes other paths of these
    return (std::filesystem::path(folder.value_or("")) / path).lexically_normal().string();
  }
  // $0 or $PWD; "": nobody knows it.
  std::string path_of(std::string_view name) const;
  ShellWord word_of(const Text& text, int at) const {  // in whose place `at` counts where there is no text
    const auto [line, column] = place(text.empty() ? at : text.front().at);
    const int why = why_of(text);
    const bool is_one = std::ranges::all_of(text, [&](const Char& c) { return c.why == why; });
    return {bytes_of(text), line, column, reasons[static_cast<std::size_t>(why)], is_one && reasons_of_own_names.contains(why)};
  }
};

}  // namespace trident::shell

#include "train/import/shell_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/check.h"
#include "core/json_reader.h"
#include "train/import/shell_words.h"

namespace trident {
namespace shell {
namespace {

// Whether commands run: all, none, or nobody knows for a reason.
struct Runs {
  bool is_never = false;
  int doubt = 0;
};

// kPresumed: of a command that is not executed, whose success `&&` takes for granted and `if` does not.
enum class Outcome : std::uint8_t { kTrue, kFalse, kUnknown, kPresumed };

class Reader : Scanner {
 public:
  // `before` are words before those of each command: of what starts this shell.
  Reader(Script& script, Text text, std::vector<ShellWord> before = {})
      : Scanner(script, std::move(text)), before_(std::move(before)) {}
  void read(Runs runs) {
    const Level level(script_, here());
    runs_ = runs;
    blocks_.push_back({"", here(), runs, runs});
    while (!at_end()) step();
    if (blocks_.size() > 1) script_.fail(blocks_.back().begin, fmt::format("nothing closes this \"{}\"", blocks_.back().kind));
  }

 private:
  struct Block {
    std::string_view kind;
    int begin;
    Runs base;  // of its commands
    Runs rest;  // of the branches to come
    bool at_pattern = false;
  };

  // A word of letters and brackets that no quote makes: "then", "[["; "" for every other.
  std::string plain_word() const {
    std::string word;
    for (std::size_t i = 0; !ends_word(peek(i)); ++i) {
      if (i == 10 || (!is_name(peek(i)) && !has("{}[]!", peek(i)))) return "";
      word += peek(i);
    }
    return word;
  }

  // ---- assignments
  // NAME=value at the cursor: its name; "": there is none.
  std::string takes_assignment(Variables& variables, bool is_exported) {
    std::size_t end = 0;
    while (is_name(peek(end))) ++end;
    const std::string name = end == 0 || is_digit(peek()) ? "" : bytes_of(part(pos_, pos_ + end));
    const bool is_element = peek(end) == '[';
    while (is_element && peek(end) != '=' && !ends_word(peek(end))) ++end;
    const bool appends = peek(end) == '+';
    end += appends ? 1 : 0;
    if (name.empty() || peek(end) != '=') return "";
    const std::size_t begin = pos_;
    pos_ += end + 1;
    const bool is_array = takes("(");
    Fields value(is_array);
    if (!is_array) scan(value, Stop::kWord, false);
    while (is_array && (skip_lines(), !takes(")"))) {
      const std::size_t before = pos_;
      scan(value, Stop::kWord, false);
      if (pos_ == before) script_.fail(at(begin), "nothing closes this parenthesis");
      value.close();
    }
    std::vector<Text> items = is_array ? value.take() : std::vector<Text>{value.take_one()};
    if (runs_.is_never) return name;
    Variable& variable = variables[name];
    variable.is_exported |= is_exported;
    if (is_element || runs_.doubt != 0) {
      set_unknown(variable, name, at(begin), runs_.doubt != 0 ? runs_.doubt : doubt("an element", begin));
    } else if (appends && !is_array && !variable.items.empty()) {
      variable.items.front().insert(variable.items.front().end(), items[0].begin(), items[0].end());
    } else {
      if (!appends) variable.items.clear();
      std::ranges::move(items, std::back_inserter(variable.items));
    }
    return name;
  }
  void set_unknown(Variable& variable, const std::string& name, int at, int why) {
    variable.items.assign(1, {});
    for (const char c : "$" + name) variable.items[0].push_back({c, at, why});
  }

  // ---- redirections
  bool takes_redirection() {
    std::size_t digits = 0;
    while (is_digit(peek(digits))) ++digits;
    digits += peek(digits) == '&' && peek(digits + 1) == '>' ? 1 : 0;
    if ((peek(digits) != '<' && peek(digits) != '>') || peek(digits + 1) == '(') return false;
    pos_ += digits;
    const bool is_text = takes("<<<"), cuts_tabs = !is_text && takes("<<-"), is_document = cuts_tabs || (!is_text && takes("<<"));
    while (!is_text && !is_document && !at_end() && has("<>&|", peek())) ++pos_;
    skip_blanks();
    Fields where(false);
    scan(where, Stop::kWord, false);
    if (is_document) here_documents_.emplace_back(bytes_of(where.take_one()), cuts_tabs);
    return true;
  }

  // ---- commands
  int doubt(std::string_view what, std::size_t begin) {
    return script_.reason(fmt::format("it depends on {} in line {}, which import does not follow", what, line_of(begin)));
  }
  Runs doubtful(std::string_view what) {
    return runs_.is_never || runs_.doubt != 0 ? runs_ : Runs{false, doubt(what, pos_)};
  }
  Runs narrowed(Runs runs, Outcome outcome, bool wanted) {
    if (runs.is_never) return runs;
    if (outcome != Outcome::kUnknown) return (outcome != Outcome::kFalse) == wanted ? runs : Runs{true, 0};
    return runs.doubt != 0 ? runs : Runs{false, doubt("the condition", pos_)};
  }
  void open(std::string_view kind, Runs runs) {
    if (blocks_.size() > 64) script_.fail(here(), "more than 64 levels; give import the command alone");
    blocks_.push_back({kind, here(), runs, runs, kind == "case"});
    runs_ = runs;
    pos_ += kind.size();
  }
  void close(std::string_view kind, std::string_view word) {
    if (blocks_.size() == 1 || blocks_.back().kind != kind) fail_alone();
    blocks_.pop_back();
    pos_ += word.size();
    outcome_ = Outcome::kPresumed;
    for (skip_blanks(); takes_redirection(); skip_blanks()) {}
  }
  // A command, or what stands between two.
  void step() {
    skip_blanks();
    if (at_end()) return;
    Block& block = blocks_.back();
    const std::string word = plain_word();
    const std::size_t begin = pos_;
    if (block.at_pattern && word != "esac") return skip_pattern();
    if (block.kind == "case" && (takes(";;&") || takes(";;") || takes(";&"))) {
      block.at_pattern = true;
      skip_lines();
    } else if (takes("&&") || takes("||")) {
      runs_ = narrowed(block.base, outcome_, text_[begin].c == '&');
      skip_lines();
    } else if (peek() == '\n' || takes(";") || takes("|&") || takes("|") || (peek(1) != '>' && takes("&"))) {
      if (pos_ == begin) skip_newline();
      runs_ = block.base;
      if (text_[begin].c == '|') outcome_ = Outcome::kPresumed;
    } else if (takes("((")) {
      skip_parentheses(at(begin));
      if (!takes(")")) fail_alone();
      outcome_ = Outcome::kUnknown;
    } else if (peek() == '(' || word == "{" || word == "if") {
      open(peek() == '(' ? "(" : word == "{" ? "{" : "if", runs_);
    } else if (peek() == ')' || word == "}" || word == "fi" || word == "done" || word == "esac") {
      close(peek() == ')'    ? "("
            : word == "}"    ? "{"
            : word == "fi"   ? "if"
            : word == "done" ? "loop"
                             : "case",
            word.empty() ? ")" : word);
    } else if (word == "then" && block.kind == "if") {
      pos_ += word.size();
      const Outcome outcome = outcome_ == Outcome::kPresumed ? Outcome::kUnknown : outcome_;
      runs_ = block.base = narrowed(block.rest, outcome, true);
      block.rest = narrowed(block.rest, outcome, false);
    } else if ((word == "else" || word == "elif") && block.kind == "if") {
      pos_ += word.size();
      runs_ = block.base = block.rest;
    } else if (is_word(word, "for while until select")) {
      open("loop", doubtful("the loop"));
      pos_ += word.size() - std::string_view("loop").size();
      skip_blanks();
      const std::string name = is_word(word, "for select") ? parameter_name(false) : "";
      if (!name.empty() && !runs_.is_never) set_unknown(script_.variables[name], name, at(begin), runs_.doubt);
    } else if (word == "case") {
      open("case", doubtful("the case"));
      skip_blanks();
      Fields value(false);
      scan(value, Stop::kWord, false);
      skip_lines();
      if (!takes("in")) script_.fail(at(begin), "no \"in\" follows this");
      skip_lines();
    } else if (is_word(word, "do time")) {
      pos_ += word.size();
    } else if (word == "!") {
      ++pos_;
      is_not_ = !is_not_;
    } else if (word == "[[" || word == "[") {
      pos_ += word.size();
      settle(test(word == "[[" ? "]]" : "]", begin));
    } else if (!takes_function()) {
      simple();
    }
  }
  void skip_pattern() {
    const std::size_t begin = pos_;
    while (!takes(")")) {
      skip_lines();
      if (takes("|") || takes("(")) continue;
      const std::size_t before = pos_;
      Fields pattern(false);
      scan(pattern, Stop::kWord, false);
      if (pos_ == before && peek() != ')') script_.fail(at(begin), "no \")\" ends this pattern");
    }
    blocks_.back().at_pattern = false;
    runs_ = blocks_.back().base;
  }
  void settle(Outcome outcome) {
    if (is_not_)
      outcome = outcome == Outcome::kTrue ? Outcome::kFalse : outcome == Outcome::kFalse ? Outcome::kTrue : Outcome::kUnknown;
    is_not_ = false;
    if (!runs_.is_never) outcome_ = runs_.doubt != 0 ? Outcome::kUnknown : outcome;
  }
  // NAME() or function NAME: its block comes next, and nobody knows who calls it.
  bool takes_function() {
    const std::size_t begin = pos_;
    const bool has_keyword = plain_word() == "function";
    if (has_keyword) pos_ += 8, skip_blanks();
    const std::size_t name = pos_;
    while (is_name(peek()) || has("-:.", peek())) ++pos_;
    const bool has_name = pos_ > name;
    skip_blanks();
    const bool has_parentheses = takes("(") && (skip_blanks(), takes(")"));
    if (has_name && (has_parentheses || has_keyword)) {
      runs_ = doubtful("the function");
      skip_lines();
      return true;
    }
    pos_ = begin;
    return false;
  }

  void simple() {
    std::vector<Text> words;
    Variables given;
    const std::size_t begin = pos_;
    const Runs runs = std::exchange(runs_, Runs{true, 0});
    while (skip_blanks(), !takes_assignment(given, false).empty()) {}
    const bool is_assignment = ends_word(peek()) && !has("<>", peek());  // else its variables are those of the command alone
    pos_ = begin;
    runs_ = runs;
    bool declares = false;
    while (skip_blanks(), takes_redirection() || !ends_word(peek()) || has("<>", peek())) {
      const bool is_exported = declares && bytes_of(words[0]) == "export";
      if ((words.empty() || declares) &&
          !takes_assignment(is_assignment || declares ? script_.variables : given, is_exported).empty())
        continue;
      const std::size_t before = pos_;
      Fields fields(true);
      if (takes("<(") || takes(">(")) {
        skip_parentheses(at(before));
        put_not_executed(fields, before);
      }
      scan(fields, Stop::kWord, false);
      std::ranges::move(fields.take(), std::back_inserter(words));
      declares = !words.empty() && is_word(bytes_of(words[0]), "export declare local readonly typeset");
    }
    if (pos_ == begin) fail_alone();
    const bool is_false = !words.empty() && bytes_of(words[0]) == "false";
    settle(words.empty() || bytes_of(words[0]) == "true" ? Outcome::kTrue : is_false ? Outcome::kFalse : Outcome::kPresumed);
    if (!words.empty() && !runs_.is_never) emit(words, given, at(begin));
  }
  void emit(const std::vector<Text>& words, const Variables& given, int begin) {
    const std::string name = bytes_of(words[0]);
    ShellCommand command{before_, {}, script_.reasons[static_cast<std::size_t>(runs_.doubt)].text};
    std::size_t bytes = 0;
    for (const ShellWord& word : before_) bytes += word.text.size() + sizeof(ShellWord);
    if (name == "eval") return nested({words.begin() + 1, words.end()}, {}, begin);
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::string word = bytes_of(words[i]);
      if (name == "export" && script_.variables.contains(word)) script_.variables.find(word)->second.is_exported = true;
      if (i > 0 && i + 1 < words.size() && is_word(word, "-c -lc -ec -xc") &&
          is_word(bytes_of(words[i - 1]), "bash sh zsh /bin/bash /bin/sh")) {
        command.words.pop_back();
        return nested({words[i + 1]}, std::move(command.words), begin);
      }
      command.words.push_back(script_.word_of(words[i], begin));
      bytes += word.size() + sizeof(ShellWord);
    }
    for (const std::string_view setting : script_.settings) {
      const auto own = given.find(setting);
      const auto common = std::as_const(script_.variables).find(setting);
      if (own == given.end() && (common == script_.variables.end() || !common->second.is_exported)) continue;
      const std::vector<Text>& items = own == given.end() ? common->second.items : own->second.items;
      command.settings.push_back(script_.word_of(items.empty() ? Text() : items[0], begin));
      std::string& text = command.settings.back().text;
      text = fmt::format("{}={}", setting, text);
      bytes += text.size() + sizeof(ShellWord);
    }
    script_.spend(bytes, begin);
    script_.commands.push_back(std::move(command));
  }
  // Reads what a shell is given to read.
  void nested(const std::vector<Text>& words, std::vector<ShellWord> before, int begin) {
    Text text;
    for (const Text& word : words) {
      if (!text.empty()) text.push_back({' ', begin});
      text.insert(text.end(), word.begin(), word.end());
    }
    script_.spend(text.size() * 2, begin);
    if (!text.empty()) Reader(script_, std::move(text), std::move(before)).read(runs_);
  }

  // ---- tests
  // Behind "[[": its outcome.
  Outcome test(std::string_view end, std::size_t begin) {
    std::vector<std::vector<Text>> parts(1);
    char join = 0;
    bool is_followed = true;
    in_test_ = true;
    for (skip_lines(); plain_word() != end; skip_lines()) {
      if (at_end()) script_.fail(at(begin), fmt::format("no \"{}\" closes this", end));
      const std::size_t before = pos_;
      if (takes("&&") || takes("||")) {
        is_followed &= join == 0 || join == text_[before].c;
        join = text_[before].c;
        parts.emplace_back();
      } else if (ends_word(peek())) {
        is_followed = false;
        ++pos_;
      } else {
        Fields word(false);
        scan(word, Stop::kWord, false);
        parts.back().push_back(word.take_one());
      }
    }
    in_test_ = false;
    pos_ += end.size();
    Outcome outcome = join == '|' ? Outcome::kFalse : Outcome::kTrue;
    for (std::vector<Text>& part : parts) {
      const Outcome one = is_followed ? test_part(part) : Outcome::kUnknown;
      if (one == (join == '|' ? Outcome::kTrue : Outcome::kFalse)) return one;
      if (one == Outcome::kUnknown) outcome = one;
    }
    return outcome;
  }
  static Outcome test_part(std::vector<Text>& words) {
    const bool is_not = !words.empty() && bytes_of(words[0]) == "!";
    if (is_not) words.erase(words.begin());
    std::vector<std::string> texts;
    for (const Text& word : words) {
      if (why_of(word) != 0) return Outcome::kUnknown;
      texts.push_back(bytes_of(word));
    }
    bool is_true = texts.size() == 1 && !texts[0].empty();
    if (texts.size() == 2 && is_word(texts[0], "-z -n")) is_true = texts[1].empty() == (texts[0] == "-z");
    else if (texts.size() == 3 && is_word(texts[1], "= == -eq != -ne") && texts[2].find_first_of("*?[") == std::string::npos)
      is_true = (texts[0] == texts[2]) == is_word(texts[1], "= == -eq");
    else if (texts.size() != 1) return Outcome::kUnknown;
    return is_true != is_not ? Outcome::kTrue : Outcome::kFalse;
  }

  std::vector<ShellWord> before_;
  std::vector<Block> blocks_;
  Runs runs_;                             // of the next command
  Outcome outcome_ = Outcome::kPresumed;  // of the last one
  bool is_not_ = false;
};

}  // namespace
}  // namespace shell

std::vector<ShellCommand> read_shell(std::string_view text, std::string_view source, std::span<const std::string_view> settings) {
  shell::Script script;
  script.source = source;
  script.settings = settings;
  if (text.size() > std::size_t{1} << 20) script.fail(0, "more than 1 MiB");
  shell::Text chars;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int at = static_cast<int>(i);
    if (text[i] == '\r') continue;
    chars.push_back({text[i], at});
    if (text[i] == '\n') script.line_starts.push_back(at + 1);
  }
  shell::Reader(script, std::move(chars)).read({});
  return std::move(script.commands);
}

}  // namespace trident

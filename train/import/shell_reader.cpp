#include "train/import/shell_reader.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <span>

#include "core/json_reader.h"
#include "train/import/shell_words.h"

namespace trident {
namespace shell {
namespace {

constexpr int kNever = -1;  // in the place of a doubt: commands do not run

class Reader : Cursor {
 public:
  // `before` are words before those of each command: of what starts this shell.
  Reader(Script& script, Text text, std::vector<ShellWord> before = {})
      : Cursor(script, std::move(text)), before_(std::move(before)) {}
  void read(int runs) {
    const Level level(script_, here());
    blocks_.push_back({"", here(), runs_ = runs, runs});
    while (!at_end()) step();
    if (blocks_.size() > 1) script_.fail(blocks_.back().begin, fmt::format("nothing closes this \"{}\"", blocks_.back().kind));
  }

 private:
  enum class Stop : std::uint8_t { kWord, kQuote, kBrace };
  // Runs are 0, kNever, or the number of the reason for which nobody knows.
  struct Block {
    std::string_view kind;
    int begin;
    int base;  // runs of its commands
    int rest;  // runs of the branches to come
    bool at_pattern = false;
    Text subject = {};  // of a case
  };

  // ---- words
  // Puts what was typed from `begin` to here, with the reason for which it has no value.
  void put_unknown(Fields& out, std::size_t begin, int why) {
    script_.spend(pos_ - begin, at(begin));
    for (std::size_t i = begin; i < pos_; ++i) out.put({text_[i].c, text_[i].at, why});
  }
  void put_not_executed(Fields& out, std::size_t begin) {
    const std::string shown = typed(begin);
    put_unknown(out, begin, script_.reason(fmt::format("{} in line {} would have to be executed; write its value in its place",
                                                       in_quotes(shown, 40), line_of(begin)), is_place_or_time(shown)));
  }
  void scan(Fields& out, Stop stop, bool is_quoted) {
    const Level level(script_, here());
    const std::size_t begin = pos_;
    while (true) {
      const char c = peek();
      const std::size_t from = pos_;
      if (stop == Stop::kWord && ends_word(c)) return;
      if (at_end()) script_.fail(at(begin), stop == Stop::kQuote ? "nothing closes this quote" : "nothing closes this brace");
      if (stop != Stop::kWord && takes(stop == Stop::kQuote ? "\"" : "}")) return;
      if (takes("\\\n")) continue;
      if (c == '\\' && pos_ + 1 < text_.size() && (!is_quoted || has("$`\"\\}", peek(1)))) {
        out.put(text_[pos_ + 1]);
        pos_ += 2;
      } else if (c == '\'' && !is_quoted) {
        skip_quoted(at(from));
        out.is_open = true;
        for (std::size_t i = from + 1; i + 1 < pos_; ++i) out.put(text_[i]);
      } else if (takes("\"")) {
        const bool was_open = std::exchange(out.is_open, true);
        has_no_items_ = false;
        scan(out, Stop::kQuote, true);
        if (has_no_items_ && !was_open) out.is_open = !out.current.empty();
      } else if (c == '$') {
        dollar(out, is_quoted);
      } else if (c == '`') {
        skip_quoted(at(from));
        put_not_executed(out, from);
      } else {
        out.put(text_[pos_++]);
      }
    }
  }
  Text scanned_word() {
    Fields word{false};
    scan(word, Stop::kWord, false);
    return word.take_one();
  }
  void dollar(Fields& out, bool is_quoted) {
    const std::size_t begin = pos_++;
    if (const bool is_sum = takes("(("); is_sum || takes("(")) {
      const std::size_t inner = pos_;
      skip_parentheses(at(begin));
      const std::size_t end = pos_ - 1;
      if (is_sum && !takes(")")) script_.fail(at(begin), "nothing closes this parenthesis");
      const bool is_expr = bytes_of(part(inner, std::min(inner + 5, end))) == "expr ";
      if (is_sum || is_expr) arithmetic(out, begin, inner + (is_sum ? 0 : 5), end);
      else put_not_executed(out, begin);
    } else if (takes("{")) {
      parameter(out, begin, is_quoted);
    } else if (peek() == '\'' && !is_quoted) {
      skip_quoted(at(begin), true);
      put_not_executed(out, begin);
    } else if (const std::string name = parameter_name(false); !name.empty()) {
      put_variable(out, begin, name, "", is_quoted);
    } else if (peek() != '"' || is_quoted) {
      out.put(text_[begin]);
    }
  }
  // A name, digits or a special parameter here; "": none.
  std::string parameter_name(bool is_braced) {
    const std::size_t begin = pos_;
    if (is_digit(peek())) while (is_digit(peek()) && (is_braced || pos_ == begin)) ++pos_;
    else if (is_name(peek())) while (is_name(peek())) ++pos_;
    else pos_ += !at_end() && has("@*#?$!-", peek()) ? 1 : 0;
    return typed(begin);
  }
  // Puts what $(( )), or expr, computes of the text from `inner` to `end`.
  void arithmetic(Fields& out, std::size_t begin, std::size_t inner, std::size_t end) {
    const Level level(script_, at(begin));
    Reader reader(script_, part(inner, end));
    reader.runs_ = runs_;
    Fields content{false};
    bool has_sum = false;  // as the value of a variable, which is computed before what stands beside it
    while (!reader.at_end()) {
      const std::size_t from = reader.pos_, before = content.current.size();
      if (reader.peek() == '$') {
        reader.dollar(content, true);
      } else if (!is_name(reader.peek()) || is_digit(reader.peek())) {
        content.put(reader.text_[reader.pos_++]);
      } else {
        reader.put_variable(content, from, reader.parameter_name(false), "", true);
        const std::span value = std::span(content.current).subspan(before);
        has_sum |= std::ranges::any_of(value, [](const Char& c) { return c.why == 0 && !is_digit(c.c) && !is_space(c.c); });
      }
    }
    const Text text = content.take_one();
    if (why_of(text) != 0) return put_unknown(out, begin, why_of(text));
    std::string sum = bytes_of(text);
    std::erase_if(sum, [](char c) { return is_space(c) || c == '\\'; });  // expr has \*
    const double value = sum_of(sum);
    if (has_sum || !std::isfinite(value)) return put_not_executed(out, begin);
    for (const char digit : fmt::format("{}", static_cast<std::int64_t>(value))) out.put({digit, at(begin)});
  }
  // Stands behind "${".
  void parameter(Fields& out, std::size_t begin, bool is_quoted) {
    const std::string name = peek() == '#' && peek(1) != '}' ? "" : parameter_name(true);
    std::string subscript;
    if (!name.empty() && takes("["))
      while (!at_end() && !takes("]")) subscript += text_[pos_++].c;
    if (!name.empty() && takes("}")) return put_variable(out, begin, name, subscript, is_quoted);
    const bool counts_empty = !name.empty() && takes(":");
    const char sign = peek();
    const bool is_followed = !name.empty() && has("-=+?", sign);
    pos_ += is_followed ? 1 : 0;
    Fields other{false};
    scan(other, Stop::kBrace, is_quoted);
    if (!is_followed) return put_not_executed(out, begin);
    const auto found = script_.variables.find(name);
    const bool is_there = found != script_.variables.end() &&
                          (!counts_empty || std::ranges::any_of(found->second.items, [](const Text& one) { return !one.empty(); }));
    if (sign == '?' || (is_there && sign != '+')) return put_variable(out, begin, name, subscript, is_quoted);
    if (is_there != (sign == '+')) return;
    const Text value = other.take_one();
    script_.spend(value.size(), at(begin));
    if (sign == '=' && runs_ == 0) script_.variables[name] = {{value}};
    else if (sign == '=' && runs_ != kNever) set_unknown(script_.variables[name], name, at(begin), runs_);
    out.put_value(value, is_quoted);
  }
  void put_variable(Fields& out, std::size_t begin, const std::string& name, const std::string& subscript, bool is_quoted) {
    const bool is_of_arguments = is_listed(name, "@ * #");
    const auto found = script_.variables.find(is_of_arguments ? "@" : name);
    if (is_of_arguments && found != script_.variables.end()) return out.put_value(found->second.items[0], true);
    if (name == "#") return out.put({'0', at(begin)});
    if (is_of_arguments) return void(has_no_items_ = true);  // the script has none
    if (found == script_.variables.end()) return put_unset(out, begin, name);
    const bool is_all = subscript == "@" || subscript == "*";
    if (!is_all && (subscript.size() > 4 || !std::ranges::all_of(subscript, is_digit))) return put_not_executed(out, begin);
    const std::vector<Text>& items = found->second.items;
    has_no_items_ |= is_all && items.empty();
    const std::size_t first = is_all || subscript.empty() ? 0 : std::stoul(subscript);
    for (std::size_t i = first; i < (is_all ? items.size() : std::min(items.size(), first + 1)); ++i) {
      script_.spend(items[i].size() + 1, at(begin));
      if (i > first && out.splits && (subscript == "@" || !is_quoted)) out.close();
      else if (i > first) out.put({' ', at(begin)});
      out.is_open |= is_quoted;
      out.put_value(items[i], is_quoted);
    }
  }
  void put_unset(Fields& out, std::size_t begin, const std::string& name) {
    const bool is_argument = is_digit(name[0]) && name != "0",
               is_folder = is_listed(name, "HOME PWD OLDPWD TMPDIR USER HOSTNAME SLURM_JOB_ID 0");
    if (in_test_ && !is_folder) return;
    const std::string shown = in_quotes("$" + name, 60);
    const std::string why =
        is_argument                      ? shown + " is an argument of the script"
        : is_folder || !is_name(name[0]) ? shown + " is known where the script runs"
                                         : fmt::format("{} is set nowhere before line {}; write {}=... above it", shown,
                                                       line_of(begin), name);
    put_unknown(out, begin, script_.reason(why, is_argument || is_folder));
  }

  // ---- assignments and redirections
  // NAME=value here; false: there is none.
  bool takes_assignment(Variables& variables, bool is_exported) {
    std::size_t end = 0;
    while (is_name(peek(end))) ++end;
    const std::string name = end == 0 || is_digit(peek()) ? "" : bytes_of(part(pos_, pos_ + end));
    const bool is_element = peek(end) == '[';
    while (is_element && peek(end) != '=' && !ends_word(peek(end))) ++end;
    const bool appends = peek(end) == '+';
    end += appends ? 1 : 0;
    if (name.empty() || peek(end) != '=') return false;
    const std::size_t begin = pos_;
    pos_ += end + 1;
    const bool is_array = takes("(");
    Fields value{is_array};
    if (!is_array) scan(value, Stop::kWord, false);
    while (is_array && (skip_lines(), !takes(")"))) {
      const std::size_t before = pos_;
      scan(value, Stop::kWord, false);
      if (pos_ == before) script_.fail(at(begin), "nothing closes this parenthesis");
      value.close();
    }
    std::vector<Text> items = is_array ? value.take() : std::vector<Text>{value.take_one()};
    if (runs_ == kNever) return true;
    Variable& variable = variables[name];
    variable.is_exported |= is_exported;
    if (is_element || runs_ != 0) {
      set_unknown(variable, name, at(begin), runs_ != 0 ? runs_ : doubt("an element", begin));
    } else if (appends && !is_array && !variable.items.empty()) {
      variable.items[0].insert(variable.items[0].end(), items[0].begin(), items[0].end());
    } else {
      if (!appends) variable.items.clear();
      std::ranges::move(items, std::back_inserter(variable.items));
    }
    return true;
  }
  bool takes_redirection() {
    std::size_t digits = 0;
    while (is_digit(peek(digits))) ++digits;
    digits += peek(digits) == '&' && peek(digits + 1) == '>' ? 1 : 0;
    if ((peek(digits) != '<' && peek(digits) != '>') || peek(digits + 1) == '(') return false;
    pos_ += digits;
    const bool is_document = !takes("<<<") && (takes("<<-") || takes("<<"));
    while (!is_document && has("<>&|", peek()) && !at_end()) ++pos_;
    skip_blanks();
    const std::string where = bytes_of(scanned_word());
    if (is_document) expect_document(where);
    return true;
  }

  // ---- commands
  int doubt(std::string_view what, std::size_t begin) {
    return script_.reason(fmt::format("it depends on {} in line {}, which import does not follow", what, line_of(begin)));
  }
  int doubtful(std::string_view what) { return runs_ != 0 ? runs_ : doubt(what, pos_); }
  int narrowed(int runs, Outcome outcome, bool wanted) {
    if (runs == kNever) return runs;
    if (outcome != Outcome::kUnknown) return (outcome != Outcome::kFalse) == wanted ? runs : kNever;
    return runs != 0 ? runs : doubt("the condition", pos_);
  }
  // Goes into a branch that such an outcome is the condition of.
  void branch(Block& block, Outcome outcome) {
    runs_ = block.base = narrowed(block.rest, outcome, true);
    block.rest = narrowed(block.rest, outcome, false);
  }
  // Whether one of the patterns here, up to their ")", is of the text.
  Outcome pattern(const Text& subject) {
    const std::size_t begin = pos_;
    Outcome any = Outcome::kFalse;
    for (takes("("); !takes(")"); skip_blanks(), takes("|"), skip_blanks()) {
      const std::size_t from = pos_;
      const Text one = scanned_word();
      if (pos_ == from) script_.fail(at(begin), "no \")\" ends this pattern");
      any = std::max(any, has_quoted_sign(part(from, pos_)) ? Outcome::kUnknown : match_of(subject, one));
    }
    return any;
  }
  void open(std::string_view kind, int runs, std::size_t bytes) {
    if (blocks_.size() > kMaxForeignDepth) script_.fail(here(), "more than 64 levels; give import the command alone");
    blocks_.push_back({kind, here(), runs_ = runs, runs});
    pos_ += bytes;
  }
  void close(std::string_view kind, std::size_t bytes) {
    if (blocks_.size() == 1 || blocks_.back().kind != kind) fail_alone();
    blocks_.pop_back();
    pos_ += bytes;
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
    if (block.at_pattern && word != "esac") {
      block.at_pattern = false;
      branch(block, pattern(block.subject));
    } else if (block.kind == "case" && (takes(";;&") || takes(";;") || takes(";&"))) {
      if (text_[pos_ - 1].c == '&' && block.base != kNever) {  // goes on, whatever the patterns are
        block.rest = block.base != 0 ? block.base : doubt("the case", begin);
        block.subject.push_back({'&', at(begin), block.rest});
      }
      block.at_pattern = true;
      skip_lines();
    } else if (takes("&&") || takes("||")) {
      runs_ = narrowed(block.base, outcome_, text_[begin].c == '&');
      skip_lines();
    } else if (peek() == '\n' || takes(";") || takes("|&") || takes("|") || (peek(1) != '>' && takes("&"))) {
      if (pos_ == begin) skip_newline();
      runs_ = block.base;
      if (text_[begin].c == '|') outcome_ = Outcome::kPresumed;
    } else if (peek() == '(') {
      open("(", runs_, 1);
    } else if (peek() == ')') {
      close("(", 1);
    } else if (word == "{" || word == "if") {
      open(word == "{" ? "{" : "if", runs_, word.size());
    } else if (is_listed(word, "} fi done esac")) {
      close(word == "}" ? "{" : word == "fi" ? "if" : word == "done" ? "loop" : "case", word.size());
    } else if (word == "then" && block.kind == "if") {
      pos_ += word.size();
      branch(block, outcome_ == Outcome::kPresumed ? Outcome::kUnknown : outcome_);
    } else if ((word == "else" || word == "elif") && block.kind == "if") {
      pos_ += word.size();
      runs_ = block.base = block.rest;
    } else if (is_listed(word, "for while until select")) {
      open("loop", doubtful("the loop"), word.size());
      skip_blanks();
      const std::string name = is_listed(word, "for select") ? parameter_name(false) : "";
      if (!name.empty() && runs_ != kNever) set_unknown(script_.variables[name], name, at(begin), runs_);
    } else if (word == "case") {
      open("case", runs_, word.size());
      skip_blanks();
      in_test_ = true;
      Text subject = scanned_word();
      in_test_ = false;
      if (why_of(subject) != 0) blocks_.back().rest = doubtful("the case");
      blocks_.back().subject = std::move(subject);
      skip_lines();
      if (!takes("in")) script_.fail(at(begin), "no \"in\" follows this");
      skip_lines();
      blocks_.back().at_pattern = true;
    } else if (is_listed(word, "do time")) {
      pos_ += word.size();
    } else if (word == "[[" || word == "[") {
      pos_ += word.size();
      settle(test(word == "[[" ? "]]" : "]", begin));
    } else {
      simple();
    }
  }
  void settle(Outcome outcome) {
    if (runs_ != kNever) outcome_ = runs_ != 0 ? Outcome::kUnknown : outcome;
  }
  void simple() {
    std::vector<Text> words;
    Variables given;
    const std::size_t begin = pos_;
    const int runs = std::exchange(runs_, kNever);
    while (skip_blanks(), takes_assignment(given, false)) {}
    const bool is_assignment = ends_word(peek()) && !has("<>", peek());  // else its variables are those of the command alone
    pos_ = begin;
    runs_ = runs;
    bool declares = false;
    const auto first_word = [&] { return words.empty() ? "" : bytes_of(words[0]); };
    while (skip_blanks(), takes_redirection() || !ends_word(peek()) || has("<>", peek())) {
      if ((words.empty() || declares) && takes_assignment(is_assignment || declares ? script_.variables : given,
                                                          declares && first_word() == "export"))
        continue;
      if (words.size() == 2 && first_word() == "function") break;
      const std::size_t before = pos_;
      Fields fields{true};
      if (takes("<(") || takes(">(")) {
        skip_parentheses(at(before));
        put_not_executed(fields, before);
      }
      scan(fields, Stop::kWord, false);
      std::ranges::move(fields.take(), std::back_inserter(words));
      declares = is_listed(first_word(), "export declare local readonly typeset");
    }
    if (pos_ == begin) fail_alone();
    const bool has_parentheses = !words.empty() && words.size() <= 2 && takes("(");
    if (has_parentheses && (skip_blanks(), !takes(")"))) fail_alone();
    if (has_parentheses || (words.size() == 2 && first_word() == "function")) {
      runs_ = doubtful("the function");  // its block comes next, and nobody knows who calls it
      return skip_lines();
    }
    settle(words.empty() ? Outcome::kTrue : first_word() == "!" ? Outcome::kUnknown : Outcome::kPresumed);
    if (!words.empty() && runs_ != kNever) emit(words, given, at(begin));
  }
  void emit(const std::vector<Text>& words, const Variables& given, int begin) {
    const std::string name = bytes_of(words[0]);
    ShellCommand command{before_, {}, script_.reasons[static_cast<std::size_t>(runs_)].text};
    if (name == "eval") return nested({words.begin() + 1, words.end()}, {}, begin);
    if (name == "unset") forget(words);
    if (name == "set" && words.size() > 2 && bytes_of(words[1]) == "--")
      set_unknown(script_.variables["@"], "@", begin, doubt("set", pos_));
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::string word = bytes_of(words[i]);
      if (name == "export" && script_.variables.contains(word)) script_.variables.find(word)->second.is_exported = true;
      if (i > 0 && i + 1 < words.size() && is_listed(word, "-c -lc -ec -xc") &&
          is_listed(bytes_of(words[i - 1]), "bash sh zsh /bin/bash /bin/sh")) {
        command.words.pop_back();
        return nested({words[i + 1]}, std::move(command.words), begin);
      }
      command.words.push_back(script_.word_of(words[i], begin));
    }
    for (const std::string_view setting : script_.settings) {
      const auto own = given.find(setting), common = std::as_const(script_.variables).find(setting);
      if (own == given.end() && (common == script_.variables.end() || !common->second.is_exported)) continue;
      const std::vector<Text>& items = own == given.end() ? common->second.items : own->second.items;
      command.settings.push_back(script_.word_of(items.empty() ? Text() : items[0], begin));
      command.settings.back().text.insert(0, fmt::format("{}=", setting));
    }
    for (const std::vector<ShellWord>* const all : {&command.words, &command.settings})
      for (const ShellWord& word : *all) script_.spend(word.text.size() + sizeof(ShellWord), begin);
    script_.commands.push_back(std::move(command));
  }
  void forget(const std::vector<Text>& words) {
    for (const Text& word : words) {
      const auto found = script_.variables.find(bytes_of(word));
      if (found == script_.variables.end()) continue;
      if (runs_ == 0) script_.variables.erase(found);
      else set_unknown(found->second, found->first, word.front().at, runs_);
    }
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
  // Returns the outcome of the test whose "[" or "[[" stands before it.
  Outcome test(std::string_view end, std::size_t begin) {
    Outcome all = Outcome::kTrue, any = Outcome::kFalse;
    bool is_followed = true;
    std::vector<Text> words;
    in_test_ = true;
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
      }
    }
    in_test_ = false;
    pos_ += end.size();
    return is_followed ? any : Outcome::kUnknown;
  }
  bool in_test_ = false;       // a variable that is set nowhere is empty
  bool has_no_items_ = false;  // "${A[@]}" of an empty array was replaced: its quotes make no word
  std::vector<ShellWord> before_;
  std::vector<Block> blocks_;
  int runs_ = 0;                          // of the next command
  Outcome outcome_ = Outcome::kPresumed;  // of the last one
};

}  // namespace
}  // namespace shell

std::vector<ShellCommand> read_shell(std::string_view text, std::string_view source, std::span<const std::string_view> settings,
                                     std::span<const ShellWord> variables) {
  shell::Script script{source, settings};
  shell::Text chars;
  for (int at = 0; const char c : text) {
    if (c != '\r') chars.push_back({c, at});
    if (++at; c == '\n') script.line_starts.push_back(at);
  }
  for (const ShellWord& word : variables) {
    const std::size_t equals = word.text.find('=');
    shell::Variable& variable = script.variables[word.text.substr(0, equals)];
    variable.items.assign(1, {});
    for (const char c : word.text.substr(equals + 1))
      variable.items[0].push_back({c, script.line_starts.at(static_cast<std::size_t>(word.line) - 1)});
  }
  shell::Reader(script, std::move(chars)).read(0);
  return std::move(script.commands);
}

}  // namespace trident

// The reader of a shell script reads words with these classes. They are for import alone.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json_reader.h"
#include "import/shell_script.h"
#include "import/text_limits.h"

namespace trident::shell {

struct Level {
  Level(Script& script, int at) : levels(script.levels) {
    if (++levels > kMaxForeignDepth) script.fail(at, "more than 64 levels; give import the command alone");
  }
  ~Level() { --levels; }
  int& levels;
};

// A place in a text, and what moves it.
class Cursor {
 protected:
  Cursor(Script& script, Text text) : script_(script), text_(std::move(text)) {}

  bool at_end() const { return pos_ >= text_.size(); }
  char peek(std::size_t ahead = 0) const {
    if (pos_ + ahead >= text_.size()) return '\0';
    return text_[pos_ + ahead].why != 0 ? '\x01' : text_[pos_ + ahead].c;  // what has no value is nothing that a shell reads again
  }
  bool takes(std::string_view wanted) {
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (peek(i) != wanted[i]) return false;
    pos_ += wanted.size();
    return true;
  }
  int at(std::size_t pos) const { return text_.empty() ? 0 : text_[std::min(pos, text_.size() - 1)].at; }
  int here() const { return at(pos_); }
  int line_of(std::size_t pos) const { return script_.place(at(pos)).first; }
  Text part(std::size_t begin, std::size_t end) const {
    return {text_.begin() + static_cast<std::ptrdiff_t>(begin), text_.begin() + static_cast<std::ptrdiff_t>(end)};
  }
  std::string typed(std::size_t begin) const { return bytes_of(part(begin, pos_)); }
  [[noreturn]] void fail_alone() const {
    const std::size_t last = std::min(pos_, text_.size() - 1);
    const std::string word = plain_word();
    script_.fail(here(), fmt::format("{} stands here alone; correct the script",
                                     in_quotes(word.empty() ? bytes_of(part(last, last + 1)) : word)));
  }
  // The length of a text such as <your path>, which stands for a value of the user's; 0: there is none here.
  std::size_t placeholder() const {
    std::size_t end = 1;
    if (peek() != '<' || !is_name(peek(1)) || is_digit(peek(1))) return 0;
    while (peek(end) != '\0' && !has("<>\n\"'`$|;&", peek(end))) ++end;
    const char next = peek(end + 1);  // <in.txt>log are two files, where no word stands before
    if (is_name(next) && next != '_' && (pos_ == 0 || ends_word(text_[pos_ - 1].c))) return 0;
    return peek(end) == '>' && !is_space(peek(end - 1)) ? end + 1 : 0;
  }
  void skip_blanks() {
    while (true) {
      if (has(" \t\r", peek()) && !at_end()) ++pos_;
      else if (takes("\\\n")) continue;
      else if (peek() == '#') while (!at_end() && peek() != '\n') ++pos_;
      else return;
    }
  }
  // Skips the here documents behind it, too.
  void skip_newline() {
    ++pos_;
    for (HereDocument& document : here_documents_) {
      std::size_t begin = pos_;
      const std::size_t first = pos_;
      for (std::string line = document.end + '.'; line != document.end && !at_end(); ++pos_) {
        begin = pos_;
        while (!at_end() && text_[pos_].c != '\n') ++pos_;
        line = typed(begin);
        if (document.has_tabs) line.erase(0, line.find_first_not_of('\t'));
      }
      document.text = part(first, begin);
      bool is_before = document.has_tabs;
      std::erase_if(document.text, [&](const Char& c) {
        const bool is_tab = is_before && c.c == '\t';
        is_before = is_tab || (document.has_tabs && c.c == '\n');
        return is_tab;
      });
      if (document.use != Use::kNone) written_.push_back(std::move(document));
    }
    pos_ = std::min(pos_, text_.size());
    here_documents_.clear();
  }
  void skip_lines() {
    for (skip_blanks(); peek() == '\n'; skip_blanks()) skip_newline();
  }
  // A word of letters and brackets that no quote makes: "then", "[["; "" for every other.
  std::string plain_word() const {
    std::string word;
    for (std::size_t i = 0; !ends_word(peek(i)); ++i) {
      if (i == 10 || (!is_name(peek(i)) && !has("{}[]!", peek(i)))) return "";
      word += peek(i);
    }
    return word;
  }
  // Goes from the quote here to behind the one that closes it.
  void skip_quoted(int begin, bool escapes = false) {
    const char quote = peek();
    for (++pos_; peek() != quote; ++pos_) {
      if (at_end()) script_.fail(begin, "nothing closes this quote");
      if ((quote != '\'' || escapes) && peek() == '\\' && pos_ + 1 < text_.size()) ++pos_;
      else if (quote == '"' && takes("$(")) skip_parentheses(begin), --pos_;
    }
    ++pos_;
  }
  // Goes from behind "(" to behind its ")". Quotes and brackets in comments and here documents are letters.
  void skip_parentheses(int begin) {
    const Level level(script_, begin);
    const std::vector<HereDocument> outer = std::exchange(here_documents_, {});
    for (int open = 1; open > 0;) {
      if (at_end()) script_.fail(begin, "nothing closes this parenthesis");
      if (takes("<<<")) continue;
      if (at_document()) pos_ += 2, here_documents_.push_back(here_document());
      else if (has("'\"", peek())) skip_quoted(begin);
      else if (peek() == '\n') skip_newline();
      else if (peek() == '#' && is_space(text_[pos_ - 1].c)) skip_blanks();
      else if (peek() == '\\' && pos_ + 1 < text_.size()) pos_ += 2;
      else open += peek() == '(' ? 1 : peek() == ')' ? -1 : 0, ++pos_;
    }
    here_documents_ = outer;
  }

  Script& script_;
  Text text_;
  std::size_t pos_ = 0;

  enum class Use : std::uint8_t { kNone, kFile, kVariable, kScript };
  struct HereDocument {
    std::string end;
    bool is_quoted;  // nothing in it is replaced
    bool has_tabs;   // <<-: those before its lines are none of it
    Use use = Use::kNone;
    std::size_t file = 0;       // index of the change that it makes
    std::string variable = {};  // that read sets
    bool is_line = false;       // to its first line
    int runs = 0;               // of the script that it is, as WordReader's runs_
    Text text = {};
  };
  // Whether "<<" stands here, and no shift of bits, behind which there is a number.
  bool at_document() const {
    std::size_t next = 2;
    while (peek() == '<' && has(" \t", peek(next))) ++next;
    return peek() == '<' && peek(1) == '<' && !is_digit(peek(next));
  }
  // Stands behind "<<".
  HereDocument here_document() {
    HereDocument document{"", false, takes("-")};
    for (skip_blanks(); !ends_word(peek());) {
      const std::size_t from = pos_;
      document.is_quoted |= has("'\"\\", peek());
      if (has("'\"", peek())) skip_quoted(here()), document.end += bytes_of(part(from + 1, pos_ - 1));
      else if (!takes("\\")) document.end += text_[pos_++].c;
    }
    return document;
  }
  std::vector<HereDocument> here_documents_, written_;  // those to come, and those of files that are not kept yet
};

// An open block of a script. Runs are as WordReader's runs_.
struct Block {
  std::string_view kind;
  int begin;
  int base;          // runs of its commands
  int rest;          // runs of the branches to come
  Mark mark;         // at the begin of the pipeline
  Mark outer;        // at the begin of the block
  int presumed = 0;  // number of the reason for which nobody knows whether && or || goes on here; 0: it does
  bool is_piped = false, is_not = false, is_skipped = false;  // skipped: none of it runs
  // A loop that is followed goes back there, its commands run as `passes` says, and `for` has these items left.
  std::size_t again = std::string::npos;
  int passes = 0;
  int count = 0;  // of its passes
  bool is_until = false, is_endless = false;
  std::string name = {};
  std::vector<Text> items = {};
  bool at_pattern = false;
  Text subject = {};  // of a case
};

// Reads words, in which variables, integers and quotes are replaced.
class WordReader : protected Cursor {
 protected:
  enum class Stop : std::uint8_t { kWord, kQuote, kBrace, kEnd };
  WordReader(Script& script, Text text) : Cursor(script, std::move(text)) {}

  // Puts what was typed from `begin` to here, with the reason for which it has no value.
  void put_unknown(Fields& out, std::size_t begin, int why) {
    script_.spend(pos_ - begin, at(begin));
    for (std::size_t i = begin; i < pos_; ++i) out.put({text_[i].c, text_[i].at, why});
  }
  void put_not_executed(Fields& out, std::size_t begin) {
    const std::string shown = typed(begin);
    executes_ = true;
    put_unknown(out, begin, script_.reason(fmt::format("{} in line {} would have to be executed; write its value in its place",
                                                       in_quotes(shown, 40), line_of(begin))));
  }
  // Puts path_said() of the words from `inner` to `end`, which no program has to compute. false: they are other commands.
  bool puts_path(Fields& out, std::size_t begin, std::size_t inner, std::size_t end);
  bool puts_expansion(Fields& out, std::size_t begin);
  // Puts the text of $(cat <<END ... END) from `inner` to `end`, without its last ends of lines; false: it is another command.
  bool puts_document(Fields& out, std::size_t inner, std::size_t end, bool is_quoted);
  Text content_of(HereDocument& document) {
    Fields content{false};
    WordReader reader(script_, std::move(document.text));
    reader.has_words_ = false;
    if (document.is_quoted) content.put_value(reader.text_, true);
    else reader.scan(content, Stop::kEnd, true);
    return content.take_one();
  }
  void scan(Fields& out, Stop stop, bool is_quoted);
  Text scanned_word() {
    Fields word{false};
    scan(word, Stop::kWord, false);
    return word.take_one();
  }
  void dollar(Fields& out, bool is_quoted);
  // A name, digits or a special parameter here; "": none.
  std::string parameter_name(bool is_braced) {
    const std::size_t begin = pos_;
    if (is_digit(peek())) while (is_digit(peek()) && (is_braced || pos_ == begin)) ++pos_;
    else if (is_name(peek())) while (is_name(peek())) ++pos_;
    else pos_ += !at_end() && has("@*#?$!-", peek()) ? 1 : 0;
    return typed(begin);
  }
  enum class Syntax : std::uint8_t { kShell, kExpr };
  // Puts what $(( )), or expr, computes of the text from `inner` to `end`.
  void arithmetic(Fields& out, std::size_t begin, std::size_t inner, std::size_t end, Syntax syntax);
  // Stands behind "${".
  void parameter(Fields& out, std::size_t begin, bool is_quoted);
  struct Parameter {
    std::string name, subscript = {};
    bool counts = false;   // ${#NAME}
    std::string how = {};  // what stands behind the name in ${NAME%.*}, with a backslash before each letter that would be a sign
  };
  void put_variable(Fields& out, std::size_t begin, const Parameter& what, bool is_quoted);
  // Whether it is surely empty, or presumed to be; else puts why it has no value.
  bool is_empty(Fields& out, std::size_t begin, const std::string& name, bool is_quoted);
  // Whether the variable from `begin` to here is a word of its own, and behind no flag whose value it may be. `makes_word`: the
  // quotes around it make a word, even if it is empty.
  bool stands_apart(std::size_t begin, bool makes_word) const;

  // `why` is the reason for which it is not followed.
  int doubt(std::string_view what, std::size_t begin, int why = 0);
  // Returns the outcome of the test whose "[" or "[[" stands before it.
  Outcome test(std::string_view end, std::size_t begin);

  int runs_ = 0;               // of the next command: 0, kNever, or the number of the reason for which nobody knows
  bool has_words_ = true;      // else the text is a sum, or a file's
  bool defines_ = false;       // the commands are a function's, which may never be called
  bool in_test_ = false;       // a variable that is set nowhere is empty
  int why_test_ = 0;           // why nobody knows what the last test comes to
  bool executes_ = false;      // put_not_executed() was called
  bool has_no_items_ = false;  // "${A[@]}" of an empty array was replaced: its quotes make no word
};

// Reads assignments and redirections, too, and keeps what is written into files.
class FileReader : protected WordReader {
 protected:
  using WordReader::WordReader;

  // NAME=value here, into `given` or for good; false: there is none. `is_kept`: it outlives its command.
  bool takes_assignment(Variables* given, bool is_kept) {
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
    bool has_keys = false;  // ([k]=v)
    while (is_array && (skip_lines(), !takes(")"))) {
      const std::size_t before = pos_;
      has_keys |= peek() == '[';
      scan(value, Stop::kWord, false);
      if (pos_ == before) script_.fail(at(begin), "nothing closes this parenthesis");
      value.close();
    }
    std::vector<Text> items = is_array ? value.take() : std::vector<Text>{value.take_one()};
    if (runs_ == kNever && is_kept && !defines_) script_.own_names.insert(name);
    if (runs_ == kNever) return true;
    if (given != nullptr && appends && script_.variables.contains(name))
      given->try_emplace(name, script_.change(name, at(begin)));
    Variable& variable = given != nullptr ? (*given)[name] : script_.change(name, at(begin));
    if (is_element || has_keys || variable.is_readonly || runs_ != 0) {
      set_unknown(variable, name, at(begin),
                  runs_ != 0 ? runs_ : doubt(variable.is_readonly ? "a readonly variable" : "an element", begin));
    } else if (appends && !is_array && !variable.items.empty()) {
      variable.items[0].insert(variable.items[0].end(), items[0].begin(), items[0].end());
    } else {
      if (!appends) variable.items.clear();
      std::ranges::move(items, std::back_inserter(variable.items));
    }
    return true;
  }
  bool takes_redirection() {
    if (placeholder() != 0) return false;
    std::size_t digits = 0;
    while (is_digit(peek(digits))) ++digits;
    digits += peek(digits) == '&' && peek(digits + 1) == '>' ? 1 : 0;
    if ((peek(digits) != '<' && peek(digits) != '>') || peek(digits + 1) == '(') return false;
    const bool is_standard = digits == 0 || (digits == 1 && has("1&", peek()));
    pos_ += digits;
    if (!takes("<<<") && takes("<<")) return here_documents_.push_back(here_document()), true;
    const bool is_output = peek() == '>', appends = is_output && peek(1) == '>';
    while (has("<>&|", peek()) && !at_end()) ++pos_;
    skip_blanks();
    const std::string where = bytes_of(scanned_word());
    if (!is_output) return true;
    lose(is_standard ? std::exchange(output_, where) : where);
    if (is_standard) appends_ = appends;
    return true;
  }
  void take_redirections() {  // behind a block or a test
    for (skip_blanks(); takes_redirection(); skip_blanks()) {}
    lose(std::exchange(output_, {}));
  }
  std::string file_name(const std::string& path) const {
    return shell_file_name((std::filesystem::path(script_.folder.value_or("")) / path).string());
  }
  ShellFile changed(std::string name, int runs) const {
    const int line = line_of(std::max<std::size_t>(pos_, 1) - 1);
    return {std::move(name), "", runs == 0 ? fmt::format("line {} changes it, and nothing is executed", line)
                                          : script_.reasons[static_cast<std::size_t>(runs)]};
  }
  // Another command changes the file, or this one writes elsewhere.
  void lose(const std::string& path) {
    if (runs_ != kNever && !path.empty()) script_.write(changed(file_name(path), runs_));
  }
  // The text of `document`, whose lines come later, goes into the file.
  void begin_file(HereDocument& document, const std::string& path) {
    if (runs_ == kNever || path.empty()) return;
    ShellFile file{file_name(path), ""};
    const auto earlier = script_.newest_files.find(file.name);
    const auto comes = [&](const HereDocument& one) { return one.use == Use::kFile && one.file == earlier->second; };
    const bool is_known = runs_ == 0 && (!appends_ || (earlier != script_.newest_files.end() &&
                                                       std::ranges::none_of(here_documents_, comes)));
    if (!is_known) file = changed(file.name, runs_);
    else if (appends_) file = script_.files[earlier->second];
    script_.spend(file.text.size(), here());
    document.use = Use::kFile, document.file = script_.files.size();
    script_.write(std::move(file));
  }
  // The document that comes is a command's standard input.
  void take_document(HereDocument& document, const std::vector<Text>& words) {
    const std::string name = bytes_of(words[0]);
    if (name == "cat" && words.size() == 1) begin_file(document, std::exchange(output_, {}));
    const bool has_file = std::ranges::any_of(words, [](const Text& word) { return bytes_of(word).ends_with(".sh"); }),
               is_shell = is_listed(name, "bash sh") && (words.size() == 1 || bytes_of(words[1]) == "-s");
    if ((is_shell || (name == "sbatch" && !has_file)) && runs_ != kNever) document.use = Use::kScript, document.runs = runs_;
    if (name != "read" || runs_ != 0) return;
    document.is_line = true;
    for (std::size_t i = 1, names = 0; i < words.size(); ++i) {
      const std::string word = bytes_of(words[i]);
      if (is_listed(word, "-d -rd")) document.is_line = false;
      else if (!word.empty() && word != "-r") document.variable = word, ++names;
      document.use = names == 1 && is_name(document.variable[0]) ? Use::kVariable : Use::kNone;
    }
  }
  void keep(const HereDocument& document, Text text) {
    if (document.use == Use::kVariable) {
      const auto is_blank = [](const Char& c) { return is_space(c.c) && c.why == 0; };
      if (document.is_line) text.erase(std::ranges::find(text, '\n', &Char::c), text.end());
      text.erase(std::ranges::find_if_not(text.rbegin(), text.rend(), is_blank).base(), text.end());
      text.erase(text.begin(), std::ranges::find_if_not(text, is_blank));
      script_.change(document.variable, here()).items = {std::move(text)};
    } else {
      script_.files[document.file].text += bytes_of(text);
    }
  }
  // Whether one of the patterns here, up to their ")", is of the text.
  Outcome pattern(const Text& subject) {
    const std::size_t begin = pos_;
    Outcome any = Outcome::kFalse;
    for (takes("("); !takes(")"); skip_blanks(), takes("|"), skip_blanks()) {
      const std::size_t from = pos_;
      const Text one = scanned_word();
      script_.spend(subject.size(), at(from));
      if (pos_ == from) script_.fail(at(begin), "no \")\" ends this pattern");
      // A sign in quotes is a letter: which of them stood there the word does not tell.
      const bool has_quotes = typed(from).find_first_of("\"'\\") != std::string::npos,
                 has_signs = bytes_of(one).find_first_of("*?") != std::string::npos;
      any = std::max(any, has_quotes && has_signs ? Outcome::kUnknown : match_of(subject, one));
    }
    return any;
  }

  std::string output_;  // the file that this command's standard output goes to
  bool appends_ = false;
};

}  // namespace trident::shell

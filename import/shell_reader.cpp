#include "import/shell_reader.h"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <span>

#include "core/json_reader.h"
#include "import/shell_words.h"

namespace trident {
namespace shell {
namespace {

class Reader : WordReader {
 public:
  // `before` are words before those of each command: of what starts this shell.
  Reader(Script& script, Text text, std::vector<ShellWord> before = {})
      : WordReader(script, std::move(text)), before_(std::move(before)) {}
  void read(int runs) {
    const Level level(script_, here());
    blocks_.push_back({"", here(), runs_ = runs, runs});
    while (!at_end()) step();
    keep_files();
    if (blocks_.size() > 1) script_.fail(blocks_.back().begin, fmt::format("nothing closes this \"{}\"", blocks_.back().kind));
  }

 private:
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
    const bool is_standard = digits == 0 || (digits == 1 && has("1&", peek()));
    pos_ += digits;
    const bool is_document = !takes("<<<") && (takes("<<-") || takes("<<")), is_output = peek() == '>',
               has_tabs = is_document && text_[pos_ - 1].c == '-', appends = is_output && peek(1) == '>';
    while (!is_document && has("<>&|", peek()) && !at_end()) ++pos_;
    skip_blanks();
    const std::size_t from = pos_;
    const std::string where = bytes_of(scanned_word());
    if (is_document) here_documents_.push_back({where, pos_ - from != where.size(), has_tabs});
    if (!is_output) return true;
    lose(is_standard ? std::exchange(output_, where) : where);
    if (is_standard) appends_ = appends;
    return true;
  }
  std::string file_name(const std::string& path) const {
    return shell_file_name((std::filesystem::path(script_.folder.value_or("")) / path).string());
  }
  ShellFile changed(int runs) const {
    const int line = line_of(std::max<std::size_t>(pos_, 1) - 1);
    return {"", runs == 0 ? fmt::format("line {} changes it, and nothing is executed", line)
                          : script_.reasons[static_cast<std::size_t>(runs)]};
  }
  // Another command changes the file, or this one writes elsewhere.
  void lose(const std::string& path) {
    if (runs_ == kNever || path.empty()) return;
    const std::string file = file_name(path);
    script_.files[file] = changed(runs_);
    for (HereDocument& document : here_documents_)
      if (document.file == file) document.file.clear();
  }
  // Keeps the texts that were written into files before here.
  void keep_files() {
    for (HereDocument& document : std::exchange(written_, {})) {
      if (document.runs == kNever) continue;
      ShellFile& file = script_.files.try_emplace(document.file, changed(document.runs)).first->second;
      if (document.runs != 0) file = changed(document.runs);
      else if (!document.appends) file = {};
      if (!file.unknown.empty()) continue;
      Fields content{false};
      if (document.is_quoted) content.put_value(document.text, true);
      else Reader(script_, std::move(document.text)).scan(content, Stop::kEnd, true);
      file.text += bytes_of(content.take_one());
    }
  }

  // ---- commands
  // `why` is the reason for which it is not followed.
  int doubt(std::string_view what, std::size_t begin, int why = 0) {
    constexpr std::size_t kLongest = 400;  // of reasons of reasons
    const std::string& earlier = script_.reasons[static_cast<std::size_t>(why)];
    std::string text = fmt::format("it depends on {} in line {}{}", what, line_of(begin),
                                   why == 0 || earlier.size() > kLongest ? ", which import does not follow" : ": " + earlier);
    script_.spend(text.size(), at(begin));
    return script_.reason(std::move(text));
  }
  int doubtful(std::string_view what, int why = 0) { return runs_ != 0 ? runs_ : doubt(what, pos_, why); }
  int narrowed(int runs, Outcome outcome, bool wanted) {
    if (runs == kNever) return runs;
    if (outcome != Outcome::kUnknown) return (outcome != Outcome::kFalse) == wanted ? runs : kNever;
    return runs != 0 ? runs : doubt("the condition", pos_, why_test_);
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
    if (kind == "(") {
      for (const auto& [name, variable] : script_.variables)
        for (const Text& item : variable.items) script_.spend(item.size() + 1, here());
      blocks_.back().folder = script_.folder, blocks_.back().variables = script_.variables;
    }
    pos_ += bytes;
  }
  void close(std::string_view kind, std::size_t bytes) {
    if (blocks_.size() == 1 || blocks_.back().kind != kind) fail_alone();
    if (kind == "(") script_.folder = std::move(blocks_.back().folder), script_.variables = std::move(blocks_.back().variables);
    blocks_.pop_back();
    pos_ += bytes;
    outcome_ = Outcome::kPresumed;
    runs_ = blocks_.back().base;
    for (skip_blanks(); takes_redirection(); skip_blanks()) {}
    lose(std::exchange(output_, {}));
  }
  // A command, or what stands between two.
  void step() {
    keep_files();
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
    } else if (peek() == '(' && !takes_sum()) {
      open("(", runs_, 1);
    } else if (pos_ != begin) {  // the sum
    } else if (peek() == ')') {
      close("(", 1);
    } else if (word == "{" || word == "if") {
      open(word == "{" ? "{" : "if", runs_, word.size());
    } else if (is_listed(word, "} fi done esac")) {
      if (word == "done" && goes_again(block)) return;
      close(word == "}" ? "{" : word == "fi" ? "if" : word == "done" ? "loop" : "case", word.size());
    } else if (word == "then" && block.kind == "if") {
      pos_ += word.size();
      branch(block, outcome_ == Outcome::kPresumed ? Outcome::kUnknown : outcome_);
    } else if ((word == "else" || word == "elif") && block.kind == "if") {
      pos_ += word.size();
      runs_ = block.base = block.rest;
    } else if (is_listed(word, "for while until select")) {
      loop(word);
    } else if (word == "case") {
      open("case", runs_, word.size());
      skip_blanks();
      in_test_ = true;
      Text subject = scanned_word();
      in_test_ = false;
      if (const int why = why_of(subject); why != 0) blocks_.back().rest = doubtful("the case", why);
      blocks_.back().subject = std::move(subject);
      skip_lines();
      if (!takes("in")) script_.fail(at(begin), "no \"in\" follows this");
      skip_lines();
      blocks_.back().at_pattern = true;
    } else if (is_listed(word, "do time")) {
      pos_ += word.size();
      if (word == "do" && block.again != std::string::npos && block.name.empty()) begin_pass(block);
    } else if (word == "[[" || word == "[") {
      pos_ += word.size();
      settle(test(word == "[[" ? "]]" : "]", begin));
    } else {
      simple();
    }
  }
  // ---- loops
  // Follows a loop while its condition is known, or through the items of `for`.
  void loop(const std::string& word) {
    const std::size_t begin = pos_;
    const bool has_items = is_listed(word, "for select");
    const int runs = runs_;
    open("loop", has_items ? doubtful("the loop") : runs, word.size());
    skip_blanks();
    Block& block = blocks_.back();
    block.is_until = word == "until";
    const std::string name = has_items ? parameter_name(false) : "";
    if (skip_blanks(); has_items && plain_word() == "in") {
      pos_ += 2;
      Fields fields{true};
      for (skip_blanks(); !ends_word(peek()); skip_blanks()) scan(fields, Stop::kWord, false), fields.close();
      block.items = fields.take();
    } else if (const auto all = script_.variables.find("@"); has_items && all != script_.variables.end()) {
      block.items = all->second.items;
    }
    const bool is_known = runs == 0 && word != "select" && name.empty() != has_items &&
                          std::ranges::all_of(block.items, [](const Text& item) {
                            return why_of(item) == 0 && bytes_of(item).find_first_of("*?[{") == std::string::npos;
                          });
    if (!is_known && !name.empty() && runs_ != kNever) set_unknown(script_.variables[name], name, at(begin), runs_);
    if (!is_known) return;
    runs_ = block.base = has_items && block.items.empty() ? kNever : 0;
    if (runs_ == 0) block.again = pos_;
    std::ranges::reverse(block.items);
    block.name = name;
    take_item(block);
  }
  void take_item(Block& block) {
    if (block.items.empty()) return;
    Variable& variable = script_.variables[block.name];
    if (block.passes == 0) variable.items.assign(1, block.items.back());
    else set_unknown(variable, block.name, here(), block.passes);
    block.items.pop_back();
  }
  // Behind the condition of `while` and `until`.
  void begin_pass(Block& block) {
    const bool is_known = outcome_ == Outcome::kTrue || outcome_ == Outcome::kFalse;
    const bool ends = is_known && (outcome_ == Outcome::kTrue) == block.is_until;
    runs_ = block.base = ends ? kNever : is_known ? block.passes : doubt("the loop", block.again, why_test_);
    if (ends || !is_known) block.again = std::string::npos;
  }
  // At the end of a loop; false: no pass is left.
  bool goes_again(Block& block) {
    if (block.kind != "loop" || block.again == std::string::npos || (!block.name.empty() && block.items.empty())) return false;
    script_.spend(pos_ - block.again + 4096, here());  // a thousand passes at most
    take_item(block);
    pos_ = block.again;
    runs_ = block.base = block.passes;
    outcome_ = Outcome::kPresumed;
    return true;
  }
  // `break` and `continue`: nothing runs up to the loop's end, or nobody knows whether it does.
  void leave(bool breaks, bool is_far) {
    const auto is_loop = [](const Block& block) { return block.kind == "loop"; };
    const auto last = std::find_if(blocks_.rbegin(), blocks_.rend(), is_loop);
    if (last == blocks_.rend()) return;
    runs_ = runs_ != 0 ? runs_ : is_far ? doubt("the loop", pos_) : kNever;
    for (auto one = is_far ? std::ranges::find_if(blocks_, is_loop) : std::prev(last.base()); one != blocks_.end(); ++one) {
      one->base = one->rest = runs_;
      if (runs_ != kNever) one->passes = runs_;
    }
    if (breaks && runs_ == kNever) last->again = std::string::npos;
  }

  // ((N += 1)), whose variables nobody knows afterwards; false: two shells begin here.
  bool takes_sum() {
    const std::size_t begin = pos_;
    if (!takes("((")) return false;
    skip_parentheses(at(begin));
    if (!takes(")")) return pos_ = begin, false;
    for (const std::string& name : runs_ == kNever ? std::vector<std::string>() : assigned_in(typed(begin)))
      set_unknown(script_.variables[name], name, at(begin), runs_ != 0 ? runs_ : doubt("the sum", begin));
    settle(Outcome::kUnknown);
    return true;
  }
  void settle(Outcome outcome) {
    if (runs_ != kNever) outcome_ = runs_ != 0 ? Outcome::kUnknown : outcome;
  }
  void simple() {
    std::vector<Text> words;
    Variables given;
    const std::size_t begin = pos_, documents = here_documents_.size();
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
    if (first_word() == "cat" && words.size() == 1 && here_documents_.size() > documents) {
      HereDocument& document = here_documents_.back();
      document.file = file_name(std::exchange(output_, {})), document.appends = appends_, document.runs = runs_;
    }
    lose(std::exchange(output_, {}));
    const bool has_parentheses = !words.empty() && words.size() <= 2 && takes("(");
    if (has_parentheses && (skip_blanks(), !takes(")"))) fail_alone();
    if (has_parentheses || (words.size() == 2 && first_word() == "function")) {
      runs_ = doubtful("the function");  // its block comes next, and nobody knows who calls it
      return skip_lines();
    }
    why_test_ = 0;
    settle(words.empty()             ? Outcome::kTrue
           : first_word() == "!"     ? Outcome::kUnknown
           : first_word() == "false" ? Outcome::kFalse
                                     : Outcome::kPresumed);
    if (!words.empty() && runs_ != kNever) emit(words, given, at(begin));
  }
  void emit(const std::vector<Text>& words, const Variables& given, int begin) {
    std::vector<std::string> texts;
    for (const Text& word : words) texts.push_back(bytes_of(word));
    const std::string& name = texts[0];
    ShellCommand command{before_, {}, script_.reasons[static_cast<std::size_t>(runs_)], script_.folder.value_or("")};
    if (is_listed(name, "break continue")) leave(name == "break", words.size() > 1);
    if (name == "eval") return nested({words.begin() + 1, words.end()}, {}, begin);
    const bool is_folder_known = runs_ == 0 && words.size() == 2 && why_of(words[1]) == 0;
    if (is_listed(name, "cd pushd popd")) script_.folder = is_folder_known ? script_.folder_at(texts[1]) : std::nullopt;
    for (const std::string& file : changed_by(texts)) lose(file);
    if (name == "unset") forget(words);
    if (name == "set" && words.size() > 1 && texts[1] == "--") set_arguments({words.begin() + 2, words.end()}, begin);
    if (name == "shift") shift(words, begin);
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (const auto known = script_.variables.find(texts[i]); name == "export" && known != script_.variables.end())
        known->second.is_exported = true;
      if (i > 0 && i + 1 < words.size() && is_listed(texts[i], "-c -lc -ec -xc") &&
          is_listed(texts[i - 1], "bash sh zsh /bin/bash /bin/sh")) {
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
  void set_arguments(const std::vector<Text>& items, int begin) {
    std::size_t bytes = items.size();
    for (const Text& item : items) bytes += item.size();
    script_.spend(bytes, begin);
    std::erase_if(script_.variables, [](const auto& variable) { return is_digit(variable.first[0]); });
    Variable& all = script_.variables["@"];
    if (runs_ != 0) return set_unknown(all, "@", begin, runs_);
    all.items = items;
    for (std::size_t i = 0; i < items.size(); ++i) script_.variables[fmt::format("{}", i + 1)] = {{items[i]}};
  }
  void shift(const std::vector<Text>& words, int begin) {
    const auto all = script_.variables.find("@");
    if (all == script_.variables.end() || count_of(all->second) < 0) return;
    const double by = words.size() == 1 ? 1 : sum_of(bytes_of(words[1]));
    std::vector<Text> items = all->second.items;
    if (by >= 0 && by <= static_cast<double>(items.size())) items.erase(items.begin(), items.begin() + static_cast<int>(by));
    set_arguments(items, begin);
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
    const std::optional<std::string> folder = script_.folder;
    const bool is_own = !before.empty();
    if (!text.empty()) Reader(script_, std::move(text), std::move(before)).read(runs_);
    if (is_own) script_.folder = folder;
  }

  // ---- tests
  // Returns the outcome of the test whose "[" or "[[" stands before it.
  Outcome test(std::string_view end, std::size_t begin) {
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
  int why_test_ = 0;    // why nobody knows what the last test comes to
  std::string output_;  // the file that this command's standard output goes to
  bool appends_ = false;
  std::vector<ShellWord> before_;
  std::vector<Block> blocks_;
  Outcome outcome_ = Outcome::kPresumed;  // of the last one
};

}  // namespace
}  // namespace shell

std::vector<ShellCommand> read_shell(std::string_view text, std::string_view source, std::span<const std::string_view> settings,
                                     std::span<const ShellWord> variables, ShellFiles* files) {
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
  if (files != nullptr) *files = std::move(script.files);
  return std::move(script.commands);
}

}  // namespace trident

#include "import/shell_reader.h"

#include <fmt/format.h>

#include <span>

#include "core/json_reader.h"
#include "import/shell_words.h"

namespace trident {
namespace shell {
namespace {

constexpr int kMostPasses = 1000;  // of a loop that are followed

class Reader : FileReader {
 public:
  // `before` are words before those of each command: of what starts this shell.
  Reader(Script& script, Text text, std::vector<ShellWord> before = {})
      : FileReader(script, std::move(text)), before_(std::move(before)) {}
  void read(int runs) {
    const Level level(script_, here());
    blocks_.push_back({"", here(), runs_ = runs, runs, script_.mark(), script_.mark()});
    while (!at_end()) step();
    end_pipeline(blocks_.back());
    use_documents();
    if (blocks_.size() > 1) script_.fail(blocks_.back().begin, fmt::format("nothing closes this \"{}\"", blocks_.back().kind));
  }

 private:
  // ---- commands
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
  void open(std::string_view kind, int runs, std::size_t bytes) {
    if (blocks_.size() > kMaxForeignDepth) script_.fail(here(), "more than 64 levels; give import the command alone");
    if (const Block& outer = blocks_.back(); outer.presumed != 0 && outer.base == 0) runs = outer.presumed;
    blocks_.push_back({kind, here(), runs_ = runs, runs, script_.mark(), script_.mark()});
    blocks_.back().is_not = std::exchange(is_not_, false), blocks_.back().is_skipped = runs == kNever;
    pos_ += bytes;
  }
  void close(std::string_view kind, std::size_t bytes) {
    if (blocks_.size() == 1 || blocks_.back().kind != kind) fail_alone();
    end_list(blocks_.back());
    if (kind == "(") script_.forget(blocks_.back().outer);
    if (!blocks_.back().is_skipped) {
      // Nobody knows whether a body ran: without one an `if` succeeds, whatever its condition was.
      if (!is_listed(kind, "{ (")) outcome_ = Outcome::kPresumed;
      if (blocks_.back().is_not) outcome_ = Outcome::kUnknown;
    }
    pos_ += bytes, blocks_.pop_back();
    runs_ = blocks_.back().base;
    take_redirections();
  }
  // The variables of a pipeline's parts stay in there.
  void end_pipeline(Block& block) {
    if (std::exchange(block.is_piped, false)) script_.forget(block.mark);
    block.mark = script_.mark();
  }
  void end_list(Block& block) {
    end_pipeline(block);
    if (std::exchange(block.presumed, 0) != 0) outcome_ = Outcome::kPresumed;
  }
  // A command, or what stands between two.
  void step() {
    use_documents();
    skip_blanks();
    if (at_end()) return;
    Block& block = blocks_.back();
    const std::string word = plain_word();
    const std::size_t begin = pos_;
    if (block.at_pattern && word != "esac") {
      block.at_pattern = false;
      branch(block, pattern(block.subject));
    } else if (block.kind == "case" && takes(";;")) {
      if (peek() == '&') script_.refuse(at(begin), ";;&");
      block.at_pattern = true;
      end_list(block);
      skip_lines();
    } else if (takes("&&") || takes("||")) {
      is_conditional_ = true;
      end_pipeline(block);
      if (outcome_ == Outcome::kPresumed && block.base == 0 && block.presumed == 0) block.presumed = doubt("a command", begin);
      runs_ = narrowed(block.base, outcome_, text_[begin].c == '&');
      skip_lines();
    } else if (peek() == '\n' || takes(";") || takes("|&") || takes("|") || (peek(1) != '>' && takes("&"))) {
      const bool is_pipe = text_[begin].c == '|';
      is_conditional_ = false;
      block.is_piped |= is_pipe || text_[begin].c == '&';
      if (is_pipe) script_.forget(block.mark), outcome_ = Outcome::kPresumed;
      else end_list(block);
      if (pos_ == begin) skip_newline();
      runs_ = block.base;
    } else if (peek() == '(' && !takes_sum()) {
      open("(", runs_, 1);
    } else if (pos_ != begin) {  // the sum
      take_redirections();
    } else if (peek() == ')') {
      close("(", 1);
    } else if (word == "{" || word == "if") {
      open(word == "{" ? "{" : "if", runs_, word.size());
    } else if (is_listed(word, "} fi done esac")) {
      if (word == "done" && goes_again(block)) return;
      close(word == "}" ? "{" : word == "fi" ? "if" : word == "done" ? "loop" : "case", word.size());
    } else if (word == "!") {
      ++pos_;
      is_not_ = !is_not_;
    } else if (word == "then" && block.kind == "if") {
      pos_ += word.size();
      branch(block, outcome_ == Outcome::kPresumed ? Outcome::kUnknown : outcome_);
    } else if ((word == "else" || word == "elif") && block.kind == "if") {
      pos_ += word.size();
      runs_ = block.base = block.rest;
    } else if (is_listed(word, "for while until")) {
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
      take_redirections();
    } else {
      simple();
    }
  }
  // ---- loops
  // Follows a loop while its condition is known, or through the items of `for`.
  void loop(const std::string& word) {
    const std::size_t begin = pos_;
    const bool has_items = word == "for";
    const int runs = runs_;
    open("loop", has_items ? doubtful("the loop") : runs, word.size());
    skip_blanks();
    Block& block = blocks_.back();
    block.is_until = word == "until";
    const std::string name = has_items ? parameter_name(false) : "";
    skip_blanks();
    const bool names_items = has_items && plain_word() == "in";
    bool is_open = false;  // they are arguments that nobody knows
    if (names_items) {
      pos_ += 2;
      Fields fields{true};
      for (skip_blanks(); !ends_word(peek()); skip_blanks()) scan(fields, Stop::kWord, false), fields.close();
      block.items = fields.take();
    } else if (const auto all = script_.variables.find("@"); has_items && all != script_.variables.end()) {
      block.items = all->second.items;
    } else {
      is_open = has_items && script_.has_open_arguments;
    }
    const bool is_known = runs == 0 && !is_open && name.empty() != has_items &&
                          std::ranges::all_of(block.items, [](const Text& item) {
                            return why_of(item) == 0 && bytes_of(item).find_first_of("*?[{") == std::string::npos;
                          });
    if (!is_known && !name.empty() && runs_ != kNever) script_.doubt(name, at(begin), runs_);
    if (!is_known) return;
    runs_ = block.base = has_items && block.items.empty() ? kNever : 0;
    if (runs_ == 0) block.again = pos_;
    std::ranges::reverse(block.items);
    block.name = name;
    take_item(block);
  }
  void take_item(Block& block) {
    if (block.items.empty()) return;
    if (block.passes == 0) script_.change(block.name, here()).items.assign(1, block.items.back());
    else script_.doubt(block.name, here(), block.passes);
    block.items.pop_back();
  }
  // Behind the condition of `while` and `until`. The second pass stands for all that follow where the condition never ends them.
  void begin_pass(Block& block) {
    const bool is_known = outcome_ == Outcome::kTrue || outcome_ == Outcome::kFalse;
    const bool ends = is_known && (outcome_ == Outcome::kTrue) == block.is_until;
    block.is_endless = is_known && bytes_of(part(block.again, pos_)).find('$') == std::string::npos;
    if (block.is_endless && !ends && block.count++ == 1 && block.passes == 0) block.passes = doubt("the loop", block.again);
    runs_ = block.base = ends ? kNever : is_known ? block.passes : doubt("the loop", block.again, why_test_);
    if (ends || !is_known) block.again = std::string::npos;
  }
  // At the end of a loop; false: no pass is left.
  bool goes_again(Block& block) {
    if (block.kind != "loop" || block.again == std::string::npos || (!block.name.empty() && block.items.empty())) return false;
    if (block.is_endless && block.count > 1) return false;
    if (!block.is_endless && block.name.empty() && ++block.count > kMostPasses) {  // one more stands for all that follow
      if (block.passes != 0) return false;
      block.passes = doubt("the loop", block.again);
    }
    script_.spend(pos_ - block.again + 2048, here());
    take_item(block);
    pos_ = block.again;
    runs_ = block.base = block.passes, outcome_ = Outcome::kPresumed;
    return true;
  }
  // `break` and `continue`: nothing runs up to the loop's end, or nobody knows whether it does.
  void leave(bool breaks) {
    const auto last = std::ranges::find(blocks_.rbegin(), blocks_.rend(), "loop", &Block::kind);
    if (last == blocks_.rend()) return;
    runs_ = runs_ != 0 ? runs_ : kNever;
    for (auto one = std::prev(last.base()); one != blocks_.end(); ++one) {
      one->base = one->rest = runs_;
      if (runs_ != kNever) one->passes = runs_;
    }
    if (breaks && runs_ == kNever) last->again = std::string::npos;
  }

  // ((N > 1)), or ((N += 1)), whose variables nobody knows afterwards; false: two shells begin here.
  bool takes_sum() {
    const std::size_t begin = pos_;
    if (!takes("((")) return false;
    skip_parentheses(at(begin));
    if (!takes(")")) return pos_ = begin, false;
    const std::string sum = typed(begin);
    for (const std::string& name : runs_ == kNever ? std::vector<std::string>() : assigned_in(sum))
      script_.doubt(name, at(begin), runs_ != 0 ? runs_ : doubt("the sum", begin));
    Fields value{false};
    if (assigned_in(sum).empty()) arithmetic(value, begin, begin + 2, pos_ - 2, Syntax::kShell);
    const Text text = value.take_one();
    why_test_ = why_of(text);
    settle(text.empty() || why_test_ != 0 ? Outcome::kUnknown : bytes_of(text) == "0" ? Outcome::kFalse : Outcome::kTrue);
    return true;
  }
  void settle(Outcome outcome) {
    using enum Outcome;
    if (std::exchange(is_not_, false)) outcome = outcome == kTrue ? kFalse : outcome == kFalse ? kTrue : kUnknown;
    if (runs_ != kNever) outcome_ = runs_ != 0 ? kUnknown : outcome;
  }
  // Behind `return` nothing runs up to the end of this function or shell, or nobody knows.
  void end() {
    if (runs_ == kNever || !is_called_) return;
    const auto shell = std::find_if(blocks_.rbegin(), blocks_.rend(), [](const Block& block) { return block.kind == "("; });
    runs_ = runs_ == 0 ? kNever : runs_;
    for (auto one = shell == blocks_.rend() ? blocks_.begin() : std::prev(shell.base()); one != blocks_.end(); ++one) {
      if (one->base != kNever) one->base = runs_;
      if (one->rest != kNever) one->rest = runs_;
      if (runs_ == kNever) one->again = std::string::npos;
      else if (one->passes == 0) one->passes = runs_;
    }
  }
  void simple() {
    std::vector<Text> words;
    Variables given;
    const std::size_t begin = pos_, documents = here_documents_.size();
    const int runs = std::exchange(runs_, kNever), presumed = blocks_.back().presumed;
    while (skip_blanks(), takes_assignment(&given, false) || takes_redirection()) {}
    // Else its variables are those of the command alone.
    const bool is_assignment = ends_word(peek()) && !has("<>(", peek());
    pos_ = begin;
    here_documents_.erase(here_documents_.begin() + static_cast<std::ptrdiff_t>(documents), here_documents_.end());
    output_.clear(), executes_ = false;
    const bool changes = is_assignment || is_listed(plain_word(), kDeclarations) || is_listed(plain_word(), "set unset shift read");
    runs_ = presumed != 0 && changes && blocks_.back().base == 0 ? presumed : runs;
    bool declares = false;
    const auto first_word = [&] { return words.empty() ? "" : bytes_of(words[0]); };
    while (skip_blanks(), takes_redirection() || !ends_word(peek()) || has("<>", peek())) {
      if ((words.empty() || declares) && takes_assignment(is_assignment ? nullptr : &given, is_assignment || declares)) continue;
      if (words.size() == 2 && first_word() == "function") break;
      const std::size_t before = pos_;
      Fields fields{true};
      if (takes("<(") || takes(">(")) {
        skip_parentheses(at(before));
        put_not_executed(fields, before);
      }
      scan(fields, Stop::kWord, false);
      std::ranges::move(fields.take(), std::back_inserter(words));
      declares = is_listed(first_word(), kDeclarations);
    }
    if (pos_ == begin) fail_alone();
    if (here_documents_.size() > documents && !words.empty()) take_document(here_documents_.back(), words);
    lose(std::exchange(output_, {}));
    const bool has_parentheses = !words.empty() && words.size() <= 2 && takes("(");
    if (has_parentheses && (skip_blanks(), !takes(")"))) fail_alone();
    if (has_parentheses || (words.size() == 2 && first_word() == "function")) return function(bytes_of(words.back()));
    why_test_ = 0;
    settle(words.empty() && executes_                                      ? Outcome::kPresumed
           : words.empty() || declares || is_listed(first_word(), "true :") ? Outcome::kTrue
           : first_word() == "false"                                       ? Outcome::kFalse
           : first_word() == "test" ? outcome_of({words.begin() + 1, words.end()})
                                    : Outcome::kPresumed);
    if (declares && runs_ != kNever) declare(words, std::exchange(given, {}), at(begin));
    if (!words.empty() && runs_ != kNever) emit(words, given, at(begin));
  }
  // Documents that ended before here.
  void use_documents() {
    for (HereDocument& document : std::exchange(written_, {})) {
      if (document.use == Use::kFile && !script_.files[document.file].unknown.empty()) continue;
      Text text = content_of(document);
      if (document.use == Use::kScript) nested(std::move(text), {std::vector<Text>(), false, true}, before_, document.runs, here());
      else keep(document, std::move(text));
    }
  }
  // Keeps the body, which is read where the function is called.
  void function(const std::string& name) {
    const Level level(script_, here());
    const int runs = std::exchange(runs_, kNever);
    const bool defines = std::exchange(defines_, true);
    skip_lines();
    const std::size_t begin = pos_, blocks = blocks_.size();
    do step();
    while (blocks_.size() > blocks && !at_end());
    runs_ = runs, defines_ = defines;
    settle(Outcome::kTrue);
    if (runs == kNever) return;
    if (runs != 0 && script_.functions.contains(name)) script_.refuse(at(begin), "a second function of this name");
    script_.spend(pos_ - begin, at(begin));
    script_.functions[name] = {part(begin, pos_), runs};
  }
  // Keeps the variable for the end of the function that changes it.
  void keep_outer(const std::string& name) {
    const auto found = script_.variables.find(name);
    outer_.try_emplace(name, found == script_.variables.end() ? std::nullopt : std::optional(found->second));
  }
  void declare(const std::vector<Text>& words, Variables given, int begin) {
    const std::string command = bytes_of(words[0]);
    const bool is_local = is_called_ && !is_listed(command, "export readonly");
    std::string flags;
    for (std::size_t i = 1; i < words.size(); ++i)
      if (const std::string word = bytes_of(words[i]); word.starts_with('-')) flags += word;
      else if (word.find('=') == word.npos && is_local) given.try_emplace(word);
      else if (const auto known = script_.variables.find(word); known != script_.variables.end()) given.insert(*known);
    // A name of another variable, an integer, and small or capital letters.
    if (flags.find_first_of(command == "export" ? "iluc" : "niluc") != flags.npos) script_.refuse(begin, command + ' ' + flags);
    for (auto& [name, variable] : given) {
      if (is_local && !has(flags, 'g')) keep_outer(name);
      const auto known = is_local ? script_.variables.end() : script_.variables.find(name);
      variable.is_exported |= command == "export" || has(flags, 'x') ||
                              (known != script_.variables.end() && known->second.is_exported);
      variable.is_readonly |= command == "readonly" || has(flags, 'r');
      const Variable& changed = script_.change(name, begin) = std::move(variable);
      if (changed.items.empty() && is_local && flags.find_first_of("aA") == flags.npos) script_.erase(name, begin);
    }
  }
  void emit(const std::vector<Text>& words, const Variables& given, int begin, bool may_be_function = true) {
    std::vector<std::string> texts;
    for (const Text& word : words) texts.push_back(bytes_of(word));
    const std::string& name = texts[0];
    if (is_listed(name, "command builtin") && words.size() > 1 && !texts[1].starts_with('-'))
      return emit({words.begin() + 1, words.end()}, given, begin, false);
    if (const auto found = script_.functions.find(name); may_be_function && found != script_.functions.end())
      return nested(found->second.body, {std::vector(words.begin() + 1, words.end()), true, false, given}, before_,
                    runs_ != 0 ? runs_ : found->second.runs, begin);
    ShellCommand command{before_, {}, script_.reasons[static_cast<std::size_t>(runs_)]};
    command.folder = script_.folder, command.files = script_.files.size();
    change_state(words, texts, begin);
    if (name == "eval") return evaluate(words, begin);
    if (is_listed(name, "source .")) source(words, begin);
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (i > 0 && i + 1 < words.size() && is_listed(texts[i], "-c -lc -ec -xc") &&
          is_listed(texts[i - 1], "bash sh zsh /bin/bash /bin/sh")) {
        command.words.pop_back();
        const auto rest = words.begin() + static_cast<std::ptrdiff_t>(std::min(i + 3, words.size()));
        return nested(words[i + 1], {std::vector(rest, words.end()), false, true}, std::move(command.words), runs_, begin);
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
    if (name == "return") end();
    // Nothing behind it runs; behind a test, and within blocks, functions and other shells, it is taken for a command.
    const bool is_apart = has("&|", peek()) && peek(1) != peek();  // a shell of its own, which alone ends
    const bool is_outermost = runs_ == 0 && !is_conditional_ && !is_called_ && before_.empty() && blocks_.size() == 1 && !is_apart;
    const bool execs = name == "exec" && words.size() > 1 && !has("<>{", texts[1][0]);  // else its redirections alone
    if (is_outermost && !blocks_[0].is_piped && (name == "exit" || execs))
      runs_ = blocks_[0].base = blocks_[0].rest = kNever;
  }
  // Does to variables, arguments, the folder and files as a builtin does.
  void change_state(const std::vector<Text>& words, const std::vector<std::string>& texts, int begin) {
    const std::string& name = texts[0];
    const auto doubted = [&] { return runs_ != 0 ? runs_ : doubt(name, std::max<std::size_t>(pos_, 1) - 1); };
    if (is_listed(name, "break continue") && words.size() > 1) script_.refuse(begin, name + " of several loops");
    if (is_listed(name, "break continue")) leave(name == "break");
    const bool is_folder_known = runs_ == 0 && words.size() == 2 && why_of(words[1]) == 0;
    if (is_listed(name, "cd pushd popd")) script_.folder = is_folder_known ? script_.folder_at(texts[1]) : std::nullopt;
    for (const std::string& file : changed_by(texts)) lose(file);
    if (name == "unset") script_.unset(words, runs_ == 0 && texts.back().find('[') == std::string::npos ? 0 : doubted());
    if (name == "set") script_.set(words, texts, begin, runs_);
    if (name == "select" || (name == "shopt" && texts.back() == "lastpipe")) script_.refuse(begin, name);
    if (name == "shift") script_.shift(words, begin, runs_);
    for (const std::string& one : set_by(texts)) script_.doubt(one, begin, doubted());
    if (is_listed(name, kDeclarations) || is_listed(name, "read mapfile readarray printf let unset"))  // it may be any name
      for (std::size_t i = 1; i < words.size(); ++i)
        if (!words[i].empty() && words[i][0].why != 0 && !has("<>", texts[i][0]) && (name != "printf" || texts[i - 1] == "-v")) {
          script_.doubt_all(begin, doubted());
          break;
        }
  }
  // How a text within the script is read: with arguments of its own, as a function or a file, or by a shell of its own.
  struct Nested {
    std::optional<std::vector<Text>> arguments = {};
    bool is_called = false, is_own = false;
    Variables given = {};
  };
  void nested(Text text, Nested how, std::vector<ShellWord> before, int runs, int begin) {
    if (text.empty()) return;
    script_.spend(text.size() * 2, begin);
    const Mark mark = script_.mark();
    const auto all = script_.variables.find("@");
    const std::optional<Variable> outer = all == script_.variables.end() ? std::nullopt : std::optional(all->second);
    if (how.is_own) script_.keep_exported(begin);
    if (how.arguments) script_.set_arguments(*how.arguments, begin, 0);
    Reader reader(script_, std::move(text), std::move(before));
    reader.is_called_ = how.is_called;
    for (const auto& [name, variable] : how.given) reader.keep_outer(name), script_.change(name, begin) = variable;
    reader.read(runs);
    for (auto& [name, variable] : reader.outer_)
      if (variable) script_.change(name, begin) = std::move(*variable);
      else script_.erase(name, begin);
    if (how.arguments) script_.set_arguments(outer ? outer->items : std::vector<Text>(), begin, 0);
    if (how.arguments && !outer) script_.erase("@", begin);
    if (how.is_own) script_.forget(mark);
  }
  void evaluate(const std::vector<Text>& words, int begin) {
    Text text;
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (i > 1) text.push_back({' ', begin});
      text.insert(text.end(), words[i].begin(), words[i].end());
    }
    // A program's output, or an assignment to a name that is not known.
    const std::string all = bytes_of(text), first = all.substr(0, all.find_first_of(" \n"));
    const bool is_open = !text.empty() && (text[0].why != 0 || first.find('$') < first.find('='));
    if (is_open && !is_environment(all)) script_.doubt_all(begin, runs_ != 0 ? runs_ : doubt("eval", pos_ - 1));
    nested(std::move(text), {}, before_, runs_, begin);
  }
  void source(const std::vector<Text>& words, int begin) {
    const std::string name = words.size() < 2 ? "" : bytes_of(words[1]);
    if (name.empty() || is_environment(name)) return;
    const bool is_known = why_of(words[1]) == 0 && (script_.folder || name.starts_with('/'));
    const std::string path = is_known ? file_name(name) : name;
    const auto written = script_.newest_files.find(path);
    std::optional<std::string> text;
    if (is_known && written == script_.newest_files.end()) text = script_.sources ? script_.sources(path) : std::nullopt;
    else if (is_known && script_.files[written->second].unknown.empty()) text = script_.files[written->second].text;
    if (!text) return script_.doubt_all(begin, runs_ != 0 ? runs_ : doubt(name, pos_ - 1));
    Nested how{{}, true};
    if (words.size() > 2) how.arguments.emplace(words.begin() + 2, words.end());
    const std::string outer = std::exchange(script_.sourced, path);
    script_.sourced_texts.push_back({++script_.end, path, begin});
    script_.line_starts.push_back(script_.end);
    nested(script_.characters_of(*text), std::move(how), before_, runs_, begin);
    script_.sourced = outer;
  }

  std::vector<ShellWord> before_;
  std::vector<Block> blocks_;
  Outcome outcome_ = Outcome::kPresumed;  // of the last one
  bool is_not_ = false;                   // "!" stands before the next one
  bool is_conditional_ = false;           // && or || does
  bool is_called_ = false;                // a function or a file that `source` reads
  std::map<std::string, std::optional<Variable>> outer_;  // what variables of this function are outside of it
};

}  // namespace
}  // namespace shell

std::vector<ShellCommand> read_shell(std::string_view text, std::string_view source, std::span<const std::string_view> settings,
                                     std::span<const ShellWord> variables, ShellFiles* files, const ShellSources& sources,
                                     bool has_open_arguments) {
  shell::Script script{source, settings, sources, has_open_arguments};
  shell::Text characters = script.characters_of(text);
  for (const ShellWord& word : variables) {
    const std::size_t equals = word.text.find('=');
    shell::Variable& variable = script.variables[word.text.substr(0, equals)];
    variable.is_exported = true;
    variable.items = {shell::text_of(word.text.substr(equals + 1), script.line_starts.at(static_cast<std::size_t>(word.line) - 1))};
  }
  shell::Reader(script, std::move(characters)).read(0);
  if (files != nullptr) *files = std::move(script.files);
  return std::move(script.commands);
}

}  // namespace trident

#include "data/chat/jinja_parser.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <map>

#include "core/printable.h"
#include "core/utf8.h"
#include "data/chat/jinja_filters.h"

namespace trident::jinja {
namespace {

constexpr int kMaxHeight = 400;         // of trees: chains of + grow it
constexpr std::size_t kMaxNames = 255;  // of parameters, and of arguments that have names
constexpr std::string_view kStatements = "set, with, for, if, macro, call, filter, raw, generation, break and continue are known";

class Parser : private TokenReader {
 public:
  Parser(std::string_view source, Program* program) : TokenReader(source), program_(program) {}

  void run() {
    program_->body = body({});
    if (token().type != Token::Type::kEnd) refuse(fmt::format("the statement {}, which ends nothing", in_quotes(token().text)));
  }

 private:
  int symbol(const std::string& name) {
    const auto [place, is_new] = symbols_.try_emplace(name, static_cast<int>(program_->symbols.size()));
    if (is_new) program_->symbols.push_back(name);
    return place->second;
  }

  template <class... Kids>
  NodePtr node(NodeKind kind, Position at, Kids... kids) const {
    auto out = std::make_unique<Node>();
    out->kind = kind, out->at = at;
    (add(out, std::move(kids)), ...);
    return out;
  }
  NodePtr node(NodeKind kind) const { return node(kind, token().at); }
  void add(const NodePtr& parent, NodePtr kid) const {
    parent->height = higher(*parent, kid), parent->kids.push_back(std::move(kid));
  }
  int higher(const Node& parent, const NodePtr& kid) const {
    const int height = kid == nullptr ? parent.height : std::max(parent.height, kid->height + 1);
    if (height > kMaxHeight) refuse("nested too deeply");
    return height;
  }

  // ---- statements

  // Up to a tag that begins with one of `ends`, which is the next token then; without ends to the end of the template.
  Body body(std::initializer_list<std::string_view> ends) {
    const Level level(this);
    Body out;
    for (;;) {
      const Position at = token().at;
      if (token().type == Token::Type::kData) {
        out.push_back(node(NodeKind::kText));
        out.back()->constant = Text(tokens_[next_++].text);
      } else if (token().type == Token::Type::kVariableBegin) {
        ++next_;
        out.push_back(node(NodeKind::kOutput, at, tuple(true, {})));
        expect(Token::Type::kVariableEnd, "\"}}\"");
      } else if (token().type == Token::Type::kBlockBegin) {
        ++next_;
        if (std::ranges::any_of(ends, [&](std::string_view end) { return is(end); })) return out;
        if (ends.size() == 0 && token().text.starts_with("end")) return out;
        out.push_back(statement(at));
        expect(Token::Type::kBlockEnd, "the end of the tag");
      } else if (ends.size() == 0) return out;
      else refuse(fmt::format("the end of the template where {{% {} %}} is expected", *(ends.end() - 1)));
    }
  }
  // With the end of the tag before it.
  Body block(std::initializer_list<std::string_view> ends) {
    take(":");
    expect(Token::Type::kBlockEnd, "the end of the tag");
    return body(ends);
  }
  // A function of its own in Python, which no break or continue can leave.
  Body closed_block(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body out = block({end});
    loops_ = loops;
    ++next_;
    return out;
  }

  NodePtr statement(Position at) {
    const Level level(this);
    if (token().type != Token::Type::kName) refuse_token("a statement");
    const std::string word = name();
    if (word == "set") return set_statement(at);
    if (word == "for") return for_statement(at);
    if (word == "if") return if_statement(at, "endif");
    if (word == "macro") return macro_statement(at);
    if (word == "call") return call_statement(at);
    if (word == "filter") return filter_statement(at);
    if (word == "with") return with_statement(at);
    if (word == "generation") {
      program_->has_generation = true;
      NodePtr out = node(NodeKind::kGeneration, at);
      out->body = closed_block("endgeneration");
      return out;
    }
    if (word == "break" || word == "continue") {
      if (loops_ == 0) throw SyntaxRefusal(at, fmt::format("{} outside of a loop", word));
      return node(word == "break" ? NodeKind::kBreak : NodeKind::kContinue, at);
    }
    throw SyntaxRefusal(at, fmt::format("the statement {}; {}", in_quotes(word), kStatements));
  }

  NodePtr set_statement(Position at) {
    NodePtr to = target(true);
    if (take("=")) return node(NodeKind::kSet, at, std::move(to), tuple(true, {}));
    NodePtr out = node(NodeKind::kSetBlock, at, std::move(to));
    while (take("|")) add(out, filter(nullptr));
    out->body = block({"endset"});
    ++next_;
    return out;
  }

  NodePtr with_statement(Position at) {
    NodePtr out = node(NodeKind::kWith, at);
    while (token().type != Token::Type::kBlockEnd) {
      if (!out->kids.empty()) expect(",");
      add(out, target(false));
      expect("=");
      add(out, expression());
    }
    out->body = block({"endwith"});
    ++next_;
    return out;
  }

  NodePtr for_statement(Position at) {
    NodePtr out = node(NodeKind::kFor, at);
    out->symbol = symbol("loop");
    add(out, target(false));
    expect("in");
    add(out, tuple(false, {"recursive"}));
    add(out, take("if") ? expression() : nullptr);
    if (take("recursive")) out->name = "recursive";
    ++loops_;
    out->body = block({"else", "endfor"});
    --loops_;
    if (take("else")) out->otherwise = block({"endfor"});
    ++next_;
    return out;
  }

  NodePtr if_statement(Position at, std::string_view end) {
    const Level level(this);
    NodePtr out = node(NodeKind::kIf, at, tuple(false, {}));
    out->body = block({"elif", "else", end});
    if (const Position next = token().at; take("elif")) {
      out->otherwise.push_back(if_statement(next, end));
      return out;
    }
    if (take("else")) out->otherwise = block({end});
    ++next_;
    return out;
  }

  NodePtr macro_statement(Position at) {
    NodePtr out = node(NodeKind::kMacro, at);
    out->name = name();
    out->symbol = symbol(out->name);
    expect("(");
    parameters(out);
    macro_body(out, "endmacro");
    return out;
  }
  NodePtr call_statement(Position at) {
    NodePtr body = node(NodeKind::kMacro, at);
    body->name = "caller";
    if (take("(")) parameters(body);
    NodePtr called = unary(false);
    if (called->kind != NodeKind::kCall) throw SyntaxRefusal(at, "{% call %} of what is no call");
    macro_body(body, "endcall");
    return node(NodeKind::kCallBlock, at, std::move(called), std::move(body));
  }
  void parameters(const NodePtr& out) {
    while (!take(")")) {
      if (!out->words.empty()) expect(",");
      if (out->words.size() == kMaxNames) refuse(fmt::format("more than {} parameters", kMaxNames));
      if (is("caller")) refuse("a parameter caller");
      out->words.push_back(name());
      out->symbols.push_back(symbol(out->words.back()));
      if (take("=")) add(out, expression());
      else if (!out->kids.empty()) refuse("a parameter without a default behind one with a default");
    }
  }
  // One that has the name `caller` in it takes that as an argument, too: its last symbol.
  void macro_body(const NodePtr& out, std::string_view end) {
    const int macros = std::exchange(macros_, 1), callers = callers_;
    out->body = closed_block(end);
    macros_ = macros;
    if (callers_ > callers) out->symbols.push_back(symbol("caller"));
  }

  NodePtr filter_statement(Position at) {
    NodePtr out = node(NodeKind::kFilterBlock, at);
    do add(out, filter(nullptr));
    while (take("|"));
    out->body = block({"endfilter"});
    ++next_;
    return out;
  }

  // ---- targets of assignments

  NodePtr target(bool with_attributes) {
    const Position at = token().at;
    NodePtr first = single_target(with_attributes);
    if (!is(",")) return first;
    NodePtr out = node(NodeKind::kTuple, at, std::move(first));
    while (take(",") && (token().type == Token::Type::kName || is("(")) && !is("in")) add(out, single_target(with_attributes));
    return out;
  }
  NodePtr single_target(bool with_attributes) {
    const Level level(this);
    if (take("(")) {
      NodePtr out = target(with_attributes);
      expect(")");
      return out;
    }
    NodePtr out = node(NodeKind::kName);
    out->name = name();
    static constexpr std::array<std::string_view, 6> kConstants{"true", "false", "none", "True", "False", "None"};
    if (std::ranges::find(kConstants, out->name) != kConstants.end()) throw SyntaxRefusal(out->at, "an assignment to a constant");
    out->symbol = symbol(out->name);
    if (!with_attributes || !take(".")) return out;
    NodePtr attribute = node(NodeKind::kAttribute, out->at);
    attribute->name = name();
    add(attribute, std::move(out));
    return attribute;
  }

  // ---- expressions, from the loosest to the tightest

  bool ends_tuple(std::initializer_list<std::string_view> ends) const {
    return token().type == Token::Type::kVariableEnd || token().type == Token::Type::kBlockEnd || is(")") ||
           std::ranges::any_of(ends, [&](std::string_view end) { return is(end); });
  }
  // One expression, or a tuple of several without brackets.
  NodePtr tuple(bool with_conditional, std::initializer_list<std::string_view> ends, bool in_brackets = false) {
    const Position at = token().at;
    NodePtr out = node(NodeKind::kTuple, at);
    bool is_tuple = false;
    while (!ends_tuple(ends)) {
      NodePtr item = with_conditional ? expression() : either();
      if (!is(",") && !is_tuple) return item;
      add(out, std::move(item));
      is_tuple = true;
      if (!take(",")) break;
    }
    if (!is_tuple && !in_brackets) refuse_token("an expression");
    return out;
  }

  NodePtr expression() {
    const Level level(this);
    Position at = token().at;
    NodePtr value = either();
    while (take("if")) {
      NodePtr out = node(NodeKind::kConditional, at, either(), std::move(value));
      add(out, take("else") ? expression() : nullptr);
      value = std::move(out);
      at = token().at;
    }
    return value;
  }
  NodePtr either() { return binary(NodeKind::kOr, {"or"}, &Parser::both); }
  NodePtr both() { return binary(NodeKind::kAnd, {"and"}, &Parser::negation); }
  NodePtr negation() {
    const Level level(this);
    const Position at = token().at;
    return take("not") ? node(NodeKind::kNot, at, negation()) : comparison();
  }
  NodePtr comparison() {
    const Position at = token().at;
    NodePtr first = sum();
    NodePtr out;
    for (;;) {
      std::string word;
      static constexpr std::array<std::string_view, 7> kOperators{"==", "!=", "<", "<=", ">", ">=", "in"};
      if (std::ranges::any_of(kOperators, [&](std::string_view it) { return is(it); })) word = tokens_[next_++].text;
      else if (is("not") && is("in", 1)) next_ += 2, word = "not in";
      if (word.empty()) return out == nullptr ? std::move(first) : std::move(out);
      if (out == nullptr) out = node(NodeKind::kCompare, at, std::move(first));
      out->tests.push_back(find_test(word == "not in" ? "in" : word));
      out->words.push_back(std::move(word));
      add(out, sum());
    }
  }
  // Operators of one strength, from left to right.
  NodePtr binary(NodeKind kind, std::initializer_list<std::string_view> operators, NodePtr (Parser::*operand)()) {
    NodePtr left = (this->*operand)();
    for (;;) {
      const Position at = token().at;
      const auto* const found = std::ranges::find_if(operators, [&](std::string_view it) { return is(it); });
      if (found == operators.end()) return left;
      ++next_;
      left = node(kind, at, std::move(left), (this->*operand)());
      left->name = *found;
    }
  }
  NodePtr sum() { return binary(NodeKind::kBinary, {"+", "-"}, &Parser::concatenation); }
  NodePtr concatenation() {
    NodePtr first = product();
    if (!is("~")) return first;
    NodePtr out = node(NodeKind::kConcat, token().at, std::move(first));
    while (take("~")) add(out, product());
    return out;
  }
  NodePtr product() { return binary(NodeKind::kBinary, {"*", "/", "//", "%"}, &Parser::power); }
  NodePtr power() { return binary(NodeKind::kBinary, {"**"}, &Parser::filtered); }
  NodePtr filtered() { return unary(true); }
  NodePtr unary(bool with_filters) {
    const Level level(this);
    const Position at = token().at;
    NodePtr out;
    if (take("-") || take("+")) {
      const NodeKind kind = tokens_[next_ - 1].text == "-" ? NodeKind::kMinus : NodeKind::kPlus;
      out = node(kind, at, unary(false));
    } else out = primary();
    out = postfix(std::move(out));
    while (with_filters) {
      if (take("|")) out = filter(std::move(out));
      else if (is("is")) out = test(std::move(out));
      else if (is("(")) out = call(std::move(out));
      else break;
    }
    return out;
  }

  NodePtr constant(Value value) {
    NodePtr out = node(NodeKind::kConstant);
    out->constant = std::move(value);
    ++next_;
    return out;
  }
  NodePtr primary() {
    const Token& it = token();
    switch (it.type) {
      case Token::Type::kName: {
        if (it.text == "true" || it.text == "True") return constant(true);
        if (it.text == "false" || it.text == "False") return constant(false);
        if (it.text == "none" || it.text == "None") return constant({});
        if (macros_ > 0 && it.text == "caller") ++callers_;
        if (macros_ > 0 && (it.text == "varargs" || it.text == "kwargs"))
          refuse(fmt::format("{} in a macro", it.text));
        if (it.text == "self" || it.text == "super" || it.text == "cycler" || it.text == "joiner" || it.text == "lipsum")
          refuse(fmt::format("Jinja's {}", it.text));
        NodePtr out = node(NodeKind::kName);
        out->name = it.text;
        out->symbol = symbol(it.text);
        ++next_;
        return out;
      }
      case Token::Type::kString: {
        std::string text = it.text;
        while (token(1).type == Token::Type::kString) text += tokens_[++next_].text;
        return constant(Text(text));
      }
      case Token::Type::kInteger: {
        std::int64_t value = 0;
        const char* const end = it.text.data() + it.text.size();
        if (std::from_chars(it.text.data(), end, value).ec != std::errc()) refuse("an integer of more than 64 bits");
        return constant(value);
      }
      case Token::Type::kFloat: return constant(std::strtod(it.text.c_str(), nullptr));
      case Token::Type::kOperator: break;
      default: refuse_token("an expression");
    }
    if (take("(")) {
      NodePtr out = tuple(true, {}, true);
      expect(")");
      return out;
    }
    if (is("[")) return list(NodeKind::kList, "]");
    if (is("{")) return list(NodeKind::kDict, "}");
    refuse_token("an expression");
  }
  NodePtr list(NodeKind kind, std::string_view end) {
    NodePtr out = node(kind);
    ++next_;
    while (!take(end)) {
      if (!out->kids.empty()) {
        expect(",");
        if (take(end)) break;
      }
      add(out, expression());
      if (kind == NodeKind::kList) continue;
      expect(":");
      add(out, expression());
    }
    return out;
  }

  NodePtr postfix(NodePtr object) {
    for (;;) {
      if (is(".") || is("[")) object = subscript(std::move(object));
      else if (is("(")) object = call(std::move(object));
      else return object;
    }
  }
  NodePtr subscript(NodePtr object) {
    const Position at = token().at;
    if (take(".")) {
      if (token().type == Token::Type::kInteger) return node(NodeKind::kItem, at, std::move(object), primary());
      NodePtr out = node(NodeKind::kAttribute, at);
      out->name = name();
      add(out, std::move(object));
      return out;
    }
    expect("[");
    NodePtr first = is(":") ? nullptr : expression();
    if (!is(":")) {
      if (is(",")) refuse("an item with several keys");
      expect("]");
      return node(NodeKind::kItem, at, std::move(object), std::move(first));
    }
    NodePtr out = node(NodeKind::kSlice, at, std::move(object), std::move(first));
    for (int i = 0; i < 2; ++i) add(out, take(":") && !is(":") && !is("]") ? expression() : nullptr);
    expect("]");
    return out;
  }

  void arguments(const NodePtr& call) {
    expect("(");
    bool is_unpacked = false;
    for (bool first = true; !take(")"); first = false) {
      if (!first) {
        expect(",");
        if (take(")")) return;
      }
      if (is("**")) refuse("arguments unpacked by **");
      if (token().type == Token::Type::kName && is("=", 1)) {
        std::string keyword = name();
        ++next_;
        NodePtr value = expression();
        call->height = higher(*call, value);
        if (call->keywords.size() == kMaxNames) refuse(fmt::format("more than {} arguments with names", kMaxNames));
        if (std::ranges::any_of(call->keywords, [&](const auto& it) { return it.first == keyword; }))
          refuse(fmt::format("the argument {} twice", in_quotes(keyword)));
        call->keywords.emplace_back(std::move(keyword), std::move(value));
      } else {
        const Position at = token().at;
        if (is_unpacked || (!is("*") && !call->keywords.empty())) refuse("an argument without a name behind others");
        is_unpacked = take("*");
        add(call, is_unpacked ? node(NodeKind::kUnpacked, at, expression()) : expression());
      }
    }
  }
  NodePtr call(NodePtr callee) {
    NodePtr out = node(NodeKind::kCall, token().at, std::move(callee));
    arguments(out);
    return out;
  }
  // Behind "|".
  NodePtr filter(NodePtr value) {
    NodePtr out = node(NodeKind::kFilter);
    out->name = name();
    out->filter = find_filter(out->name);
    add(out, std::move(value));
    if (is("(")) arguments(out);
    return out;
  }
  NodePtr test(NodePtr value) {
    const Position at = token().at;
    ++next_;
    const bool is_negated = take("not");
    NodePtr out = node(NodeKind::kTest);
    out->name = name();
    out->tests.push_back(find_test(out->name));
    add(out, std::move(value));
    const Token::Type next = token().type;
    if (is("(")) arguments(out);
    else if (is("is")) refuse("a test of a test");
    else if ((next == Token::Type::kName && !is("else") && !is("or") && !is("and")) || next == Token::Type::kString ||
             next == Token::Type::kInteger || next == Token::Type::kFloat || is("[") || is("{")) {
      add(out, postfix(primary()));
    }
    return is_negated ? node(NodeKind::kNot, at, std::move(out)) : std::move(out);
  }

  Program* program_;
  std::map<std::string, int> symbols_;
  int loops_ = 0, macros_ = 0, callers_ = 0;
};

}  // namespace

int Program::symbol(std::string_view name) const {
  const auto found = std::ranges::find(symbols, name);
  return found == symbols.end() ? -1 : static_cast<int>(found - symbols.begin());
}

void refuse_at(const Program& program, Position at, std::string_view what) {
  const std::string_view remedy = what.find("; ") == what.npos ? "; change the template, or give another by --template" : "";
  throw DataError(fmt::format("{}:{}:{}: {}{}", program.name, at.line, at.column, what, remedy));
}

Program parse_program(std::string_view source, std::string name) {
  Program program;
  program.name = on_one_line(name);
  if (source.size() > kMaxTemplate)
    throw DataError(fmt::format("{}: a chat template of {} bytes; the limit is {}", program.name, source.size(), kMaxTemplate));
  if (const std::size_t valid = valid_prefix(source); valid < source.size())
    throw DataError(fmt::format("{}: byte {} of the chat template is not UTF-8; convert it", program.name, valid));
  try {
    Parser(source, &program).run();
  } catch (const SyntaxRefusal& refusal) {
    refuse_at(program, refusal.at(), refusal.what());
  }
  return program;
}

}  // namespace trident::jinja

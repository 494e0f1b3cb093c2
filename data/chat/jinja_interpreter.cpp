#include "data/chat/jinja_interpreter.h"

#include <algorithm>

#include "core/json_reader.h"
#include "data/chat/jinja_filters.h"

namespace trident::jinja {
namespace {

using Kind = Value::Kind;

constexpr int kMaxDepth = 800;  // of calls of the interpreter in each other

}  // namespace

Value undefined(std::string hint) { return Undefined{std::make_shared<const std::string>(std::move(hint))}; }

class Interpreter::Level {
 public:
  explicit Level(Interpreter* in) : in_(in) {
    in->budget_.take();
    if (++in->depth_ > kMaxDepth) throw Refusal("statements, expressions and macros too deep in each other");
  }
  ~Level() { --in_->depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Interpreter* in_;
};

Interpreter::Interpreter(const Program& program, const std::optional<std::tm>& now)
    : program_(program), now_(now), frame_(std::make_shared<Frame>()) {
  set("range", Function::kRange);
  set("namespace", Function::kNamespace);
  set("dict", Function::kDict);
  set("raise_exception", Function::kRaiseException);
  set("strftime_now", Function::kStrftimeNow);
}

void Interpreter::set(std::string_view name, Value value) {
  if (const int symbol = program_.symbol(name); symbol >= 0) bind(*frame_, symbol, std::move(value));
}

Text Interpreter::run() {
  Text out;
  frame_ = std::make_shared<Frame>(frame_);
  try {
    run(program_.body, &out);
  } catch (const Refusal& refusal) {
    refuse_at(program_, at_ == nullptr ? Position() : at_->at, refusal.what());
  }
  return out;
}

// ---- variables

void Interpreter::bind(Frame& frame, int symbol, Value value) {
  budget_.take(frame.variables.size() >> 6);
  for (auto& [name, old] : frame.variables)
    if (name == symbol) return void(old = std::move(value));
  frame.variables.emplace_back(symbol, std::move(value));
}

const Value* Interpreter::look_up(int symbol) {
  for (const Frame* frame = frame_.get(); frame != nullptr; frame = frame->outer.get()) {
    budget_.take(frame->variables.size() >> 6);
    for (const auto& [name, value] : frame->variables)
      if (name == symbol) return &value;
  }
  return nullptr;
}

void Interpreter::assign(const Node& target, const Value& value) {
  at_ = &target;
  if (target.kind == NodeKind::kName) return bind(*frame_, target.symbol, value);
  if (target.kind == NodeKind::kAttribute) {
    const Value* const object = look_up(target.kids[0]->symbol);
    if (object == nullptr || !object->is(Kind::kNamespace)) throw Refusal("an attribute is set of what is no namespace");
    if (target.name.starts_with('_')) throw Refusal("an attribute of a namespace that begins with _");
    return object->name_space().entries.set(Text(target.name), value);
  }
  const std::vector<Value> parts = items(value);
  if (parts.size() != target.kids.size())
    throw Refusal(fmt::format("{} values for {} names", parts.size(), target.kids.size()));
  for (std::size_t i = 0; i < parts.size(); ++i) assign(*target.kids[i], parts[i]);
}

// ---- statements

Interpreter::Flow Interpreter::run(const Body& body, Text* out) {
  for (const NodePtr& node : body)
    if (const Flow flow = run(*node, out); flow != Flow::kOn) return flow;
  return Flow::kOn;
}

Interpreter::Flow Interpreter::run_inside(const Body& body, Text* out) {
  const std::shared_ptr<Frame> outer = frame_;
  frame_ = std::make_shared<Frame>(outer);
  const Flow flow = run(body, out);
  frame_ = outer;
  return flow;
}

Interpreter::Flow Interpreter::run(const Node& node, Text* out) {
  const Level level(this);
  at_ = &node;
  const auto append = [&](const Text& text) {
    budget_.take_bytes(text.size());
    at_ = &node;
    out->append(text);
  };
  switch (node.kind) {
    case NodeKind::kText: append(node.constant.text()); return Flow::kOn;
    case NodeKind::kOutput: {
      const Value value = eval(*node.kids[0]);
      append(value.is_text() ? value.text() : str(value));
      return Flow::kOn;
    }
    case NodeKind::kFor: return run_loop(node, eval(*node.kids[1]), 0, out);
    case NodeKind::kIf: return run(is_true(eval(*node.kids[0])) ? node.body : node.otherwise, out);
    case NodeKind::kSet: assign(*node.kids[0], eval(*node.kids[1])); return Flow::kOn;
    case NodeKind::kWith: {
      std::vector<Value> values;
      for (std::size_t i = 1; i < node.kids.size(); i += 2) values.push_back(eval(*node.kids[i]));
      const std::shared_ptr<Frame> outer = frame_;
      frame_ = std::make_shared<Frame>(outer);
      for (std::size_t i = 0; i < values.size(); ++i) assign(*node.kids[2 * i], values[i]);
      const Flow flow = run(node.body, out);
      frame_ = outer;
      return flow;
    }
    case NodeKind::kSetBlock:
    case NodeKind::kFilterBlock: {
      Text text;
      if (const Flow flow = run_inside(node.body, &text); flow != Flow::kOn) return flow;
      Value value = std::move(text);
      for (std::size_t i = node.kind == NodeKind::kSetBlock ? 1 : 0; i < node.kids.size(); ++i)
        value = filtered(*node.kids[i], value);
      if (node.kind == NodeKind::kSetBlock) assign(*node.kids[0], value);
      else if (value.is_text()) append(value.text());
      else throw Refusal(fmt::format("a filter block whose last filter gives a {}", type_name(value)));
      return Flow::kOn;
    }
    case NodeKind::kMacro:
      macro_values_.push_back({&node, frame_});
      bind(*frame_, node.symbol, &std::as_const(macro_values_.back()));
      return Flow::kOn;
    case NodeKind::kCallBlock: {
      const Macro* const body = &macro_values_.emplace_back(node.kids[1].get(), frame_);
      const Node& called = *node.kids[0];
      const Value callee = eval_kid(called, 0);
      Arguments given = arguments(called);
      given.keywords.emplace_back("caller", body);
      const Value made = call(callee, given);
      if (!made.is_text()) throw Refusal(fmt::format("a call block whose call gives a {}", type_name(made)));
      append(made.text());
      return Flow::kOn;
    }
    case NodeKind::kGeneration: {
      Text text;
      run_inside(node.body, &text);
      for (char& mark : text.marks) mark = static_cast<char>(mark | kInGeneration);
      append(text);
      return Flow::kOn;
    }
    case NodeKind::kBreak: return Flow::kBreak;
    case NodeKind::kContinue: return Flow::kContinue;
    default: throw Refusal("this statement");
  }
}

// The next item that passes the loop's condition, which is asked when the item is wanted.
bool Interpreter::advance(Loop& loop, Value* item) {
  while (loop.next < loop.items.size()) {
    *item = loop.items[loop.next++];
    if (loop.condition == nullptr) return true;
    const std::shared_ptr<Frame> inner = std::exchange(frame_, std::make_shared<Frame>(loop.outer));
    assign(*loop.node->kids[0], *item);
    const bool passes = is_true(eval(*loop.condition));
    frame_ = inner;
    if (passes) return true;
  }
  return false;
}

Interpreter::Flow Interpreter::run_loop(const Node& node, const Value& iterable, std::int64_t depth0, Text* out) {
  at_ = &node;
  Loop& loop = loops_.emplace_back();
  loop.items = items(iterable);
  loop.node = &node, loop.condition = node.kids[2].get(), loop.depth0 = depth0;
  loop.outer = frame_;
  if (loop.condition == nullptr) loop.length = std::ssize(loop.items);
  bool was_completed =
      false;  // an iteration, which keeps Jinja from the else: one that a break or continue cuts short does not count
  Flow flow = Flow::kOn;
  for (Value item; flow != Flow::kBreak;) {
    if (loop.after) item = std::move(*loop.after), loop.after.reset();
    else if (!advance(loop, &item)) break;
    ++loop.index0;
    loop.before = std::exchange(loop.current, item);
    frame_ = std::make_shared<Frame>(loop.outer);
    bind(*frame_, node.symbol, &loop);
    assign(*node.kids[0], item);
    flow = run(node.body, out);
    was_completed = was_completed || flow == Flow::kOn;
    frame_ = loop.outer;
  }
  loop.items = {};
  return was_completed ? Flow::kOn : run_inside(node.otherwise, out);
}

// ---- expressions

Value Interpreter::eval(const Node& node) {
  const Level level(this);
  at_ = &node;
  const auto kid = [&](std::size_t i) { return eval_kid(node, i); };
  switch (node.kind) {
    case NodeKind::kConstant: return node.constant;
    case NodeKind::kName: {
      const Value* const value = look_up(node.symbol);
      return value != nullptr ? *value : undefined(fmt::format("{} is undefined", in_quotes(node.name)));
    }
    case NodeKind::kAttribute: return attribute_or_item(kid(0), node.name);
    case NodeKind::kItem: {
      const Value object = kid(0);
      return item(object, kid(1));
    }
    case NodeKind::kSlice: return slice(node);
    case NodeKind::kCall: {
      const Value callee = kid(0);
      return call(callee, arguments(node));
    }
    case NodeKind::kFilter: return filtered(node, kid(0));
    case NodeKind::kTest: {
      const Value value = kid(0);
      const Arguments given = arguments(node);
      if (node.tests.front() == nullptr) refuse_test(node.name);
      return node.tests.front()(*this, value, given);
    }
    case NodeKind::kNot: return !is_true(kid(0));
    case NodeKind::kAnd:
    case NodeKind::kOr: {
      Value left = kid(0);
      return is_true(left) == (node.kind == NodeKind::kOr) ? left : kid(1);
    }
    case NodeKind::kMinus:
    case NodeKind::kPlus: {
      const Value value = kid(0);
      if (!value.is_number()) arithmetic("-", std::int64_t{0}, value, &budget_);  // refuses it
      if (value.is(Kind::kFloat)) return node.kind == NodeKind::kMinus ? -value.number() : value.number();
      return arithmetic(node.kind == NodeKind::kMinus ? "-" : "+", std::int64_t{0}, value, &budget_);
    }
    case NodeKind::kBinary: {
      const Value left = kid(0);
      return arithmetic(node.name, left, kid(1), &budget_);
    }
    case NodeKind::kConcat: {
      Text out;
      for (std::size_t i = 0; i < node.kids.size(); ++i) {
        const Value value = kid(i);
        out.append(value.is_text() ? value.text() : str(value));
      }
      budget_.take_bytes(out.size());
      return out;
    }
    case NodeKind::kCompare: return compare(node);
    case NodeKind::kConditional:
      if (is_true(kid(0))) return kid(1);
      return node.kids[2] != nullptr ? kid(2)
                                     : undefined("the value of an if without else, whose condition is false, is undefined");
    case NodeKind::kList:
    case NodeKind::kTuple: {
      List list;
      if (node.kind == NodeKind::kTuple) list.type = List::Type::kTuple;
      for (std::size_t i = 0; i < node.kids.size(); ++i) list.items.push_back(kid(i));
      return list;
    }
    case NodeKind::kDict: {
      Dict dict;
      for (std::size_t i = 0; i < node.kids.size(); i += 2) {
        Value key = kid(i);
        dict.set(std::move(key), kid(i + 1), &budget_);
      }
      return dict;
    }
    default: throw Refusal("this expression");
  }
}

// Refusals that follow name the node's place.
Value Interpreter::eval_kid(const Node& node, std::size_t i) {
  Value value = eval(*node.kids[i]);
  at_ = &node;
  return value;
}

Value Interpreter::compare(const Node& node) {
  Value left = eval_kid(node, 0);
  for (std::size_t i = 0; i < node.tests.size(); ++i) {
    Arguments right{{eval_kid(node, i + 1)}, {}};
    if (node.tests[i](*this, left, right) == (node.words[i] == "not in")) return false;
    left = std::move(right.positional.front());
  }
  return true;
}

Value Interpreter::filtered(const Node& node, const Value& value) {
  const Arguments given = arguments(node);
  if (node.filter == nullptr) refuse_filter(node.name);
  return (*node.filter)(*this, value, given);
}

// The first of the kids is what is called.
Arguments Interpreter::arguments(const Node& node) {
  Arguments out;
  for (std::size_t i = 1; i < node.kids.size(); ++i) {
    if (node.kids[i]->kind != NodeKind::kUnpacked) out.positional.push_back(eval(*node.kids[i]));
    else std::ranges::copy(items(eval_kid(*node.kids[i], 0)), std::back_inserter(out.positional));
  }
  for (const auto& [name, value] : node.keywords) out.keywords.emplace_back(name, eval(*value));
  at_ = &node;
  return out;
}

}  // namespace trident::jinja

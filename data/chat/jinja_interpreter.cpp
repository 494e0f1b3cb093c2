#include "data/chat/jinja_interpreter.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/json_reader.h"
#include "data/chat/jinja_filters.h"
#include "data/chat/python_text.h"

namespace trident::jinja {
namespace {

using Kind = Value::Kind;

constexpr int kMaxDepth = 800;  // of calls of the interpreter in each other
constexpr int kMaxMacros = 100;
constexpr std::int64_t kMaxRange = 100'000;  // Jinja's

}  // namespace

std::vector<const Value*> Arguments::bind(std::string_view function, std::initializer_list<std::string_view> parameters,
                                          std::size_t num_required) const {
  if (positional.size() > parameters.size())
    throw Refusal(fmt::format("{} arguments for {}, which takes {}", positional.size(), function, parameters.size()));
  std::vector<const Value*> bound(parameters.size(), nullptr);
  for (std::size_t i = 0; i < positional.size(); ++i) bound[i] = &positional[i];
  for (const auto& [name, value] : keywords) {
    const auto place = static_cast<std::size_t>(std::ranges::find(parameters, name) - parameters.begin());
    if (name.empty() || place == parameters.size()) throw Refusal(fmt::format("the argument {} of {}", in_quotes(name), function));
    if (bound[place] != nullptr) throw Refusal(fmt::format("the argument {} of {} twice", in_quotes(name), function));
    bound[place] = &value;
  }
  for (std::size_t i = 0; i < num_required; ++i)
    if (bound[i] == nullptr) throw Refusal(fmt::format("{} with too few arguments", function));
  return bound;
}

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
  for (auto& [name, old] : frame.variables)
    if (name == symbol) return void(old = std::move(value));
  frame.variables.emplace_back(symbol, std::move(value));
}

const Value* Interpreter::look_up(int symbol) const {
  for (const Frame* frame = frame_.get(); frame != nullptr; frame = frame->outer.get())
    for (const auto& [name, value] : frame->variables)
      if (name == symbol) return &value;
  return nullptr;
}

void Interpreter::assign(const Node& target, const Value& value) {
  at_ = &target;
  if (target.kind == NodeKind::kName) return bind(*frame_, target.symbol, value);
  if (target.kind == NodeKind::kAttribute) {
    const Value* const object = look_up(target.kids[0]->symbol);
    if (object == nullptr || !object->is(Kind::kNamespace)) throw Refusal("an attribute is set of what is no namespace");
    if (target.name.starts_with('_')) throw Refusal("an attribute of a namespace that begins with _");
    auto& entries = object->name_space().entries;
    const auto old = std::ranges::find(entries, target.name, [](const auto& entry) { return entry.first; });
    if (old == entries.end()) entries.emplace_back(target.name, value);
    else old->second = value;
    return;
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
    case NodeKind::kFor: return run_loop(node, out);
    case NodeKind::kIf: return run(is_true(eval(*node.kids[0])) ? node.body : node.otherwise, out);
    case NodeKind::kSet: assign(*node.kids[0], eval(*node.kids[1])); return Flow::kOn;
    case NodeKind::kSetBlock:
    case NodeKind::kFilterBlock: {
      Text text;
      if (const Flow flow = run_inside(node.body, &text); flow != Flow::kOn) return flow;
      Value value = std::move(text);
      for (std::size_t i = node.kind == NodeKind::kSetBlock ? 1 : 0; i < node.kids.size(); ++i) value = filtered(*node.kids[i], value);
      if (node.kind == NodeKind::kSetBlock) assign(*node.kids[0], value);
      else append(str(value));
      return Flow::kOn;
    }
    case NodeKind::kMacro:
      macro_values_.push_back({&node, frame_});
      bind(*frame_, node.symbol, &std::as_const(macro_values_.back()));
      return Flow::kOn;
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
    assign(*loop.target, *item);
    const bool passes = is_true(eval(*loop.condition));
    frame_ = inner;
    if (passes) return true;
  }
  return false;
}

Interpreter::Flow Interpreter::run_loop(const Node& node, Text* out) {
  const Value iterable = eval(*node.kids[1]);
  at_ = &node;
  Loop& loop = loops_.emplace_back();
  loop.items = items(iterable);
  loop.target = node.kids[0].get(), loop.condition = node.kids[2].get();
  loop.outer = frame_;
  if (loop.condition == nullptr) loop.length = std::ssize(loop.items);
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
    frame_ = loop.outer;
  }
  loop.items = {};
  return loop.index0 < 0 ? run_inside(node.otherwise, out) : Flow::kOn;
}

// ---- expressions

Value Interpreter::eval(const Node& node) {
  const Level level(this);
  at_ = &node;
  const auto kid = [&](std::size_t i) { return eval(*node.kids[i]); };
  switch (node.kind) {
    case NodeKind::kConstant: return node.constant;
    case NodeKind::kName: {
      const Value* const value = look_up(node.symbol);
      return value != nullptr ? *value : undefined(fmt::format("{} is undefined", in_quotes(node.name)));
    }
    case NodeKind::kAttribute: {
      const Value object = kid(0);
      at_ = &node;
      return attribute_or_item(object, node.name);
    }
    case NodeKind::kItem: {
      const Value object = kid(0), key = kid(1);
      at_ = &node;
      return item(object, key);
    }
    case NodeKind::kSlice: return slice(node);
    case NodeKind::kCall: {
      const Value callee = kid(0);
      const Arguments all = arguments(node);
      at_ = &node;
      return call(callee, all);
    }
    case NodeKind::kFilter: return filtered(node, kid(0));
    case NodeKind::kTest: {
      const Value value = kid(0);
      const Arguments all = arguments(node);
      at_ = &node;
      return node.test(*this, value, all);
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
      at_ = &node;
      if (!value.is_number()) arithmetic("-", std::int64_t{0}, value, &budget_);  // refuses it
      if (value.is(Kind::kFloat)) return node.kind == NodeKind::kMinus ? -value.number() : value.number();
      return arithmetic(node.kind == NodeKind::kMinus ? "-" : "+", std::int64_t{0}, value, &budget_);
    }
    case NodeKind::kBinary: {
      const Value left = kid(0), right = kid(1);
      at_ = &node;
      return arithmetic(node.name, left, right, &budget_);
    }
    case NodeKind::kConcat: {
      Text out;
      for (std::size_t i = 0; i < node.kids.size(); ++i) {
        const Value value = kid(i);
        at_ = &node;
        out.append(value.is_text() ? value.text() : str(value));
      }
      budget_.take_bytes(out.size());
      return out;
    }
    case NodeKind::kCompare: return compare(node);
    case NodeKind::kConditional:
      if (is_true(kid(0))) return kid(1);
      return node.kids[2] != nullptr ? kid(2) : undefined("the value of an if without else, whose condition is false, is undefined");
    case NodeKind::kList:
    case NodeKind::kTuple: {
      List list;
      if (node.kind == NodeKind::kTuple) list.type = List::Type::kTuple;
      for (std::size_t i = 0; i < node.kids.size(); ++i) list.items.push_back(kid(i));
      at_ = &node;
      return list;
    }
    case NodeKind::kDict: {
      Dict dict;
      for (std::size_t i = 0; i < node.kids.size(); i += 2) {
        Value key = kid(i);
        Value value = kid(i + 1);
        at_ = &node;
        dict.set(std::move(key), std::move(value));
      }
      return dict;
    }
    default: throw Refusal("this expression");
  }
}

Value Interpreter::compare(const Node& node) {
  Value left = eval(*node.kids[0]);
  for (std::size_t i = 0; i < node.words.size(); ++i) {
    const std::string& word = node.words[i];
    Value right = eval(*node.kids[i + 1]);
    at_ = &node;
    bool holds = false;
    if (word == "==") holds = is_equal(left, right, &budget_);
    else if (word == "!=") holds = !is_equal(left, right, &budget_);
    else if (word == "<") holds = is_less(left, right, &budget_);
    else if (word == ">") holds = is_less(right, left, &budget_);
    else if (word == "in" || word == "not in") holds = contains(right, left) == (word == "in");
    else {  // a NaN is neither
      const bool is_swapped = word == ">=";
      holds = is_less(is_swapped ? right : left, is_swapped ? left : right, &budget_) || is_equal(left, right, &budget_);
    }
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::filtered(const Node& node, const Value& value) {
  const Arguments all = arguments(node);
  at_ = &node;
  return node.filter(*this, value, all);
}

// The first of the kids is what is called.
Arguments Interpreter::arguments(const Node& node) {
  Arguments out;
  for (std::size_t i = 1; i < node.kids.size(); ++i) out.positional.push_back(eval(*node.kids[i]));
  for (const auto& [name, value] : node.keywords) out.keywords.emplace_back(name, eval(*value));
  return out;
}

bool Interpreter::contains(const Value& collection, const Value& value) {
  if (collection.is_text()) {
    if (!value.is_text()) throw Refusal(fmt::format("in a str can be a str, not a {}", type_name(value)));
    budget_.take_bytes(collection.text().size() + value.text().size());
    return find_text(collection.text().bytes, value.text().bytes) != std::string_view::npos;
  }
  if (collection.is_dict()) {
    budget_.take(collection.dict().entries.size() >> 3);
    if (value.is_list() || value.is_dict()) throw Refusal(fmt::format("a {} as the key of a dict", type_name(value)));
    return collection.dict().find(value) != nullptr;
  }
  return std::ranges::any_of(items(collection), [&](const Value& it) { return is_equal(it, value, &budget_); });
}

std::size_t Interpreter::length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_text()) return budget_.take_bytes(value.text().size()), count_code_points(value.text().bytes);
  if (value.is_dict()) return value.dict().entries.size();
  if (value.is_list() && value.list().type != List::Type::kIterator) return value.list().items.size();
  throw Refusal(fmt::format("the length of a {}", type_name(value)));
}

std::vector<Value> Interpreter::items(const Value& value) {
  std::vector<Value> out;
  if (value.is_undefined()) return out;
  if (value.is_list()) {
    if (value.list().type == List::Type::kIterator && std::exchange(value.list().used, true))
      throw Refusal("an iterator is gone through twice; make it a list by |list");
    budget_.take(value.list().items.size());
    return value.list().items;
  }
  if (value.is_dict()) {
    budget_.take(value.dict().entries.size());
    for (const auto& entry : value.dict().entries) out.push_back(entry.first);
    return out;
  }
  if (!value.is_text()) throw Refusal(fmt::format("a loop over a {}", type_name(value)));
  const Text& text = value.text();
  budget_.take(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = place_of_code_point(std::string_view(text.bytes).substr(at), 1);
    out.emplace_back(text.part(at, at + size));
    at += size;
  }
  return out;
}

// ---- attributes and items

// What Python's getattr finds and Jinja's sandbox shows, or Undefined.
Value Interpreter::attribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) throw Refusal(*object.undefined().hint);
  if (object.is(Kind::kNamespace)) {
    for (const auto& [key, value] : object.name_space().entries)
      if (key == name) return value;
  }
  if (object.is(Kind::kLoop)) return loop_attribute(object.loop(), name);
  if (changes_its_object(object, name))
    return undefined(fmt::format("{}() would change a {}, as Hugging Face does not let templates do", name, type_name(object)));
  if (has_method(object, name)) return Method{object, name};
  return undefined(fmt::format("{}, which a {} does not have, is undefined", in_quotes(name), type_name(object)));
}

Value Interpreter::attribute_or_item(const Value& object, const std::string& name) {
  Value found = attribute(object, name);
  if (!found.is_undefined() || !object.is_dict() || changes_its_object(object, name)) return found;
  const Value* const value = object.dict().named(name);
  return value != nullptr ? *value : found;
}

Value Interpreter::item(const Value& object, const Value& key) {
  if (object.is_undefined()) throw Refusal(*object.undefined().hint);
  if (object.is_dict()) {
    if (const Value* const value = object.dict().find(key)) return *value;
  }
  const bool is_sequence = object.is_text() || (object.is_list() && object.list().type <= List::Type::kRange);
  if (is_sequence && key.is_whole()) {
    const auto size = static_cast<std::int64_t>(length(object));
    const std::int64_t at = key.whole() < 0 ? key.whole() + size : key.whole();
    if (at < 0 || at >= size) return undefined(fmt::format("item {} of {} is undefined", key.whole(), size));
    if (object.is_list()) return object.list().items[static_cast<std::size_t>(at)];
    budget_.take_bytes(object.text().size());
    return jinja::slice(object.text(), at, at + 1, 1);
  }
  if (key.is_text()) return attribute(object, key.text().bytes);
  return undefined(fmt::format("an item that a {} does not have is undefined", type_name(object)));
}

Value Interpreter::path(Value object, const Value& path) {
  if (!path.is_text()) return item(object, path);
  for (const Text& part : split(path.text(), std::make_unique<Text>(".").get(), -1)) {
    const bool is_number = part.size() > 0 && part.size() < 10 && part.bytes.find_first_not_of("0123456789") == std::string::npos;
    object = item(object, is_number ? Value(std::int64_t{std::stoi(part.bytes)}) : Value(part));
  }
  return object;
}

Value Interpreter::slice(const Node& node) {
  const Value object = eval(*node.kids[0]);
  std::array<std::optional<std::int64_t>, 3> bounds;
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    if (node.kids[i + 1] == nullptr) continue;
    const Value bound = eval(*node.kids[i + 1]);
    at_ = &node;
    if (bound.is_undefined()) throw Refusal(*bound.undefined().hint);
    if (!bound.is_whole() && !bound.is_none()) throw Refusal(fmt::format("a slice by a {}", type_name(bound)));
    if (bound.is_whole()) bounds[i] = bound.whole();
  }
  at_ = &node;
  const std::int64_t step = bounds[2].value_or(1);
  if (object.is_text()) {
    if (step == 1) budget_.take_bytes(object.text().size());
    else budget_.take(object.text().size());
    return jinja::slice(object.text(), bounds[0], bounds[1], step);
  }
  if (!object.is_list() || object.list().type > List::Type::kTuple) {
    if (object.is_undefined()) throw Refusal(*object.undefined().hint);
    throw Refusal(fmt::format("a slice of a {}", type_name(object)));
  }
  const SliceBounds taken = slice_bounds(object.list().items.size(), bounds[0], bounds[1], step);
  budget_.take(static_cast<std::size_t>(taken.count));
  List out{.type = object.list().type};
  for (std::int64_t i = 0; i < taken.count; ++i) out.items.push_back(object.list().items[static_cast<std::size_t>(taken.first + i * taken.step)]);
  return out;
}

Value Interpreter::loop_attribute(Loop& loop, std::string_view name) {
  const auto peek = [&] {
    if (Value item; !loop.after && advance(loop, &item)) loop.after = item;
    return loop.after.has_value();
  };
  if (name == "index0") return loop.index0;
  if (name == "index") return loop.index0 + 1;
  if (name == "first") return loop.index0 == 0;
  if (name == "last") return !peek();
  if (name == "previtem") return loop.index0 > 0 ? loop.before : undefined("there is no previous item");
  if (name == "nextitem") return peek() ? *loop.after : undefined("there is no next item");
  if (name == "cycle") return Method{&loop, "cycle"};
  if (name == "length" || name == "revindex" || name == "revindex0") {
    if (!loop.length) {
      std::vector<Value> rest;
      for (Value item; advance(loop, &item);) rest.push_back(item);
      loop.length = std::ssize(rest) + loop.index0 + (loop.after ? 2 : 1);
      loop.items = std::move(rest), loop.next = 0, loop.condition = nullptr;
    }
    return *loop.length - (name == "length" ? 0 : name == "revindex" ? loop.index0 : loop.index0 + 1);
  }
  if (name == "depth" || name == "depth0" || name == "changed") throw Refusal(fmt::format("loop.{}", name));
  return undefined(fmt::format("loop.{} is undefined", name));
}

// ---- calls

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  switch (callee.kind()) {
    case Kind::kFunction: return call_function(callee.function(), arguments);
    case Kind::kMacro: return call_macro(callee.macro(), arguments);
    case Kind::kMethod: return call_method(*this, callee.method(), arguments);
    case Kind::kUndefined: throw Refusal(*callee.undefined().hint);
    default: throw Refusal(fmt::format("a call of a {}", type_name(callee)));
  }
}

Value Interpreter::call_macro(const Macro& macro, const Arguments& arguments) {
  const Node& node = *macro.node;
  if (macros_ >= kMaxMacros) throw Refusal(fmt::format("macros more than {} deep in each other", kMaxMacros));
  if (arguments.positional.size() > node.symbols.size())
    throw Refusal(fmt::format("{} arguments for the macro {}, which takes {}", arguments.positional.size(), node.name,
                              node.symbols.size()));
  const auto frame = std::make_shared<Frame>(macro.frame);
  for (const auto& [name, value] : arguments.keywords) {
    const auto place = static_cast<std::size_t>(std::ranges::find(node.words, name) - node.words.begin());
    if (place == node.words.size() || place < arguments.positional.size())
      throw Refusal(fmt::format("the argument {} of the macro {}", in_quotes(name), node.name));
    bind(*frame, node.symbols[place], value);
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) bind(*frame, node.symbols[i], arguments.positional[i]);
  const std::shared_ptr<Frame> caller = std::exchange(frame_, frame);
  ++macros_;
  const std::size_t first_default = node.symbols.size() - node.kids.size();
  for (std::size_t i = arguments.positional.size(); i < node.symbols.size(); ++i) {
    if (std::ranges::any_of(frame->variables, [&](const auto& it) { return it.first == node.symbols[i]; })) continue;
    bind(*frame, node.symbols[i],
         i >= first_default ? eval(*node.kids[i - first_default])
                            : undefined(fmt::format("the parameter {} was not given", in_quotes(node.words[i]))));
  }
  Text out;
  run(node.body, &out);
  --macros_;
  frame_ = caller;
  return out;
}

Value Interpreter::call_function(Function function, const Arguments& arguments) {
  switch (function) {
    case Function::kRange: {
      const auto bound = arguments.bind("range", {"", "", ""}, 1);
      std::array<std::int64_t, 3> at{0, 0, 1};
      for (std::size_t i = 0; i < bound.size() && bound[i] != nullptr; ++i) {
        if (!bound[i]->is_whole()) throw Refusal(fmt::format("range() of a {}", type_name(*bound[i])));
        at[i] = bound[i]->whole();
      }
      if (bound[1] == nullptr) std::swap(at[0], at[1]);
      const auto [first, end, step] = at;
      if (step == 0) throw Refusal("range() with step 0");
      List out{.type = List::Type::kRange};
      for (std::int64_t i = first; step < 0 ? i > end : i < end;) {
        budget_.take();
        if (std::ssize(out.items) == kMaxRange) throw Refusal(fmt::format("range() of more than {} numbers", kMaxRange));
        out.items.emplace_back(i);
        if (__builtin_add_overflow(i, step, &i)) break;
      }
      return out;
    }
    case Function::kNamespace: {
      Namespace& out = namespaces_.emplace_back();
      if (arguments.positional.size() > 1 || (arguments.positional.size() == 1 && !arguments.positional[0].is_dict()))
        throw Refusal("namespace() of something that is no dict");
      Dict all;
      if (!arguments.positional.empty()) all = arguments.positional[0].dict();
      for (const auto& [name, value] : arguments.keywords) all.set(Text(name), value);
      for (const auto& [name, value] : all.entries) {
        if (!name.is_text() || name.text().bytes.starts_with('_')) throw Refusal("an attribute of a namespace that begins with _");
        out.entries.emplace_back(name.text().bytes, value);
      }
      return &out;
    }
    case Function::kDict: {
      const auto& given = arguments.positional;
      if (given.size() > 1 || (given.size() == 1 && !given[0].is_dict())) throw Refusal("dict() of something that is no dict");
      Dict out;
      if (!given.empty()) out = given[0].dict();
      for (const auto& [name, value] : arguments.keywords) out.set(Text(name), value);
      return out;
    }
    case Function::kRaiseException: {
      const auto bound = arguments.bind("raise_exception", {"message"}, 1);
      throw Refusal(fmt::format("the template refuses these messages: {}", in_quotes(str(*bound[0]).bytes, 400)));
    }
    case Function::kStrftimeNow: break;
  }
  const auto bound = arguments.bind("strftime_now", {"format"}, 1);
  if (!bound[0]->is_text()) throw Refusal("a format of time that is no text");
  if (!now_) throw Refusal("the template writes the date of today; say which by --now YYYY-MM-DD");
  const std::string& format = bound[0]->text().bytes;
  for (std::size_t at = 0; (at = format.find('%', at)) != std::string::npos; at += 2) {
    if (at + 1 < format.size() && format[at + 1] == '-') ++at;
    if (at + 1 == format.size() || std::string_view("aAbBcdDeFgGhHIjmMnprRStTuUVwWxXyY%").find(format[at + 1]) == std::string_view::npos)
      throw Refusal(fmt::format("the format of time {}", in_quotes(format)));
  }
  std::string out(format.size() * 16 + 64, '\0');
  out.resize(format.size() > 4096 ? 0 : std::strftime(out.data(), out.size(), format.c_str(), &*now_));
  return Text(out);
}

}  // namespace trident::jinja

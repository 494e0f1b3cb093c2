// Attributes, items and calls.
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "core/json_reader.h"
#include "data/chat/jinja_filters.h"
#include "data/chat/jinja_interpreter.h"
#include "data/chat/python_text.h"

namespace trident::jinja {
namespace {

using Kind = Value::Kind;

constexpr int kMaxMacros = 100;
constexpr std::int64_t kMaxRange = 100'000;  // Jinja's

}  // namespace

std::vector<const Value*> Arguments::bind(std::string_view function, std::span<const std::string_view> parameters,
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

Dict Arguments::as_dict(std::string_view function, Budget* budget) const {
  if (positional.size() > 1 || (positional.size() == 1 && !positional[0].is_dict()))
    throw Refusal(fmt::format("{}() of something that is no dict", function));
  if (!positional.empty()) budget->take(2 * positional[0].dict().entries.size());
  Dict out = positional.empty() ? Dict() : positional[0].dict();
  for (const auto& [name, value] : keywords) out.set(Text(name), value);
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
    return collection.dict().find(value, &budget_) != nullptr;
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

// Returns the attribute that Python's getattr finds and Jinja's sandbox shows, or Undefined.
Value Interpreter::attribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) throw Refusal(*object.undefined().hint);
  if (object.is(Kind::kNamespace)) {
    if (const Value* const value = object.name_space().entries.named(name)) return *value;
  }
  if (object.is(Kind::kMacro) || object.is(Kind::kFunction))
    throw Refusal(fmt::format("the attribute {} of a {}", in_quotes(name), type_name(object)));
  if (object.is_list() && object.list().is_group && (name == "grouper" || name == "list"))
    return object.list().items[name == "list"];
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
    if (const Value* const value = object.dict().find(key, &budget_)) return *value;
  }
  const bool is_sequence = object.is_text() || (object.is_list() && object.list().type <= List::Type::kRange);
  if (is_sequence && key.is_whole()) {
    const auto size = static_cast<std::int64_t>(length(object));
    const std::int64_t at = key.whole() < 0 ? key.whole() + size : key.whole();
    if (at < 0 || at >= size) return undefined(fmt::format("item {} of {} is undefined", key.whole(), size));
    if (object.is_list()) return object.list().items[static_cast<std::size_t>(at)];
    budget_.take_bytes(object.text().size());
    Text out = jinja::slice(object.text(), at, at + 1, 1);
    out.marked_safe = object.text().marked_safe;
    return out;
  }
  if (key.is_text()) return attribute(object, key.text().bytes);
  return undefined(fmt::format("an item that a {} does not have is undefined", type_name(object)));
}

Value Interpreter::path(Value object, const Value& path) {
  if (!path.is_text()) return item(object, path);
  const Text dot(".");
  budget_.take_bytes(path.text().size());
  for (const Text& part : split(path.text(), &dot, -1, &budget_)) {
    const bool is_number = part.size() > 0 && part.size() < 10 && part.bytes.find_first_not_of("0123456789") == std::string::npos;
    object = item(object, is_number ? Value(std::int64_t{std::stoi(part.bytes)}) : Value(part));
  }
  return object;
}

Value Interpreter::slice(const Node& node) {
  const Value object = eval_kid(node, 0);
  std::array<std::optional<std::int64_t>, 3> bounds;
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    if (node.kids[i + 1] == nullptr) continue;
    const Value bound = eval_kid(node, i + 1);
    if (bound.is_undefined()) throw Refusal(*bound.undefined().hint);
    if (!bound.is_whole() && !bound.is_none()) throw Refusal(fmt::format("a slice by a {}", type_name(bound)));
    if (bound.is_whole()) bounds[i] = bound.whole();
  }
  const std::int64_t step = bounds[2].value_or(1);
  if (object.is_text()) {
    if (step == 1) budget_.take_bytes(object.text().size());
    else budget_.take(object.text().size());
    Text out = jinja::slice(object.text(), bounds[0], bounds[1], step);
    out.marked_safe = object.text().marked_safe;
    return out;
  }
  if (!object.is_list() || object.list().type > List::Type::kTuple) {
    if (object.is_undefined()) throw Refusal(*object.undefined().hint);
    throw Refusal(fmt::format("a slice of a {}", type_name(object)));
  }
  const SliceBounds taken = slice_bounds(object.list().items.size(), bounds[0], bounds[1], step);
  budget_.take(static_cast<std::size_t>(taken.count));
  List out{.type = object.list().type};
  for (std::int64_t i = 0; i < taken.count; ++i)
    out.items.push_back(object.list().items[static_cast<std::size_t>(taken.first + i * taken.step)]);
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
  if (name == "depth0") return loop.depth0;
  if (name == "depth") return loop.depth0 + 1;
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
  if (name == "changed") throw Refusal("loop.changed");
  return undefined(fmt::format("loop.{} is undefined", name));
}

// ---- calls

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  switch (callee.kind()) {
    case Kind::kFunction: return call_function(callee.function(), arguments);
    case Kind::kMacro: return call_macro(callee.macro(), arguments);
    case Kind::kLoop: {
      const Loop& loop = callee.loop();
      if (loop.node->name.empty()) throw Refusal("a call of a loop that is not recursive");
      if (++macros_ > kMaxMacros) throw Refusal(fmt::format("loops more than {} deep in each other", kMaxMacros));
      const std::shared_ptr<Frame> caller = std::exchange(frame_, loop.outer);
      Text out;
      run_loop(*loop.node, *arguments.bind("loop", {"iterable"}, 1)[0], loop.depth0 + 1, &out);
      frame_ = caller, --macros_;
      return out;
    }
    case Kind::kMethod: return call_method(*this, callee.method(), arguments);
    case Kind::kUndefined: throw Refusal(*callee.undefined().hint);
    default: throw Refusal(fmt::format("a call of a {}", type_name(callee)));
  }
}

Value Interpreter::call_macro(const Macro& macro, const Arguments& arguments) {
  const Node& node = *macro.node;
  if (macros_ >= kMaxMacros) throw Refusal(fmt::format("macros more than {} deep in each other", kMaxMacros));
  const auto frame = std::make_shared<Frame>(macro.frame);
  std::vector<std::string_view> parameters(node.words.begin(), node.words.end());
  if (node.symbols.size() > parameters.size() && arguments.positional.size() <= parameters.size())
    parameters.emplace_back("caller");
  const auto given = arguments.bind(fmt::format("the macro {}", node.name), parameters);
  for (std::size_t i = 0; i < given.size(); ++i)
    if (given[i] != nullptr) bind(*frame, node.symbols[i], *given[i]);
  const std::shared_ptr<Frame> caller = std::exchange(frame_, frame);
  ++macros_;
  const std::size_t first_default = node.words.size() - node.kids.size();
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i] != nullptr) continue;
    bind(*frame, node.symbols[i],
         i >= first_default && i < node.words.size()
             ? eval(*node.kids[i - first_default])
             : undefined(fmt::format("the parameter {} was not given", in_quotes(parameters[i]))));
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
      Namespace& out = namespaces_.emplace_back(arguments.as_dict("namespace", &budget_));
      for (const auto& [name, value] : out.entries.entries)
        if (!name.is_text() || name.text().bytes.starts_with('_')) throw Refusal("an attribute of a namespace that begins with _");
      return &out;
    }
    case Function::kDict: return arguments.as_dict("dict", &budget_);
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
    if (at + 1 == format.size() ||
        std::string_view("aAbBcdDeFgGhHIjmMnprRStTuUVwWxXyY%").find(format[at + 1]) == std::string_view::npos)
      throw Refusal(fmt::format("the format of time {}", in_quotes(format)));
  }
  std::string out(format.size() * 16 + 64, '\0');
  out.resize(format.size() > 4096 ? 0 : std::strftime(out.data(), out.size(), format.c_str(), &*now_));
  return Text(out);
}

}  // namespace trident::jinja

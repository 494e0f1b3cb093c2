// Renders a template's tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <deque>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/jinja_parser.h"
#include "data/chat/value.h"

namespace trident::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;

  // By the names of a function's parameters; "": one that has no name for callers. nullptr: not given. Refuses others, and fewer
  // than `num_required`.
  std::vector<const Value*> bind(std::string_view function, std::span<const std::string_view> parameters,
                                 std::size_t num_required = 0) const;
  std::vector<const Value*> bind(std::string_view function, std::initializer_list<std::string_view> parameters,
                                 std::size_t num_required = 0) const {
    return bind(function, std::span(parameters.begin(), parameters.size()), num_required);
  }
  Dict as_dict(std::string_view function, Budget* budget) const;  // of dict() and namespace(): a dict, and names with their values
};

// The variables of a scope, and where it lies.
struct Frame {
  explicit Frame(std::shared_ptr<Frame> outside = nullptr) : outer(std::move(outside)) {}
  std::shared_ptr<Frame> outer;
  std::vector<std::pair<int, Value>> variables;
};

struct Macro {
  const Node* node;
  std::shared_ptr<Frame> frame;
};

struct Loop {
  std::vector<Value> items;  // those from `next` on are still to come
  std::size_t next = 0;
  const Node* node = nullptr;
  const Node* condition = nullptr;  // that items must pass
  std::shared_ptr<Frame> outer;
  std::int64_t index0 = -1, depth0 = 0;
  std::optional<std::int64_t> length;
  Value current, before;
  std::optional<Value> after;  // that `last` or `nextitem` looked for
};

Value undefined(std::string hint);

class Interpreter {
 public:
  Interpreter(const Program& program, const std::optional<std::tm>& now);

  void set(std::string_view name, Value value);
  // Throws DataError with the place.
  Text run();

  // For filters and tests.
  Budget* budget() { return &budget_; }
  Text str(const Value& value) { return jinja::str(value, &budget_); }
  std::vector<Value> items(const Value& value);             // iter(): refuses what has none
  Value item(const Value& object, const Value& key);        // object[key]
  Value path(Value object, const Value& path);              // "a.b.0", as filters take attributes
  std::size_t length(const Value& value);                   // len()
  bool contains(const Value& collection, const Value& value);

 private:
  enum class Flow : std::uint8_t { kOn, kBreak, kContinue };
  class Level;

  Value eval(const Node& node);
  Value eval_kid(const Node& node, std::size_t i);
  Value compare(const Node& node);
  Value attribute(const Value& object, const std::string& name);
  Value attribute_or_item(const Value& object, const std::string& name);
  Value slice(const Node& node);
  Value filtered(const Node& node, const Value& value);
  Arguments arguments(const Node& node);
  Value call(const Value& callee, const Arguments& arguments);
  Value call_function(Function function, const Arguments& arguments);
  Value call_macro(const Macro& macro, const Arguments& arguments);
  Value loop_attribute(Loop& loop, std::string_view name);
  bool advance(Loop& loop, Value* item);

  Flow run(const Body& body, Text* out);
  Flow run(const Node& node, Text* out);
  Flow run_loop(const Node& node, const Value& iterable, std::int64_t depth0, Text* out);
  // In a frame of its own.
  Flow run_inside(const Body& body, Text* out);
  void assign(const Node& target, const Value& value);
  void bind(Frame& frame, int symbol, Value value);
  const Value* look_up(int symbol);

  const Program& program_;
  const std::optional<std::tm> now_;
  Budget budget_;
  const Node* at_ = nullptr;  // for messages
  int depth_ = 0, macros_ = 0;
  std::shared_ptr<Frame> frame_;
  std::deque<Namespace> namespaces_;
  std::deque<Macro> macro_values_;
  std::deque<Loop> loops_;
};

}  // namespace trident::jinja

// Expressions of a chat template have these values: Python's None, bool, int (64 bits; beyond them digits alone), float, str, list,
// tuple and dict, Jinja's Undefined, and what can only be called or asked for attributes.
//
// Texts carry a mark for each byte, which stays with it wherever it is copied. Values are immutable but for namespaces and loops.
// Those, macros and frames belong to the interpreter and are pointed at, so that no value owns another in a circle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/json_reader.h"

namespace trident::jinja {

// A Refusal says the fault of a template or its input, without the place: the parser and the interpreter add that and throw
// DataError.
class Refusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Bits of a mark; no bit: the template wrote it.
inline constexpr char kFromMessage = 1, kInGeneration = 2;

// Steps that a rendering may take yet; a step is some tens of nanoseconds of work, or 256 bytes of text.
class Budget {
 public:
  void take(std::size_t steps = 1) {
    if (steps > left_) throw Refusal("more than 10^6 steps");
    left_ -= steps;
  }
  void take_bytes(std::size_t bytes) { take(bytes >> 8); }
  std::size_t taken() const { return kAll - left_; }

 private:
  static constexpr std::size_t kAll = 1'000'000;
  std::size_t left_ = kAll;
};

inline constexpr std::size_t kMaxText = std::size_t{64} << 20;
inline constexpr int kMaxNesting = 200;  // of lists and dicts in each other

struct Text {
  std::string bytes;           // UTF-8
  std::string marks;           // one for each byte
  bool marked_safe = false;    // Jinja's Markup: `+` would escape what it is joined with

  Text() = default;
  explicit Text(std::string_view text, char mark = 0) : bytes(text), marks(text.size(), mark) {}
  std::size_t size() const { return bytes.size(); }
  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, std::size_t begin, std::size_t end) {
    check(end - begin);
    bytes.append(other.bytes, begin, end - begin), marks.append(other.marks, begin, end - begin);
  }
  void append(std::string_view text, char mark = 0) {
    check(text.size());
    bytes.append(text), marks.append(text.size(), mark);
  }
  Text part(std::size_t begin, std::size_t end) const {
    Text out;
    out.append(*this, begin, end);
    return out;
  }

 private:
  void check(std::size_t more) const {
    if (more > kMaxText - bytes.size()) throw Refusal("a text of more than 64 MiB");
  }
};

struct List;
struct Dict;
struct Namespace;
struct Macro;
struct Loop;
struct Method;
enum class Function : std::uint8_t { kRange, kNamespace, kDict, kRaiseException, kStrftimeNow };

struct Undefined {
  std::shared_ptr<const std::string> hint;  // "'x' is undefined"
};

class Value {
 public:
  enum class Kind : std::uint8_t {
    kNone, kUndefined, kBool, kInteger, kFloat, kLarge, kText, kList, kDict, kNamespace, kMacro, kLoop, kFunction, kMethod
  };

  Value() : data_(nullptr) {}  // None
  Value(Undefined value) : data_(std::move(value)) {}
  Value(bool value) : data_(value) {}
  Value(std::int64_t value) : data_(value) {}
  Value(std::size_t value) : data_(static_cast<std::int64_t>(value)) {}
  Value(double value) : data_(value) {}
  Value(JsonValue::LargeInteger value);  // which is only written and compared
  Value(Text value) : data_(std::make_shared<const Text>(std::move(value))) {}
  Value(List value);  // refuses kMaxNesting
  Value(Dict value);
  Value(Namespace* value) : data_(value) {}
  Value(const Macro* value) : data_(value) {}
  Value(Loop* value) : data_(value) {}
  Value(Function value) : data_(value) {}
  Value(Method value);
  Value(const char*) = delete;

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is(Kind kind) const { return this->kind() == kind; }
  bool is_undefined() const { return is(Kind::kUndefined); }
  bool is_none() const { return is(Kind::kNone); }
  bool is_text() const { return is(Kind::kText); }
  bool is_list() const { return is(Kind::kList); }
  bool is_dict() const { return is(Kind::kDict); }
  bool is_whole() const { return is(Kind::kInteger) || is(Kind::kBool); }  // what Python takes as an int
  bool is_number() const { return is_whole() || is(Kind::kFloat); }

  const Undefined& undefined() const { return std::get<Undefined>(data_); }
  bool boolean() const { return std::get<bool>(data_); }
  std::int64_t whole() const { return is(Kind::kBool) ? std::int64_t{boolean()} : std::get<std::int64_t>(data_); }
  double number() const { return is(Kind::kFloat) ? std::get<double>(data_) : static_cast<double>(whole()); }
  const std::string& digits() const { return std::get<std::shared_ptr<const JsonValue::LargeInteger>>(data_)->digits; }
  const Text& text() const { return *std::get<std::shared_ptr<const Text>>(data_); }
  const List& list() const { return *std::get<std::shared_ptr<const List>>(data_); }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  Namespace& name_space() const { return *std::get<Namespace*>(data_); }
  const Macro& macro() const { return *std::get<const Macro*>(data_); }
  Loop& loop() const { return *std::get<Loop*>(data_); }
  Function function() const { return std::get<Function>(data_); }
  const Method& method() const { return *std::get<std::shared_ptr<const Method>>(data_); }

 private:
  std::variant<std::nullptr_t, Undefined, bool, std::int64_t, double, std::shared_ptr<const JsonValue::LargeInteger>,
               std::shared_ptr<const Text>, std::shared_ptr<const List>, std::shared_ptr<const Dict>, Namespace*, const Macro*,
               Loop*, Function, std::shared_ptr<const Method>>
      data_;
};

struct List {
  // kIterator: Python's generators and iterators, which have neither length nor items and can be gone through once.
  enum class Type : std::uint8_t { kList, kTuple, kRange, kView, kIterator };
  Type type = Type::kList;
  std::vector<Value> items = {};
  int nesting = 0;            // of its items
  mutable bool used = false;  // an iterator that was gone through
  bool is_group = false;      // a tuple whose items are grouper and list, too
};

struct Dict {
  std::vector<std::pair<Value, Value>> entries;  // in the order in which they came; keys are equal to no other
  int nesting = 0;

  // nullptr: not there, or a key that no dict can have. A text costs as much as it is long.
  const Value* find(const Value& key, Budget* budget) const;
  const Value* named(std::string_view key) const;  // find of a text that is no value
  // Refuses a key that has no hash in Python, or that this part of Jinja does not know. No budget: for keys that no template makes.
  void set(Value key, Value value, Budget* budget = nullptr);

 private:
  std::map<std::string, std::size_t> places_;  // by what Python would hash
};

struct Namespace {
  Dict entries;
};

struct Method {
  Value receiver;
  std::string name;
};

// Python's bool(), == and <, and type(value).__name__. is_less refuses what Python does.
bool is_true(const Value& value);
bool is_equal(const Value& a, const Value& b, Budget* budget);
bool is_less(const Value& a, const Value& b, Budget* budget);
std::string_view type_name(const Value& value);

// Python's str() and repr(), which keep the marks of texts, and json.dumps as Hugging Face's tojson calls it. What Python would
// show by its address is refused.
Text str(const Value& value, Budget* budget);
Text repr(const Value& value, Budget* budget);
struct JsonStyle {
  bool ascii = false, sorted = false, lines = false;
  Text indent = {}, item_separator{", "}, key_separator{": "};
};
Text json_text(const Value& value, const JsonStyle& style, Budget* budget);

// + - * / // % **, as Python has them, within 64 bits.
Value arithmetic(std::string_view operation, const Value& a, const Value& b, Budget* budget);

// Texts of `value` get `mark`.
Value from_json(const JsonValue& value, char mark);

}  // namespace trident::jinja

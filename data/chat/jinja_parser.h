// Jinja templates as trees. Statements that this part of Jinja does not have are refused here, by name, wherever they stand;
// filters and tests, as by Jinja, where they are asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/jinja_lexer.h"
#include "data/chat/value.h"

namespace trident::jinja {

class Interpreter;
struct Arguments;
struct NamedFilter;
using Filter = const NamedFilter*;
using Test = bool (*)(Interpreter&, const Value& value, const Arguments& arguments);

struct Node;
using NodePtr = std::unique_ptr<Node>;
using Body = std::vector<NodePtr>;

enum class NodeKind : std::uint8_t {
  // Expressions; what `kids` are.
  kConstant, kName,
  kAttribute,         // the object
  kItem,              // object, key
  kSlice,             // object, begin, end, step; nullptr where there is none
  kCall,              // the callee, arguments; `keywords`
  kFilter, kTest,     // the value (nullptr for the body of a block), arguments; `keywords`
  kNot, kAnd, kOr, kMinus, kPlus, kBinary, kConcat,
  kCompare,           // operands, with `words` between them
  kConditional,       // condition, value, other value or nullptr
  kList, kTuple,
  kUnpacked,          // an argument's: *object
  kDict,              // key, value, key, value, ...
  // Statements.
  kText,              // `constant`
  kOutput,            // an expression
  kFor,               // target, iterable, condition or nullptr; `body`, `otherwise`; a `name` where it is recursive
  kIf,                // condition; `body`, `otherwise`
  kSet,               // target, value; targets are kName, kAttribute of a name, kTuple
  kWith,              // target, value, target, value, ...; `body`
  kSetBlock,          // target, then filters from the inside to the outside; `body`
  kMacro,             // defaults of the last parameters; `words` and `symbols`: parameters, then `caller`; `body`
  kCallBlock,         // a call, the macro that it gets as `caller`
  kFilterBlock,       // filters from the inside to the outside; `body`
  kGeneration,        // `body`
  kBreak, kContinue,
};

struct Node {
  NodeKind kind;
  Position at;
  int height = 1;    // of the tree
  int symbol = -1;   // of names and macros: which one
  std::string name;  // of a name, attribute, filter, test, macro; an operator
  Value constant;
  std::vector<NodePtr> kids;
  std::vector<std::pair<std::string, NodePtr>> keywords;
  std::vector<std::string> words;
  std::vector<int> symbols;
  Body body, otherwise;
  Filter filter = nullptr;
  std::vector<Test> tests;  // for each of the words of kCompare, too
};

struct Program {
  std::string name;                  // for messages
  std::vector<std::string> symbols;  // names by their numbers
  Body body;
  bool has_generation = false;
  int symbol(std::string_view name) const;  // -1: the template does not have it
};

inline constexpr std::size_t kMaxTemplate = std::size_t{1} << 20;

// Throws DataError "NAME:LINE:COLUMN: what".
Program parse_program(std::string_view source, std::string name);

[[noreturn]] void refuse_at(const Program& program, Position at, std::string_view what);

}  // namespace trident::jinja

// What operations have in common as values: a name, a kind, and operands that each say what they must hold and how they are used.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

#include "core/function_ref.h"
#include "core/tensor_view.h"
#include "core/work_kind.h"
#include "device/op_flags.h"

namespace trident {

struct OperationName {
  std::string_view name;  // of the function of Ops
  WorkKind kind;
};

// What an operand must hold: so many elements, of exactly this shape if it has dimensions.
struct Elements {
  DType dtype = DType::kU8;
  std::int64_t count = 0;
  Shape shape{};
};
inline Elements like(ConstTensorView model) { return {model.dtype(), model.num_elements()}; }
inline Elements exactly(DType dtype, const Shape& shape) { return {dtype, shape.num_elements(), shape}; }

// An operand of an operation.
struct Field {
  enum class Use : std::uint8_t {
    kRead,
    kWrite,
    kUpdate,
    kScratch
  };  // kUpdate: read and written; kScratch: neither before nor after
  std::string_view name;
  Use use = Use::kRead;
  ConstTensorView view;
  Elements expected;
  std::int64_t moved = -1;  // bytes read and written, where these are not the whole view's

  Field moving(std::int64_t bytes) const {
    Field part = *this;
    part.moved = bytes;
    return part;
  }
  std::int64_t bytes_moved() const;
};
using FieldVisitor = FunctionRef<void(const Field&)>;

inline Field reads(std::string_view name, ConstTensorView view, const Elements& expected) {
  return {name, Field::Use::kRead, view, expected};
}
inline Field writes(std::string_view name, ConstTensorView view, const Elements& expected) {
  return {name, Field::Use::kWrite, view, expected};
}
inline Field updates(std::string_view name, ConstTensorView view, const Elements& expected) {
  return {name, Field::Use::kUpdate, view, expected};
}
inline Field results_in(std::string_view name, ConstTensorView view, const Elements& expected, Accumulate accumulate) {
  return {name, accumulate == Accumulate::kYes ? Field::Use::kUpdate : Field::Use::kWrite, view, expected};
}
// Whatever it holds: what others are compared with.
inline Field reads(std::string_view name, ConstTensorView view) { return reads(name, view, like(view)); }
inline Field writes(std::string_view name, ConstTensorView view) { return writes(name, view, like(view)); }
inline Field updates(std::string_view name, ConstTensorView view) { return updates(name, view, like(view)); }
inline Field scratch(std::string_view name, ConstTensorView view) { return {name, Field::Use::kScratch, view, like(view)}; }

// A list of operations, and one of them, which lives while the call does, of several lists.
template <class... Operations>
struct OperationList {
  using Ref = std::variant<const Operations*...>;
};
template <class... First, class... Second>
auto joined(OperationList<First...>, OperationList<Second...>) -> OperationList<First..., Second...>;

// Refuses operands that do not hold what they should, or lie where `reaches` says no. InternalError.
void check_fields(std::string_view operation, FunctionRef<void(FieldVisitor)> fields, bool (*reaches)(MemoryKind));

}  // namespace trident

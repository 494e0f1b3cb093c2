// Operations as values: a name, a kind, and operands that each say what they must hold and how they are used.
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

// The required content of an operand.
struct Elements {
  DType dtype = DType::kU8;
  std::int64_t count = 0;
};
template <class Byte> Elements like(const BasicTensorView<Byte>& model) { return {model.dtype(), model.num_elements()}; }

// An operand of an operation. It is made at every call, so that it points to the shape instead of having it: it lives as long as
// the operation's view, or as the call of the visitor where the operation makes the view for it.
struct Field {
  enum class Use : std::uint8_t {
    kRead,
    kWrite,
    kUpdate,
    kScratch
  };  // kUpdate: read and written; kScratch: neither before nor after

  template <class Byte>
  Field(std::string_view operand, Use how, const BasicTensorView<Byte>& view, const Elements& holds)
      : name(operand), data(view.data()), shape(&view.shape()), expected(holds), dtype(view.dtype()), where(view.where()),
        use(how) {}
  ConstTensorView view() const { return {data, dtype, *shape, where}; }

  Field moving(std::int64_t bytes) const {
    Field part = *this;
    part.moved = bytes;
    return part;
  }
  std::int64_t bytes_moved() const;

  std::string_view name;
  const void* data;
  const Shape* shape;
  Elements expected;
  std::int64_t moved = -1;  // bytes read and written, where these are not the whole view's
  DType dtype;
  MemoryKind where;
  Use use;
};
using FieldVisitor = FunctionRef<void(const Field&)>;

template <class Byte> Field reads(std::string_view name, const BasicTensorView<Byte>& view, const Elements& expected) {
  return {name, Field::Use::kRead, view, expected};
}
template <class Byte> Field writes(std::string_view name, const BasicTensorView<Byte>& view, const Elements& expected) {
  return {name, Field::Use::kWrite, view, expected};
}
template <class Byte> Field updates(std::string_view name, const BasicTensorView<Byte>& view, const Elements& expected) {
  return {name, Field::Use::kUpdate, view, expected};
}
template <class Byte>
Field results_in(std::string_view name, const BasicTensorView<Byte>& view, const Elements& expected, Accumulate accumulate) {
  return {name, accumulate == Accumulate::kYes ? Field::Use::kUpdate : Field::Use::kWrite, view, expected};
}
// Whatever it holds: what others are compared with.
template <class Byte> Field reads(std::string_view name, const BasicTensorView<Byte>& view) {
  return reads(name, view, like(view));
}
template <class Byte> Field writes(std::string_view name, const BasicTensorView<Byte>& view) {
  return writes(name, view, like(view));
}
template <class Byte> Field updates(std::string_view name, const BasicTensorView<Byte>& view) {
  return updates(name, view, like(view));
}
template <class Byte> Field scratch(std::string_view name, const BasicTensorView<Byte>& view) {
  return {name, Field::Use::kScratch, view, like(view)};
}

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

// Contiguous, row-major, non-owning views of typed memory. A transpose is an operation, never a view.
//
// A view is small and passed by value. Whoever owns the memory (a Buffer, an Arena) outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "core/dtype.h"
#include "core/shape.h"

namespace trident {

enum class MemoryKind : std::uint8_t { kHost, kPinned, kDevice };

template <class Byte>  // std::byte or const std::byte
class BasicTensorView {
 public:
  template <class T> using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
  using Pointer = std::conditional_t<std::is_const_v<Byte>, const void*, void*>;

  BasicTensorView() = default;
  BasicTensorView(Pointer data, DType dtype, Shape shape, MemoryKind where = MemoryKind::kHost)
      : data_(static_cast<Byte*>(data)), shape_(shape), dtype_(dtype), where_(where) {}
  // A mutable view converts to a const one.
  operator BasicTensorView<const std::byte>() const { return {data_, dtype_, shape_, where_}; }

  Byte* data() const { return data_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  MemoryKind where() const { return where_; }
  std::int64_t num_elements() const { return shape_.num_elements(); }
  std::int64_t num_bytes() const { return num_elements() * size_of(dtype_); }
  bool empty() const { return num_elements() == 0; }

  // The elements as T*; T must be the view's dtype.
  template <class T> Element<T>* as() const {
    TRIDENT_CHECK(dtype_of<T> == dtype_, "view of {} accessed as {}", to_string(dtype_), to_string(dtype_of<T>));
    return reinterpret_cast<Element<T>*>(data_);
  }
  template <class T> std::span<Element<T>> span() const { return {as<T>(), static_cast<std::size_t>(num_elements())}; }

  // Same elements, another shape.
  BasicTensorView reshape(Shape shape) const {
    TRIDENT_CHECK(shape.num_elements() == num_elements(), "{} cannot become {}", to_string(shape_), to_string(shape));
    return {data_, dtype_, shape, where_};
  }
  BasicTensorView flat() const { return reshape({num_elements()}); }
  // `count` consecutive elements of a view seen as one-dimensional.
  BasicTensorView range(std::int64_t first, std::int64_t count) const {
    TRIDENT_CHECK(first >= 0 && count >= 0 && first + count <= num_elements(), "range {}+{} of {}", first, count, num_elements());
    return {data_ + first * size_of(dtype_), dtype_, {count}, where_};
  }
  // Rows first .. first+count-1 of dimension 0.
  BasicTensorView rows(std::int64_t first, std::int64_t count) const {
    TRIDENT_CHECK(shape_.rank() >= 1 && first >= 0 && count >= 0 && first + count <= shape_[0], "rows {}+{} of {}", first, count,
                  to_string(shape_));
    std::int64_t row = 1;
    for (int d = 1; d < shape_.rank(); ++d) row *= shape_[d];
    const Shape s = shape_.rank() == 1   ? Shape{count}
                    : shape_.rank() == 2 ? Shape{count, shape_[1]}
                    : shape_.rank() == 3 ? Shape{count, shape_[1], shape_[2]}
                                         : Shape{count, shape_[1], shape_[2], shape_[3]};
    return {data_ + first * row * size_of(dtype_), dtype_, s, where_};
  }

 private:
  Byte* data_ = nullptr;
  Shape shape_;
  DType dtype_ = DType::kF32;
  MemoryKind where_ = MemoryKind::kHost;
};

using TensorView = BasicTensorView<std::byte>;
using ConstTensorView = BasicTensorView<const std::byte>;

}  // namespace trident

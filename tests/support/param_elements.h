// Which elements a parameter has, one at a time: a measure of what parallel/zero computes by stretches.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/zero/shard_spec.h"

namespace trident::testing {

// Elements of its logical tensors, padding and replicas not counted.
inline std::int64_t logical_elements(const ParamSpec& spec) {
  std::int64_t elements = 0;
  for (const PartSpec& part : spec.parts) elements += part.rows * (part.tensor_shape.rank() == 1 ? 1 : part.tensor_shape[1]);
  return elements;
}

// Element `index` of the dense local parameter -> its row-major index in the named logical tensor ([out, in]); nothing for padding.
struct LogicalElement {
  const PartSpec* part = nullptr;
  std::int64_t index = 0;
};
class ElementMap {
 public:
  ElementMap(const ParamSpec& spec, int tensor_degree, int tensor_rank) : parts_(local_parts(spec, tensor_degree, tensor_rank)) {
    const Shape shape = local_shape(spec, tensor_degree);
    columns_ = shape.rank() == 2 ? shape[1] : 1;
  }
  std::optional<LogicalElement> operator()(std::int64_t index) const {
    const std::int64_t row = index / columns_, column = index % columns_;
    for (const LocalPart& part : parts_) {
      if (row < part.local_row || row >= part.local_row + part.box.rows()) continue;
      const Shape& shape = part.part->tensor_shape;
      const std::int64_t tensor_columns = shape.rank() == 2 ? shape[1] : 1;
      const std::int64_t tensor_row = part.box.row_begin + row - part.local_row;
      return LogicalElement{part.part, tensor_row * tensor_columns + part.box.column_begin + column};
    }
    return std::nullopt;
  }

 private:
  std::int64_t columns_ = 1;
  std::vector<LocalPart> parts_;
};

}  // namespace trident::testing

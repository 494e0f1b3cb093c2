#include "checkpoint/format/tensor_box.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace trident {

std::int64_t TensorBox::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::optional<TensorBox> intersection(const TensorBox& a, const TensorBox& b) {
  TRIDENT_CHECK(a.shape.size() == b.shape.size(), "boxes of {} and {} dimensions", a.shape.size(), b.shape.size());
  TensorBox both;
  for (std::size_t d = 0; d < a.shape.size(); ++d) {
    const std::int64_t begin = std::max(a.offset[d], b.offset[d]);
    const std::int64_t end = std::min(a.offset[d] + a.shape[d], b.offset[d] + b.shape[d]);
    if (begin >= end) return std::nullopt;
    both.offset.push_back(begin);
    both.shape.push_back(end - begin);
  }
  return both;
}

bool is_inside(const TensorBox& box, const std::vector<std::int64_t>& shape) {
  if (box.offset.size() != shape.size() || box.shape.size() != shape.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (box.offset[d] < 0 || box.shape[d] < 0 || box.shape[d] > shape[d] || box.offset[d] > shape[d] - box.shape[d]) return false;
  return true;
}

TensorBox whole(std::vector<std::int64_t> shape) { return {std::vector<std::int64_t>(shape.size(), 0), std::move(shape)}; }

std::string to_string(const TensorBox& box) {
  std::string text = "[";
  for (std::size_t d = 0; d < box.shape.size(); ++d)
    text += fmt::format("{}{}:{}", d > 0 ? ", " : "", box.offset[d], box.offset[d] + box.shape[d]);
  return text + "]";
}

}  // namespace trident

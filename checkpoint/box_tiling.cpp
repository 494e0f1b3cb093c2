#include "checkpoint/box_tiling.h"

#include <algorithm>
#include <cstdint>

#include "core/check.h"

namespace trident {

namespace {

bool lies_inside(const TensorBox& box, const std::vector<std::int64_t>& shape) {
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (box.offset[d] < 0 || box.shape[d] < 0 || box.shape[d] > shape[d] || box.offset[d] > shape[d] - box.shape[d]) return false;
  return true;
}

std::int64_t first_row(const TensorBox& box) { return box.offset.empty() ? 0 : box.offset[0]; }
std::int64_t behind_rows(const TensorBox& box) { return box.offset.empty() ? 1 : box.offset[0] + box.shape[0]; }

}  // namespace

std::optional<std::string> tiling_problem(const std::vector<std::int64_t>& shape, std::span<const TensorBox> boxes) {
  const TensorBox tensor = whole(shape);
  std::vector<const TensorBox*> order;
  for (const TensorBox& box : boxes) {
    if (box.offset.size() != shape.size() || box.shape.size() != shape.size() || !lies_inside(box, shape))
      return fmt::format("box {} lies outside of {}", to_string(box), to_string(tensor));
    if (box.elements() > 0) order.push_back(&box);
  }
  std::sort(order.begin(), order.end(), [](const TensorBox* a, const TensorBox* b) { return first_row(*a) < first_row(*b); });
  for (std::size_t i = 0; i < order.size(); ++i)
    for (std::size_t j = i + 1; j < order.size() && first_row(*order[j]) < behind_rows(*order[i]); ++j)
      if (intersection(*order[i], *order[j]))
        return fmt::format("boxes {} and {} overlap", to_string(*order[i]), to_string(*order[j]));
  std::int64_t held = 0;  // by disjoint boxes inside: no more than there are
  for (const TensorBox* box : order) held += box->elements();
  if (held == tensor.elements()) return std::nullopt;
  return fmt::format("{} of {} elements are in no box", tensor.elements() - held, tensor.elements());
}

}  // namespace trident

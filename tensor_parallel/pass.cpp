#include "tensor_parallel/pass.h"

#include <algorithm>
#include <cstdint>

#include "core/check.h"
#include "core/int_math.h"

namespace trident {
namespace {

bool remade(RecomputePolicy policy, RecomputeClass recompute) {
  switch (policy) {
    case RecomputePolicy::kNone: return false;
    case RecomputePolicy::kSelective: return recompute == RecomputeClass::kAttention;
    case RecomputePolicy::kFull: return recompute != RecomputeClass::kNever;
  }
  return false;
}

}  // namespace

TensorView Pass::save(const Saved& tensor, DType dtype, const Shape& shape) {
  const Region again = tensor.last_use == LastUse::kW ? Region::kRemadeForW : Region::kRecomputed;
  const Region region = remade(geometry.recompute, tensor.recompute) ? again : Region::kSaved;
  return placed(&tensor, tensor.name, region, dtype, shape);
}

TensorView Pass::keep(const Kept& tensor, DType dtype, const Shape& shape) {
  return placed(&tensor, tensor.name, Region::kKept, dtype, shape);
}

TensorView Pass::scratch(DType dtype, const Shape& shape) {
  const RegionTensor tensor{Region::kScratch, scratch_.take(shape.num_elements() * size_of(dtype)).offset, dtype, shape};
  const auto scratch = static_cast<std::size_t>(Region::kScratch);
  if (planned_ != nullptr) {
    planned_->bytes[scratch] = std::max(planned_->bytes[scratch], scratch_.high_water());
    note(tensor);
  }
  TRIDENT_CHECK(scratch_.high_water() <= memory_.bytes[scratch], "unit {}: scratch {} {} reaches to byte {}, the dry pass took {}",
                unit, to_string(dtype), to_string(shape), scratch_.high_water(), memory_.bytes[scratch]);
  return view(tensor);
}

void Pass::check_in_use(const Saved& tensor) const {
  TRIDENT_CHECK(!weight_gradient_ || tensor.last_use == LastUse::kW,
                "unit {}: backward_weight reads {}, whose last use was backward_input; declare it LastUse::kW", unit, tensor.name);
}

const RegionTensor* Pass::look_up(const void* handle) const {
  for (const auto& [key, tensor] : memory_.places) {
    if (key == handle) return &tensor;
  }
  return nullptr;
}

const RegionTensor& Pass::find(const void* handle, std::string_view name) const {
  const RegionTensor* const found = look_up(handle);
  TRIDENT_CHECK(found != nullptr, "unit {}: {} is read, but no dry pass has made it", unit, name);
  return *found;
}

// The first dry pass puts the tensor behind those that are there; every later one must want the same.
TensorView Pass::placed(const void* handle, std::string_view name, Region region, DType dtype, const Shape& shape) {
  if (planned_ != nullptr && look_up(handle) == nullptr) {
    std::int64_t& top = planned_->bytes[static_cast<std::size_t>(region)];
    const RegionTensor tensor{region, top, dtype, shape};
    top = round_up(top + tensor.num_bytes(), kArenaAlignment);
    planned_->places.emplace_back(handle, tensor);
    note(tensor);
  }
  const RegionTensor& planned = find(handle, name);
  TRIDENT_CHECK(planned.region == region && planned.dtype == dtype && planned.shape == shape,
                "unit {}: {} is {} {}, the dry pass made it {} {}", unit, name, to_string(dtype), to_string(shape),
                to_string(planned.dtype), to_string(planned.shape));
  return view(planned);
}

void Pass::note(const RegionTensor& tensor) {
  RegionTensor& largest = planned_->largest[static_cast<std::size_t>(tensor.region)];
  if (largest.shape.rank() == 0 || tensor.num_bytes() > largest.num_bytes()) largest = tensor;
}

}  // namespace trident

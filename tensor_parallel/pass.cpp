#include "tensor_parallel/pass.h"

#include <algorithm>

#include "core/int_math.h"

namespace trident {
namespace {

bool recomputed(RecomputePolicy policy, RecomputeClass recompute) {
  switch (policy) {
    case RecomputePolicy::kNone: return false;
    case RecomputePolicy::kSelective: return recompute == RecomputeClass::kAttention;
    case RecomputePolicy::kFull: return recompute != RecomputeClass::kNever;
  }
  return false;
}

}  // namespace

TensorView Pass::save(const Saved& tensor, DType dtype, const Shape& shape) {
  const auto is_in = [&](const std::vector<const void*>& reads) { return std::ranges::find(reads, &tensor) != reads.end(); };
  const bool unused = memory_.held_as_read && !is_in(memory_.backward_reads);
  const bool for_weights = tensor.last_use == LastUse::kW && (!memory_.held_as_read || is_in(memory_.weight_gradient_reads));
  const bool again = unused || recomputed(geometry.recompute, tensor.recompute);
  const Region until_input = again ? Region::kRecomputed : Region::kSaved;
  const Region until_weight = again ? Region::kRecomputedForW : Region::kSavedForW;
  return placed(&tensor, tensor.name, for_weights ? until_weight : until_input, dtype, shape);
}

TensorView Pass::keep(const BetweenIW& tensor, DType dtype, const Shape& shape) {
  return placed(&tensor, tensor.name, Region::kKept, dtype, shape);
}

TensorView Pass::derive(const Derived& tensor, DType dtype, const Shape& shape) {
  TRIDENT_CHECK(kind_ == PassKind::kDerive, "unit {}: {} derives {}", unit, to_string(kind_), tensor.name);
  return placed(&tensor, tensor.name, Region::kDerived, dtype, shape);
}

void Pass::begin(PassKind kind) {
  TRIDENT_CHECK(!open_, "unit {}: {} begins within {}", unit, to_string(kind), to_string(kind_));
  open_ = true;
  kind_ = kind;
  next_scratch_ = 0;
}

void Pass::end() {
  if (!open_) return;
  open_ = false;
  TRIDENT_CHECK(scratch_.mark() == 0, "unit {}: {} ends with {} bytes of scratch in use", unit, to_string(kind_), scratch_.mark());
  const auto kind = static_cast<std::size_t>(kind_);
  if (planned_ != nullptr) planned_->scratch[kind].known = true;
  const std::size_t planned = memory_.scratch[kind].tensors.size();
  TRIDENT_CHECK(next_scratch_ == planned, "unit {}: {} ends after {} scratch tensors, its dry pass took {}", unit, to_string(kind_),
                next_scratch_, planned);
}

TensorView Pass::scratch(DType dtype, const Shape& shape) {
  const RegionTensor tensor{Region::kScratch, scratch_.take(shape.num_elements() * size_of(dtype)).offset, dtype, shape};
  const auto kind = static_cast<std::size_t>(kind_);
  TRIDENT_CHECK(open_, "unit {}: scratch {} {} is taken in no call", unit, to_string(dtype), to_string(shape));
  if (planned_ != nullptr && !planned_->scratch[kind].known) {
    std::int64_t& bytes = planned_->bytes[static_cast<std::size_t>(Region::kScratch)];
    bytes = std::max(bytes, scratch_.high_water());
    planned_->scratch[kind].tensors.push_back(tensor);
    note(tensor);
  }
  const std::vector<RegionTensor>& planned = memory_.scratch[kind].tensors;
  TRIDENT_CHECK(next_scratch_ < planned.size() && planned[next_scratch_] == tensor,
                "unit {}: {} takes scratch {} {} at byte {} as number {}, which its dry pass did not", unit, to_string(kind_),
                to_string(dtype), to_string(shape), tensor.offset, next_scratch_);
  ++next_scratch_;
  return view(tensor);
}

void Pass::check_in_use(const Saved& tensor) const {
  TRIDENT_CHECK(kind_ != PassKind::kBackwardWeight || tensor.last_use == LastUse::kW,
                "unit {}: backward_weight reads {}, whose last use was backward_input; declare it LastUse::kW", unit, tensor.name);
}

const RegionTensor* Pass::look_up(const void* handle) const {
  for (const auto& [key, tensor] : memory_.places) {
    if (key == handle) return &tensor;
  }
  return nullptr;
}

TensorView Pass::read(const void* handle, std::string_view name) const {
  if (planned_ != nullptr && kind_ == PassKind::kBackwardWeight) planned_->weight_gradient_reads.push_back(handle);
  if (planned_ != nullptr && kind_ != PassKind::kForward) planned_->backward_reads.push_back(handle);
  return view(find(handle, name));
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

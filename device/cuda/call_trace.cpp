#include "device/cuda/call_trace.h"

#include "device/no_allocation.h"

namespace trident {
// Work that is new may come in any step.
void CallTrace::push(std::vector<std::uint64_t>& all, std::uint64_t word) {
  if (all.size() == all.capacity()) {
    const AllocationExemption longer_than_any_before;
    all.reserve(std::max<std::size_t>(256, 2 * all.size()));
  }
  all.push_back(word);
}

void CallTrace::clear() {
  words_.clear();
  numbers_.clear();
  last_number_ = calls_ = 0;
}

void CallTrace::append(ConstTensorView view) {
  append(view.data());
  append(view.dtype());
  append(view.shape().rank());
  for (int d = 0; d < view.shape().rank(); ++d) append(view.shape()[d]);
}

// Fields are taken apart by bindings, which do not compile when one is added.

void CallTrace::append(const AttentionShape& shape) {
  const auto& [batch, query_heads, kv_heads, query_length, key_length, head_dim, query_offset, key_offset, interval, scale, softcap,
               causal, dtype] = shape;
  const auto all = [this](const auto&... fields) { (append(fields), ...); };
  all(batch, query_heads, kv_heads, query_length, key_length, head_dim, query_offset, key_offset, interval, scale, softcap, causal,
      dtype);
}

void CallTrace::append(std::span<const std::int64_t> values) {
  append(std::ssize(values));
  for (const std::int64_t value : values) append(value);
}

void CallTrace::append(const FusedMatmul& fused) {
  const auto& [epilogue, product, bias, pre, result, residual, inner, outer] = fused;
  const auto& [out, a, transpose_a, b, transpose_b, accumulate, workspace, scale] = product;
  const auto all = [this](const auto&... fields) { (append(fields), ...); };
  all(epilogue, out, a, transpose_a, b, transpose_b, accumulate, workspace, scale, bias, pre, result, residual, inner, outer);
}

void CallTrace::append(const VocabularyShard& shard) {
  const auto& [columns, first_column, vocabulary, softcap] = shard;
  append(columns);
  append(first_column);
  append(vocabulary);
  append(softcap);
}

void CallTrace::append(const cuda_kernels::Scratch& scratch) {
  const auto& [data, floats] = scratch;
  append(data);
  append(floats);
}

void CallTrace::append(const UpdateStates& states) {
  for (const float* const state : states.of) append(state);
}

void CallTrace::append(const RoundedElements& elements) {
  const auto& [key, first_index, first_column, columns, stride] = elements;
  append(key[0]);
  append(key[1]);
  append(first_index);
  append(first_column);
  append(columns);
  append(stride);
}

}  // namespace trident

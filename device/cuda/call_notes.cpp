#include "device/cuda/call_notes.h"

#include <algorithm>

#include "device/no_allocation.h"

namespace trident {
namespace {

// Work that is new may come in any step.
template <class T>
void push(std::vector<T>& all, const T& one) {
  if (all.size() == all.capacity()) {
    const AllocationExemption longer_than_any_before;
    all.reserve(std::max<std::size_t>(256, 2 * all.size()));
  }
  all.push_back(one);
}

}  // namespace

void CallNotes::add_word(std::uint64_t word) { push(words_, word); }
void CallNotes::append(const AdamWStep& step) { push(steps_, step); }

void CallNotes::clear() {
  words_.clear();
  steps_.clear();
  calls_ = 0;
  repeatable_ = true;
}

void CallNotes::append(ConstTensorView view) {
  append(view.data());
  append(view.dtype());
  append(view.shape().rank());
  for (int d = 0; d < view.shape().rank(); ++d) append(view.shape()[d]);
}

void CallNotes::append(const AttentionShape& s) {
  const auto all = [this](const auto&... fields) { (append(fields), ...); };
  all(s.batch, s.query_heads, s.kv_heads, s.query_length, s.key_length, s.head_dim, s.query_offset, s.key_offset, s.scale, s.causal, s.dtype);
}

void CallNotes::append(const VocabularyShard& shard) {
  append(shard.columns);
  append(shard.first_column);
  append(shard.vocabulary);
}

void CallNotes::append(const cuda_kernels::Scratch& scratch) {
  append(scratch.data);
  append(scratch.floats);
}

}  // namespace trident

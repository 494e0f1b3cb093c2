#include "data/tokenizer/merge_table.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace trident {

namespace {

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(std::size_t num_rules)
    : slots_(std::bit_ceil(2 * num_rules + 2)), shift_(64 - std::countr_zero(slots_.size())) {}

std::size_t MergeTable::slot_of(std::uint64_t pair) const {
  std::size_t slot = static_cast<std::size_t>((pair * 0x9E3779B97F4A7C15u) >> shift_);  // Fibonacci hashing: the top bits
  while (slots_[slot].pair != kEmpty && slots_[slot].pair != pair) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

void MergeTable::insert(std::int32_t left, std::int32_t right, MergeRule rule) {
  const std::uint64_t pair = pair_of(left, right);
  slots_[slot_of(pair)] = {pair, rule};
}

const MergeRule* MergeTable::find(std::int32_t left, std::int32_t right) const {
  const Slot& slot = slots_[slot_of(pair_of(left, right))];
  return slot.pair == kEmpty ? nullptr : &slot.rule;
}

// The order of the heap, whose top is then the lowest rank, leftmost.
bool Merger::comes_later(const Candidate& a, const Candidate& b) { return a.rank != b.rank ? a.rank > b.rank : a.at > b.at; }

void Merger::offer(const MergeTable& table, std::int64_t at) {
  const auto& left = list_[static_cast<std::size_t>(at)];
  if (left.next < 0) return;
  const MergeRule* rule = table.find(left.id, list_[static_cast<std::size_t>(left.next)].id);
  if (rule == nullptr) return;
  heap_.push_back({rule->rank, rule->result, at});
  std::push_heap(heap_.begin(), heap_.end(), comes_later);
}

void Merger::merge(const MergeTable& table, std::vector<std::int32_t>* symbols) {
  const auto count = static_cast<std::int64_t>(symbols->size());
  list_.clear();
  heap_.clear();
  for (std::int64_t i = 0; i < count; ++i) {
    list_.push_back({(*symbols)[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  }
  for (std::int64_t i = 0; i + 1 < count; ++i) offer(table, i);

  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), comes_later);
    const Candidate best = heap_.back();
    heap_.pop_back();
    Symbol& left = list_[static_cast<std::size_t>(best.at)];
    if (left.id == kGone || left.next < 0) continue;
    Symbol& right = list_[static_cast<std::size_t>(left.next)];
    // Stale if a neighbour was merged away meanwhile: the pair now there no longer makes the same token.
    const MergeRule* rule = table.find(left.id, right.id);
    if (rule == nullptr || rule->result != best.result) continue;
    left.id = best.result;
    left.next = right.next;
    right.id = kGone;
    if (left.next >= 0) list_[static_cast<std::size_t>(left.next)].previous = best.at;
    offer(table, best.at);
    if (left.previous >= 0) offer(table, left.previous);
  }

  symbols->clear();
  for (std::int64_t i = 0; i >= 0 && i < count; i = list_[static_cast<std::size_t>(i)].next) {
    symbols->push_back(list_[static_cast<std::size_t>(i)].id);
  }
}

}  // namespace trident

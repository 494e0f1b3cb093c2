#include "data/tokenizer/merge_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace trident {

namespace {

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(std::size_t num_rules)
    : slots_(std::bit_ceil(num_rules + num_rules / 2 + 2)),
      shift_(64 - std::countr_zero(slots_.size())),
      is_likely_(std::bit_ceil(num_rules / 8 + 1)),
      likely_shift_(64 - std::countr_zero(is_likely_.size()) - 6) {}

std::size_t MergeTable::slot_of(std::uint64_t pair) const {
  std::size_t slot = static_cast<std::size_t>(hash_of(pair) >> shift_);  // Fibonacci hashing: the top bits
  while (slots_[slot].pair != kEmpty && slots_[slot].pair != pair) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

void MergeTable::insert(std::int32_t left, std::int32_t right, MergeRule rule) {
  const std::uint64_t pair = pair_of(left, right);
  slots_[slot_of(pair)] = {pair, rule};
  const std::uint64_t bit = hash_of(pair) >> likely_shift_;
  is_likely_[static_cast<std::size_t>(bit >> 6)] |= std::uint64_t{1} << (bit & 63);
}

const MergeRule* MergeTable::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t pair = pair_of(left, right), bit = hash_of(pair) >> likely_shift_;
  if ((is_likely_[static_cast<std::size_t>(bit >> 6)] >> (bit & 63) & 1) == 0) return nullptr;
  const Slot& slot = slots_[slot_of(pair)];
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
  steps_ += static_cast<std::int64_t>(std::bit_width(heap_.size()));
}

// The arrays hold for each symbol what it makes with the next one, and the lowest rank of each eight; a symbol that was merged away
// makes nothing.
void Merger::merge_few(const MergeTable& table, std::vector<std::int32_t>* symbols) {
  constexpr std::int32_t kNone = std::numeric_limits<std::int32_t>::max();
  constexpr std::size_t kBlock = 8;
  const std::size_t count = symbols->size(), blocks = (count + kBlock - 1) / kBlock;
  std::array<std::int32_t, kFew> ranks;
  std::array<std::int32_t, kFew / kBlock> lowest;  // of each block
  std::array<std::uint8_t, kFew + 1> next, previous;
  std::int32_t* const ids = symbols->data();
  const auto look = [&](std::size_t at) {
    const MergeRule* const rule = next[at] < count ? table.find(ids[at], ids[next[at]]) : nullptr;
    ranks[at] = rule == nullptr ? kNone : rule->rank;
  };
  const auto look_through = [&](std::size_t block) {
    const std::int32_t* const of = ranks.data() + block * kBlock;
    std::int32_t least = kNone;
    for (std::size_t i = 0; i < kBlock; ++i) least = std::min(least, of[i]);
    lowest[block] = least;
  };
  for (std::size_t at = 0; at < count; ++at)
    next[at] = static_cast<std::uint8_t>(at + 1), previous[at + 1] = static_cast<std::uint8_t>(at);
  for (std::size_t at = 0; at < count; ++at) look(at);
  std::fill(ranks.begin() + count, ranks.begin() + blocks * kBlock, kNone);
  for (std::size_t block = 0; block < blocks; ++block) look_through(block);
  for (;;) {
    std::size_t block = 0;
    for (std::size_t i = 1; i < blocks; ++i)
      if (lowest[i] < lowest[block]) block = i;
    steps_ += static_cast<std::int64_t>(blocks + kBlock);
    if (lowest[block] == kNone) break;
    std::size_t best = block * kBlock;
    while (ranks[best] != lowest[block]) ++best;
    const std::size_t gone = next[best];
    ids[best] = table.find(ids[best], ids[gone])->result;
    ranks[gone] = kNone;
    next[best] = next[gone], previous[next[best]] = static_cast<std::uint8_t>(best);
    look(best);
    if (gone / kBlock != block) look_through(gone / kBlock);
    if (best > 0) {
      look(previous[best]);
      if (previous[best] / kBlock != block) look_through(previous[best] / kBlock);
    }
    look_through(block);
  }
  std::size_t kept = 0;
  for (std::size_t at = 0; at < count; at = next[at]) ids[kept++] = ids[at];
  symbols->resize(kept);
}

void Merger::merge(const MergeTable& table, std::vector<std::int32_t>* symbols) {
  if (symbols->size() <= kFew) return merge_few(table, symbols);
  const auto count = static_cast<std::int64_t>(symbols->size());
  list_.clear();
  heap_.clear();
  for (std::int64_t i = 0; i < count; ++i) {
    list_.push_back({(*symbols)[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  }
  for (std::int64_t i = 0; i + 1 < count; ++i) offer(table, i);

  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), comes_later);
    steps_ += static_cast<std::int64_t>(std::bit_width(heap_.size()));
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

#include "data/tokenizer/merge_table.h"

#include <algorithm>
#include <array>
#include <bit>

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
  std::size_t slot = static_cast<std::size_t>(hash_of(pair) >> shift_);  // the top bits of a product depend on all of the pair
  while (slots_[slot].pair != kEmpty && slots_[slot].pair != pair) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

void MergeTable::insert(std::int32_t left, std::int32_t right, MergeRule rule) {
  const std::uint64_t pair = pair_of(left, right);
  if ((left | right) < kLow) {
    low_[low_place(left, right)] = {~rule.rank, rule.result};
    return;
  }
  slots_[slot_of(pair)] = {pair, rule};
  const std::uint64_t bit = hash_of(pair) >> likely_shift_;
  is_likely_[static_cast<std::size_t>(bit >> 6)] |= std::uint64_t{1} << (bit & 63);
}

MergeRule MergeTable::find_hashed(std::int32_t left, std::int32_t right) const {
  constexpr MergeRule kNoRule{-1, -1};
  const std::uint64_t pair = pair_of(left, right), bit = hash_of(pair) >> likely_shift_;
  if ((is_likely_[static_cast<std::size_t>(bit >> 6)] >> (bit & 63) & 1) == 0) return kNoRule;
  const Slot& slot = slots_[slot_of(pair)];
  return slot.pair == kEmpty ? kNoRule : slot.rule;
}

std::size_t Merger::merge_few(const MergeTable& table, std::int32_t* ids, std::size_t count) {
  std::array<std::uint32_t, kFew> ranks;  // of what each makes with the next one; no rule's is above all others
  std::array<std::int32_t, kFew> results;
  const auto look = [&](std::size_t at) {
    const MergeRule rule = table.find(ids[at], ids[at + 1]);
    ranks[at] = static_cast<std::uint32_t>(rule.rank), results[at] = rule.result;
  };
  for (std::size_t at = 0; at + 1 < count; ++at) look(at);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t at = 1; at + 1 < count; ++at) best = ranks[at] < ranks[best] ? at : best;
    steps_ += static_cast<std::int64_t>(count);
    if (ranks[best] > std::numeric_limits<std::int32_t>::max()) break;
    ids[best] = results[best];
    --count;
    for (std::size_t at = best + 1; at < count; ++at) ids[at] = ids[at + 1];
    for (std::size_t at = best + 1; at + 1 < count; ++at) ranks[at] = ranks[at + 1], results[at] = results[at + 1];
    if (best + 1 < count) look(best);
    if (best > 0) look(best - 1);
  }
  return count;
}

void Merger::merge_many(const MergeTable& table, std::vector<std::int32_t>* symbols) {
  constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  const std::size_t count = symbols->size();
  std::int32_t* const ids = symbols->data();
  std::array<std::size_t, 12> levels{};  // where they begin in the tree
  std::size_t num_levels = 0, size = 0;
  for (std::size_t many = count, groups = 2; groups > 1; many = groups) {
    groups = (many + kGroup - 1) / kGroup;
    levels[num_levels++] = size;
    size += groups * kGroup;
  }
  tree_.assign(size, kNone);
  if (results_.size() < count) results_.resize(count), next_.resize(count + 1), previous_.resize(count + 1);
  const auto look = [&](std::size_t at) {
    tree_[at] = kNone;
    if (next_[at] == count) return;
    const MergeRule rule = table.find(ids[at], ids[next_[at]]);
    if (rule.rank < 0) return;
    tree_[at] = static_cast<std::uint64_t>(rule.rank) << 32 | at;
    results_[at] = rule.result;
  };
  const auto least = [&](std::size_t level, std::size_t group) {
    const std::uint64_t* const first = tree_.data() + levels[level] + group * kGroup;
    std::uint64_t low = kNone;
    for (std::size_t i = 0; i < kGroup; ++i) low = std::min(low, first[i]);
    return low;
  };
  const auto settle = [&](std::size_t at) {
    for (std::size_t level = 1; level < num_levels; ++level) at /= kGroup, tree_[levels[level] + at] = least(level - 1, at);
    steps_ += static_cast<std::int64_t>(kGroup * num_levels);
  };
  for (std::size_t at = 0; at < count; ++at)
    next_[at] = static_cast<std::uint32_t>(at + 1), previous_[at + 1] = static_cast<std::uint32_t>(at);
  for (std::size_t at = 0; at < count; ++at) look(at);
  for (std::size_t at = 0; at < count; at += kGroup) settle(at);
  for (std::uint64_t first; (first = least(num_levels - 1, 0)) != kNone;) {
    const std::size_t best = first & 0xFFFFFFFF, gone = next_[best];
    ids[best] = results_[best];
    next_[best] = next_[gone], previous_[next_[best]] = static_cast<std::uint32_t>(best);
    tree_[gone] = kNone;
    look(best);
    if (best > 0) look(previous_[best]), settle(previous_[best]);
    settle(best);
    if (gone / kGroup != best / kGroup) settle(gone);
  }
  std::size_t kept = 0;
  for (std::size_t at = 0; at < count; at = next_[at]) ids[kept++] = ids[at];
  symbols->resize(kept);
}

}  // namespace trident

// The merge rules of a BPE, and the loop that applies them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "data/tokenizer/token_texts.h"

namespace trident {

struct MergeRule {
  std::int32_t rank;    // lower merges first; below 0 where there is no rule
  std::int32_t result;  // id of the merged token
};

// (left id, right id) -> rule, an open-addressing hash table at most two thirds full. Ids are >= 0.
class MergeTable {
 public:
  explicit MergeTable(std::size_t num_rules);
  void insert(std::int32_t left, std::int32_t right, MergeRule rule);  // a later rule for the same pair replaces the earlier
  MergeRule find(std::int32_t left, std::int32_t right) const {
    if ((left | right) >= kLow) return find_hashed(left, right);
    const MergeRule& low = low_[low_place(left, right)];
    return {~low.rank, low.result};
  }

 private:
  struct Slot {
    std::uint64_t pair = kEmpty;
    MergeRule rule{};
  };
  static constexpr std::uint64_t kEmpty = std::numeric_limits<std::uint64_t>::max();
  static constexpr std::int32_t kLow = 256;
  std::uint64_t hash_of(std::uint64_t pair) const { return pair * factor_; }
  static std::size_t low_place(std::int32_t left, std::int32_t right) { return static_cast<std::size_t>(left * kLow + right); }
  std::size_t slot_of(std::uint64_t pair) const;
  MergeRule find_hashed(std::int32_t left, std::int32_t right) const;

  std::uint64_t factor_ = table_seed();
  std::vector<Slot> slots_;
  int shift_;
  std::vector<std::uint64_t> is_likely_;  // a bit for each hash of a rule: most pairs have none, and are told by a small table
  int likely_shift_;
  // All pairs of ids below 256, which most vocabularies give to bytes; ranks are inverted, so that zeros are no rules.
  std::vector<MergeRule> low_ = std::vector<MergeRule>(kLow * kLow);
};

// Merges symbols of one piece until no rule applies: always the pair of the lowest rank, the leftmost among equals. O(n log n).
// Keeps its scratch memory between calls.
class Merger {
 public:
  // *symbols: the piece's ids, less than 2^32, replaced by the merged ones.
  void merge(const MergeTable& table, std::vector<std::int32_t>* symbols) {
    if (symbols->size() <= kFew) symbols->resize(merge_few(table, symbols->data(), symbols->size()));
    else merge_many(table, symbols);
  }
  // Numbers that were compared, over all calls.
  std::int64_t steps() const { return steps_; }

 private:
  static constexpr std::size_t kFew = 32, kGroup = 8;
  // Words are short: ranks side by side, read through for each merge, take less time than a tree. Returns how many ids are left.
  std::size_t merge_few(const MergeTable& table, std::int32_t* ids, std::size_t count);
  void merge_many(const MergeTable& table, std::vector<std::int32_t>* symbols);

  // Each symbol's rank of what it makes with the next one, before its place; the lowest of each eight; of each eight of these; ...
  std::vector<std::uint64_t> tree_;
  std::vector<std::int32_t> results_;
  std::vector<std::uint32_t> next_, previous_;  // symbols that are left
  std::int64_t steps_ = 0;
};

}  // namespace trident

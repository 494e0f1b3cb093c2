// The merge rules of a BPE, and the loop that applies them.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace trident {

struct MergeRule {
  std::int32_t rank;    // lower merges first
  std::int32_t result;  // id of the merged token
};

// (left id, right id) -> rule, an open-addressing hash table at most two thirds full. Ids are >= 0.
class MergeTable {
 public:
  explicit MergeTable(std::size_t num_rules);
  void insert(std::int32_t left, std::int32_t right, MergeRule rule);  // a later rule for the same pair replaces the earlier
  const MergeRule* find(std::int32_t left, std::int32_t right) const;  // null: no rule

 private:
  struct Slot {
    std::uint64_t pair = kEmpty;
    MergeRule rule{};
  };
  static constexpr std::uint64_t kEmpty = std::numeric_limits<std::uint64_t>::max();
  static std::uint64_t hash_of(std::uint64_t pair) { return pair * 0x9E3779B97F4A7C15u; }
  std::size_t slot_of(std::uint64_t pair) const;

  std::vector<Slot> slots_;
  int shift_;
  std::vector<std::uint64_t> is_likely_;  // a bit for each hash of a rule: most pairs have none, and are told by a small table
  int likely_shift_;
};

// Merges symbols of one piece until no rule applies: always the pair of the lowest rank, the leftmost among equals. O(n log n): few
// symbols are looked through for each merge, many are kept in a heap.
// Keeps its scratch memory between calls.
class Merger {
 public:
  // *symbols: the piece's ids, replaced by the merged ones.
  void merge(const MergeTable& table, std::vector<std::int32_t>* symbols);
  // Candidates that were looked at or moved, over all calls.
  std::int64_t steps() const { return steps_; }

 private:
  struct Candidate {
    std::int32_t rank, result;
    std::int64_t at;  // index of the left symbol
  };
  struct Symbol {
    std::int32_t id;  // kGone once it became part of its left neighbour
    std::int64_t previous, next;
  };
  static constexpr std::int32_t kGone = -1;
  static constexpr std::size_t kFew = 64;
  void merge_few(const MergeTable& table, std::vector<std::int32_t>* symbols);
  static bool comes_later(const Candidate& a, const Candidate& b);
  void offer(const MergeTable& table, std::int64_t at);

  std::vector<Candidate> heap_;
  std::vector<Symbol> list_;
  std::int64_t steps_ = 0;
};

}  // namespace trident

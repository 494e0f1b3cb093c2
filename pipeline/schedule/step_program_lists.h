// The passes of step_program.cpp build lists of instructions with these pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/at.h"
#include "core/check.h"
#include "pipeline/schedule/step_program.h"

namespace trident {

using Instructions = std::vector<Instruction>;

// Buffer numbers handed out lowest first: a list of uses, each acquired and released in program order, gets by with as many
// buffers as are in use at once.
class SlotPool {
 public:
  int acquire() {
    const auto free = std::find(in_use_.begin() + lowest_, in_use_.end(), false);
    const auto slot = static_cast<int>(free - in_use_.begin());
    if (free == in_use_.end()) in_use_.push_back(true);
    else *free = true;
    lowest_ = slot + 1;
    return slot;
  }
  void release(int slot) {
    at(in_use_, slot) = false;
    lowest_ = std::min(lowest_, slot);
  }
  int size() const { return static_cast<int>(in_use_.size()); }

 private:
  std::vector<char> in_use_;
  int lowest_ = 0;  // none below is free
};

// Collects what a pass wants inserted, then rebuilds the list once. Of one place what comes first stands first.
class Insertions {
 public:
  void before(std::size_t position, const Instruction& i) { before_.push_back({position, i}); }
  void after(std::size_t position, const Instruction& i) { after_.push_back({position, i}); }

  void apply(Instructions& list) {
    Instructions result;
    result.reserve(list.size() + before_.size() + after_.size());
    const auto earlier = [](const Insertion& a, const Insertion& b) { return a.position < b.position; };
    for (auto* const insertions : {&before_, &after_})
      if (!std::is_sorted(insertions->begin(), insertions->end(), earlier))
        std::stable_sort(insertions->begin(), insertions->end(), earlier);
    auto before = before_.begin(), after = after_.begin();
    for (std::size_t i = 0; i < list.size(); ++i) {
      for (; before != before_.end() && before->position == i; ++before) result.push_back(before->instruction);
      result.push_back(list[i]);
      for (; after != after_.end() && after->position == i; ++after) result.push_back(after->instruction);
    }
    TRIDENT_CHECK(before == before_.end() && after == after_.end(), "an insertion behind the {} of a list", list.size());
    list = std::move(result);
  }

 private:
  struct Insertion {
    std::size_t position = 0;
    Instruction instruction;
  };
  std::vector<Insertion> before_, after_;
};

}  // namespace trident

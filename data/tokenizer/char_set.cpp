#include "data/tokenizer/char_set.h"

#include <algorithm>

namespace trident {

namespace {

constexpr char32_t kCodePoints = 0x110000;

struct CategoryRun {
  char32_t begin, end;
  CategorySet category;
};

// All code points by category; a set is made from some thousand runs and not from a million code points.
const std::vector<CategoryRun>& category_runs() {
  static const std::vector<CategoryRun> runs = [] {
    std::vector<CategoryRun> found;
    for (char32_t c = 0; c < kCodePoints; ++c) {
      const CategorySet category = set_of(category_of(c));
      if (found.empty() || found.back().category != category) found.push_back({c, c, category});
      found.back().end = c + 1;
    }
    return found;
  }();
  return runs;
}

// Sweeps over the bounds of both: `is_inside` says of two answers which one the result has.
template <class F>
std::vector<char32_t> swept(std::span<const char32_t> a, std::span<const char32_t> b, F is_inside) {
  std::vector<char32_t> bounds;
  std::size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    const char32_t at = std::min(i < a.size() ? a[i] : kCodePoints, j < b.size() ? b[j] : kCodePoints);
    if (i < a.size() && a[i] == at) ++i;
    if (j < b.size() && b[j] == at) ++j;
    if (is_inside(i % 2 == 1, j % 2 == 1) != (bounds.size() % 2 == 1)) bounds.push_back(at);
  }
  return bounds;
}

}  // namespace

CharSet CharSet::of_range(char32_t first, char32_t last) {
  CharSet set;
  set.bounds_ = {first, last + 1};
  return set;
}

CharSet CharSet::of_categories(CategorySet categories) {
  CharSet set;
  for (const CategoryRun& run : category_runs()) {
    if ((run.category & categories) == 0) continue;
    if (!set.bounds_.empty() && set.bounds_.back() == run.begin) set.bounds_.pop_back();
    else set.bounds_.push_back(run.begin);
    set.bounds_.push_back(run.end);
  }
  return set;
}

CharSet CharSet::of_bounds(std::span<const char32_t> bounds) {
  CharSet set;
  set.bounds_.assign(bounds.begin(), bounds.end());
  return set;
}

CharSet CharSet::operator|(const CharSet& other) const {
  return of_bounds(swept(bounds_, other.bounds_, [](bool a, bool b) { return a || b; }));
}

CharSet CharSet::operator&(const CharSet& other) const {
  return of_bounds(swept(bounds_, other.bounds_, [](bool a, bool b) { return a && b; }));
}

CharSet CharSet::operator~() const {
  constexpr char32_t kAll[] = {0, kCodePoints};
  return of_bounds(swept(bounds_, kAll, [](bool a, bool b) { return !a && b; }));
}

bool CharSet::contains(char32_t c) const { return (std::ranges::upper_bound(bounds_, c) - bounds_.begin()) % 2 == 1; }

CharTest::CharTest(const CharSet& set) : set_(set) {
  for (char32_t c = 0; c < ascii_.size(); ++c) ascii_[c] = set.contains(c);
  CategorySet inside = 0, outside = 0;
  for (const CategoryRun& run : category_runs()) {
    if (run.end <= ascii_.size()) continue;
    const char32_t begin = std::max<char32_t>(run.begin, ascii_.size());
    const auto next = std::ranges::upper_bound(set.bounds(), begin);
    const bool whole = next == set.bounds().end() || *next >= run.end;
    if (!whole || set.contains(begin)) inside |= run.category;
    if (!whole || !set.contains(begin)) outside |= run.category;
  }
  is_categories_ = (inside & outside) == 0;
  categories_ = inside;
}

}  // namespace trident

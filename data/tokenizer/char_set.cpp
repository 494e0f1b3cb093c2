#include "data/tokenizer/char_set.h"

#include <algorithm>

namespace trident {
namespace {

constexpr char32_t kCodePoints = 0x110000, kUsual = 0x10000;

struct CategoryRun {
  char32_t begin, end;
  CategorySet category;
};

// All code points, by category.
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

void append_run(std::vector<char32_t>& bounds, char32_t begin, char32_t end) {
  if (!bounds.empty() && bounds.back() == begin) bounds.pop_back();
  else bounds.push_back(begin);
  bounds.push_back(end);
}

}  // namespace

CharSet CharSet::of_range(char32_t first, char32_t last) {
  const char32_t bounds[] = {first, last + 1};
  return CharSet(bounds);
}

CharSet CharSet::of_categories(CategorySet categories) {
  CharSet set;
  for (const CategoryRun& run : category_runs())
    if ((run.category & categories) != 0) append_run(set.bounds_, run.begin, run.end);
  return set;
}

// `has` says whether a code point belongs to the result that belongs, or not, to the two.
template <class F>
CharSet CharSet::combined(const CharSet& other, F has) const {
  CharSet set;
  const std::vector<char32_t>&a = bounds_, &b = other.bounds_;
  std::size_t i = 0, j = 0;
  for (char32_t at = 0; at < kCodePoints;) {
    while (i < a.size() && a[i] <= at) ++i;
    while (j < b.size() && b[j] <= at) ++j;
    const char32_t end = std::min({i < a.size() ? a[i] : kCodePoints, j < b.size() ? b[j] : kCodePoints, kCodePoints});
    if (has(i % 2 == 1, j % 2 == 1)) append_run(set.bounds_, at, end);
    at = end;
  }
  return set;
}

CharSet CharSet::operator|(const CharSet& other) const { return combined(other, [](bool a, bool b) { return a || b; }); }
CharSet CharSet::operator&(const CharSet& other) const { return combined(other, [](bool a, bool b) { return a && b; }); }
CharSet CharSet::operator~() const { return combined({}, [](bool a, bool) { return !a; }); }

void CharSet::write_out() {
  bits_.assign(kUsual, false);
  for (std::size_t i = 0; i + 1 < bounds_.size(); i += 2)
    for (char32_t c = bounds_[i]; c < std::min(bounds_[i + 1], kUsual); ++c) bits_[c] = true;
}

}  // namespace trident

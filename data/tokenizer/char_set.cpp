#include "data/tokenizer/char_set.h"

#include <algorithm>
#include <cstdint>

namespace trident {

namespace {

constexpr char32_t kAscii = 128, kCodePoints = 0x110000;

struct CategoryRun {
  char32_t begin, end;
  CategorySet category;
};

// All code points beyond ASCII, by category.
const std::vector<CategoryRun>& category_runs() {
  static const std::vector<CategoryRun> runs = [] {
    std::vector<CategoryRun> found;
    for (char32_t c = kAscii; c < kCodePoints; ++c) {
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
  return of_bounds(bounds);
}

CharSet CharSet::of_categories(CategorySet categories) {
  CharSet set;
  set.categories_ = categories;
  for (char32_t c = 0; c < kAscii; ++c)
    if ((kAsciiSets[c] & categories) != 0) set.ascii_[c / 64] |= std::uint64_t{1} << (c % 64);
  return set;
}

CharSet CharSet::of_bounds(std::span<const char32_t> bounds) {
  CharSet set;
  for (std::size_t i = 0; i + 1 < bounds.size(); i += 2) {
    for (char32_t c = bounds[i]; c < std::min(bounds[i + 1], kAscii); ++c) set.ascii_[c / 64] |= std::uint64_t{1} << (c % 64);
    if (bounds[i + 1] > kAscii) append_run(set.runs_, std::max(bounds[i], kAscii), bounds[i + 1]);
  }
  set.has_runs_ = !set.runs_.empty();
  return set;
}

std::vector<char32_t> CharSet::runs() const {
  if (has_runs_) return runs_;
  std::vector<char32_t> bounds;
  if (categories_ == 0) return bounds;
  for (const CategoryRun& run : category_runs())
    if ((run.category & categories_) != 0) append_run(bounds, run.begin, run.end);
  return bounds;
}

// `bits` says of two sets' bits which ones the result has. Where one set has runs, both are swept over as runs.
template <class F>
CharSet CharSet::combined(const CharSet& other, F bits) const {
  CharSet set;
  for (std::size_t i = 0; i < ascii_.size(); ++i) set.ascii_[i] = bits(ascii_[i], other.ascii_[i]);
  set.has_runs_ = has_runs_ || other.has_runs_;
  if (!set.has_runs_) {
    set.categories_ = static_cast<CategorySet>(bits(std::uint64_t{categories_}, std::uint64_t{other.categories_}));
    return set;
  }
  const std::vector<char32_t> a = runs(), b = other.runs();
  std::size_t i = 0, j = 0;
  for (char32_t at = kAscii; at < kCodePoints;) {
    while (i < a.size() && a[i] <= at) ++i;
    while (j < b.size() && b[j] <= at) ++j;
    const char32_t end = std::min({i < a.size() ? a[i] : kCodePoints, j < b.size() ? b[j] : kCodePoints, kCodePoints});
    if ((bits(std::uint64_t{i % 2}, std::uint64_t{j % 2}) & 1) != 0) append_run(set.runs_, at, end);
    at = end;
  }
  return set;
}

CharSet CharSet::operator|(const CharSet& other) const {
  return combined(other, [](std::uint64_t a, std::uint64_t b) { return a | b; });
}

CharSet CharSet::operator&(const CharSet& other) const {
  return combined(other, [](std::uint64_t a, std::uint64_t b) { return a & b; });
}

CharSet CharSet::operator~() const {
  return combined({}, [](std::uint64_t a, std::uint64_t) { return ~a; });
}

bool CharSet::is_in_runs(char32_t c) const { return (std::ranges::upper_bound(runs_, c) - runs_.begin()) % 2 == 1; }

}  // namespace trident

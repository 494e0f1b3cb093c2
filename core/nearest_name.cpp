#include "core/nearest_name.h"

#include <algorithm>
#include <cctype>

#include "core/json_reader.h"

namespace trident {
namespace {

constexpr std::size_t kMaxCompared = 100;  // bytes of a name
constexpr std::size_t kMostEdits = 3;

bool same(char x, char y) { return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y)); }

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i)
    for (std::size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (same(a[i - 1], b[j - 1]) ? 0u : 1u)});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

std::string_view likely_name(std::string_view name, const std::vector<std::string_view>& candidates) {
  std::string_view best;
  if (name.size() > kMaxCompared) return best;
  std::size_t best_distance = std::clamp<std::size_t>(name.size() / 3, 1, kMostEdits) + 1;
  for (const std::string_view candidate : candidates) {
    const auto [shorter, longer] = std::minmax({name.size(), candidate.size()});
    if (longer - shorter >= best_distance) continue;  // it takes as many edits
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best_distance && distance < candidate.size()) best_distance = distance, best = candidate;
  }
  return best;
}

std::string name_hint(std::string_view name, const std::vector<std::string_view>& candidates) {
  std::string_view near = likely_name(name, candidates);
  const auto longer = std::ranges::find_if(candidates, [&](std::string_view it) { return it.starts_with(name); });
  if (near.empty() && longer != candidates.end() && !name.empty()) near = *longer;
  if (near.empty()) {
    std::vector<std::string_view> words;
    for (const std::string_view candidate : candidates)
      for (std::size_t end = 0; (end = candidate.find_first_of("-_.", end + 1)) != candidate.npos;)
        words.push_back(candidate.substr(0, end));
    near = likely_name(name, words);
    for (const std::string_view candidate : candidates)
      if (candidate.data() == near.data()) near = candidate;
  }
  return near.empty() ? "" : fmt::format("; did you mean {}?", in_quotes(near));
}

}  // namespace trident

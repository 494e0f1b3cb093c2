#include "data/document_starts.h"

#include <algorithm>
#include <cstddef>

namespace trident {

void find_behind_eod(std::span<const std::int32_t> tokens, std::int32_t eod, std::vector<std::int32_t>& begins) {
  for (std::size_t s = 0; s < tokens.size(); ++s)
    if (tokens[s] == eod) begins.push_back(static_cast<std::int32_t>(s + 1));
}

void find_sequences(IndexReader& index, std::int64_t first, std::int64_t count, std::vector<std::int32_t>& begins) {
  const IndexedDataset& dataset = index.dataset();
  const auto begin_of = [&](std::int64_t sequence) { return index.byte_offset(sequence) / size_of(dataset.type()); };
  std::int64_t low = 0, high = dataset.num_sequences();  // the first that begins behind `first` is one of low .. high
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (begin_of(middle) > first)
      high = middle;
    else
      low = middle + 1;
  }
  find_sequences_from(low, index, first, count, begins);
}

void find_sequences_from(std::int64_t sequence, IndexReader& index, std::int64_t first, std::int64_t count,
                         std::vector<std::int32_t>& begins) {
  const IndexedDataset& dataset = index.dataset();
  for (; sequence < dataset.num_sequences(); ++sequence) {
    const std::int64_t row = index.byte_offset(sequence) / size_of(dataset.type()) - first;
    if (row > count) return;
    index.check_sequence(sequence);  // the next one begins where it ends, so that rows ascend
    // The last of several empty ones counts.
    if (row > 0 && (begins.empty() || begins.back() != row)) begins.push_back(static_cast<std::int32_t>(row));
  }
}

void mark_documents(std::span<const std::int32_t> begins, bool masks_targets, std::int64_t sequence, std::int64_t i,
                    std::int64_t batch, const SampleSpans& spans) {
  if (masks_targets && !spans.targets.empty())
    for (const std::int32_t row : begins) spans.targets[static_cast<std::size_t>((row - 1) * batch + i)] = -1;
  if (spans.document_starts.empty()) return;
  const auto starts = spans.document_starts.subspan(static_cast<std::size_t>(i * sequence), static_cast<std::size_t>(sequence));
  std::size_t filled = 0;
  std::int32_t start = 0;
  const auto fill_to = [&](std::size_t end) {
    std::fill(starts.begin() + static_cast<std::ptrdiff_t>(filled), starts.begin() + static_cast<std::ptrdiff_t>(end), start);
    filled = end;
  };
  for (const std::int32_t row : begins) {
    fill_to(static_cast<std::size_t>(row));
    start = row;
  }
  fill_to(starts.size());
}

void hide_uncounted(std::span<const std::uint8_t> counts, std::int64_t i, std::int64_t batch, std::span<std::int32_t> targets) {
  for (std::int64_t s = 0; s < std::ssize(counts); ++s)
    if (counts[static_cast<std::size_t>(s)] == 0) targets[static_cast<std::size_t>(s * batch + i)] = -1;
}

}  // namespace trident

// Where documents begin within samples: which targets do not count, and which position each token has in its document.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/document_boundaries.h"
#include "data/indexed_dataset.h"

namespace trident {

// Samples are loaded into these; each may be empty.
struct SampleSpans {
  // [T, B], sequence-major: row s*B + i is position s of sample i. Targets below 0 do not count.
  std::span<std::int32_t> tokens = {}, targets = {};
  std::span<std::int32_t> document_starts = {};  // [B, T]: the position in the sample at which the token's document begins
  std::span<std::int64_t> numbers = {};          // [B]: of each pack's first sequence among those of all sources
};

struct DocumentRules {
  DocumentBoundaries boundaries = DocumentBoundaries::kEod;
  std::int32_t eod = -1;       // with kEod
  bool masks_targets = false;  // a target of another document than its input's does not count
};

// Appends to `begins`, ascending and each once, the rows 1 .. T at which a document begins in a sample of T tokens and the token
// behind them.
//
// After each `eod` of the T tokens.
void find_behind_eod(std::span<const std::int32_t> tokens, std::int32_t eod, std::vector<std::int32_t>& begins);
// At the sequences of the index that begin behind token `first` of the .bin, up to first + count: a binary search, then one after
// the other. DataError for an index that is damaged there.
void find_sequences(IndexReader& index, std::int64_t first, std::int64_t count, std::vector<std::int32_t>& begins);
// The same without the search: none before `sequence` begins there.
void find_sequences_from(std::int64_t sequence, IndexReader& index, std::int64_t first, std::int64_t count,
                         std::vector<std::int32_t>& begins);

// Fills the document_starts of sample i of `batch`, if there are any, and with `masks_targets` its targets that belong to another
// document than their inputs become -1. What lies before the first of `begins` counts from 0.
void mark_documents(std::span<const std::int32_t> begins, bool masks_targets, std::int64_t sequence, std::int64_t i,
                    std::int64_t batch, const SampleSpans& spans);

// Targets of sample i of `batch` become -1 where `counts`, of its T targets, is 0.
void hide_uncounted(std::span<const std::uint8_t> counts, std::int64_t i, std::int64_t batch, std::span<std::int32_t> targets);

}  // namespace trident

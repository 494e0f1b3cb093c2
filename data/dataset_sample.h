// Start-up reads few places of a dataset, whatever its size. They follow from the sizes alone, so that every node reads
// the same ones. `trident data inspect --check` looks at everything (dataset_summary.h).
#pragma once

#include <cstdint>

#include "data/indexed_dataset.h"

namespace trident {

// Each place costs at most a page of the file: 1 MiB of a dataset that is not in memory.
inline constexpr std::int64_t kSampledTokens = 128;
// Values of the index: a length and an offset of each sequence, an entry of each document.
inline constexpr std::int64_t kSampledSequences = 32, kSampledDocuments = 64;

// Place `i` of `count` spread over 0 .. n - 1, first and last among them; all of them where n <= count (then i < n).
std::int64_t spread_place(std::int64_t i, std::int64_t count, std::int64_t n);

// Reads those places. DataError: a value of the index that cannot be true, sequences with a gap between them, document entries that
// descend, an id outside 0 .. vocab_size - 1. Else a hash of all that was read, for comparison between nodes.
std::uint64_t sample_dataset(const IndexedDataset& dataset, std::int64_t vocab_size);

}  // namespace trident

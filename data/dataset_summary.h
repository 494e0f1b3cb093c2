// A whole dataset, read once: what `trident data inspect` shows and checks.
#pragma once

#include <cstdint>
#include <optional>

#include "core/on_progress.h"
#include "data/indexed_dataset.h"

namespace trident {

struct DatasetSummary {
  std::int64_t empty_documents = 0;
  // Tokens of the documents that are not empty, eod included; all 0 where there is none.
  std::int64_t shortest = 0, longest = 0;
  double mean_length = 0;
  std::optional<IdRange> ids;  // nothing without tokens
  // The token whose place at the ends of documents was counted, and how many documents it ends.
  std::optional<std::int64_t> end_token;
  std::int64_t documents_with_end_token = 0;
  // A mask says which tokens count as targets; documents with text may have none.
  std::int64_t counted_tokens = 0, documents_without_counted = 0;

  // Every document that is not empty ends in end_token.
  bool every_document_ends(const IndexedDataset& dataset) const {
    return end_token && documents_with_end_token == dataset.num_documents() - empty_documents;
  }
};

struct SummaryOptions {
  // The tokenizer's eod; not given: the last token of the first document that has one.
  std::optional<std::int64_t> end_token = std::nullopt;
  // Ids below 0 and from here on are refused; not given: whatever is stored is counted.
  std::optional<std::int64_t> vocab_size = std::nullopt;
};

// Reads the index and all tokens once, in order; memory does not grow with them. The first value of the index that cannot be true,
// or else the first id that is refused: DataError that names it, its place and its document. `progress` counts tokens and is called
// once per MB.
DatasetSummary summarize(const IndexedDataset& dataset, const SummaryOptions& options, const OnProgress& progress = {});

}  // namespace trident

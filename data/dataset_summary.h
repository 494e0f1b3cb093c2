// What an indexed dataset holds, in numbers: what `trident data inspect` shows.
#pragma once

#include <cstdint>
#include <optional>

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

  // Every document that is not empty ends in end_token.
  bool every_document_ends(const IndexedDataset& dataset) const {
    return end_token && documents_with_end_token == dataset.num_documents() - empty_documents;
  }
};

// Reads all tokens once. `end_token`: the tokenizer's eod; not given: the last token of the first document that has one.
DatasetSummary summarize(const IndexedDataset& dataset, std::optional<std::int64_t> end_token);

}  // namespace trident

#include "data/dataset_summary.h"

#include <algorithm>
#include <cstdint>

namespace trident {

DatasetSummary summarize(const IndexedDataset& dataset, std::optional<std::int64_t> end_token) {
  DatasetSummary summary;
  summary.end_token = end_token;
  std::int64_t begin = 0;
  for (std::int64_t d = 0; d < dataset.num_documents(); ++d) {
    const std::int64_t end = dataset.document_begin(d + 1), length = end - begin;
    begin = end;
    if (length == 0) {
      ++summary.empty_documents;
      continue;
    }
    summary.shortest = summary.shortest == 0 ? length : std::min(summary.shortest, length);
    summary.longest = std::max(summary.longest, length);
    const std::int64_t last = dataset.token_at(end - 1);
    if (!summary.end_token) summary.end_token = last;
    summary.documents_with_end_token += last == *summary.end_token;
  }
  if (dataset.num_tokens() == 0) return summary;
  summary.mean_length =
      static_cast<double>(dataset.num_tokens()) / static_cast<double>(dataset.num_documents() - summary.empty_documents);
  summary.ids = dataset.id_range(0, dataset.num_tokens());
  return summary;
}

}  // namespace trident

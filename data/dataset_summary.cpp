#include "data/dataset_summary.h"

#include <algorithm>

namespace trident {

namespace {

constexpr std::int64_t kPortion = std::int64_t{1} << 20;  // bytes of tokens that are read at once

void check_whole_index(const IndexedDataset& dataset) {
  IndexReader index(dataset);
  for (std::int64_t s = 0; s < dataset.num_sequences(); ++s) index.check_sequence(s);
  for (std::int64_t d = 0; d <= dataset.num_documents(); ++d) index.check_document(d);
}

// Counts documents as their ends come by.
class DocumentCounter {
 public:
  DocumentCounter(const IndexedDataset& dataset, DatasetSummary& summary) : dataset_(dataset), summary_(summary), index_(dataset) {}

  // The documents that end up to token `end`, after those that were counted before. `stored` holds the tokens from `begin` on.
  void count_until(std::int64_t end, const std::byte* stored, std::int64_t begin) {
    for (; document_ < dataset_.num_documents(); ++document_) {
      const std::int64_t document_end = index_.document_begin(document_ + 1), length = document_end - begin_;
      if (document_end > end) return;
      begin_ = document_end;
      if (length == 0) {
        ++summary_.empty_documents;
        continue;
      }
      summary_.shortest = summary_.shortest == 0 ? length : std::min(summary_.shortest, length);
      summary_.longest = std::max(summary_.longest, length);
      const std::byte* last_stored = stored + (document_end - 1 - begin) * size_of(dataset_.type());
      const std::int64_t last = dataset_.check_tokens(last_stored, document_end - 1, 1, std::nullopt).smallest;
      if (!summary_.end_token) summary_.end_token = last;
      summary_.documents_with_end_token += last == *summary_.end_token;
      if (dataset_.mask() == nullptr) continue;
      const std::int64_t counted = dataset_.mask()->counted(document_end - length, length);
      summary_.counted_tokens += counted;
      summary_.documents_without_counted += counted == 0;
    }
  }

 private:
  const IndexedDataset& dataset_;
  DatasetSummary& summary_;
  IndexReader index_;
  std::int64_t document_ = 0, begin_ = 0;  // the next one, and its first token
};

}  // namespace

DatasetSummary summarize(const IndexedDataset& dataset, const SummaryOptions& options, const OnProgress& progress) {
  check_whole_index(dataset);
  DatasetSummary summary;
  summary.end_token = options.end_token;
  DocumentCounter documents(dataset, summary);
  const std::int64_t total = dataset.num_tokens(), bytes = size_of(dataset.type()), portion = kPortion / bytes;
  BlockReader blocks(dataset.bin(), kPortion);
  for (std::int64_t begin = 0; begin < total; begin += portion) {
    const std::int64_t count = std::min(portion, total - begin);
    const std::byte* stored = blocks.bytes_at(begin * bytes, count * bytes);
    const IdRange ids = dataset.check_tokens(stored, begin, count, options.vocab_size);
    summary.ids =
        summary.ids ? IdRange{std::min(summary.ids->smallest, ids.smallest), std::max(summary.ids->largest, ids.largest)} : ids;
    documents.count_until(begin + count, stored, begin);
    if (progress) progress(begin + count, total);
  }
  if (total == 0)
    documents.count_until(0, nullptr, 0);
  else
    summary.mean_length = static_cast<double>(total) / static_cast<double>(dataset.num_documents() - summary.empty_documents);
  return summary;
}

}  // namespace trident

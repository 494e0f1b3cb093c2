#include "data/prepare.h"

#include <filesystem>
#include <system_error>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "data/document_reader.h"
#include "data/indexed_dataset.h"

namespace trident {

namespace {

constexpr std::int64_t kBatchBytes = 4 << 20;  // text that is tokenized before it is written

using Ids = std::vector<std::int32_t>;

// Tokenizes a batch of documents on several threads; results keep the documents' order.
class ParallelEncoder {
 public:
  ParallelEncoder(const Tokenizer& tokenizer, int workers) {
    for (int i = 0; i < workers; ++i) encoders_.push_back(tokenizer.new_encoder());
  }

  std::vector<Ids> encode(const std::vector<std::string>& documents) {
    std::vector<Ids> results(documents.size());
    std::atomic<std::size_t> next{0};
    const auto work = [&](Encoder& encoder) {
      for (std::size_t i = next++; i < documents.size(); i = next++) encoder.encode(documents[i], &results[i]);
    };
    std::vector<std::jthread> threads;
    for (std::size_t w = 1; w < encoders_.size(); ++w) threads.emplace_back([&, w] { work(*encoders_[w]); });
    work(*encoders_[0]);
    threads.clear();  // joins
    return results;
  }

  std::int64_t num_replaced() const {
    std::int64_t sum = 0;
    for (const auto& encoder : encoders_) sum += encoder->num_replaced();
    return sum;
  }

 private:
  std::vector<std::unique_ptr<Encoder>> encoders_;
};

// Collects documents, and tokenizes and writes them a batch at a time.
class Preparation {
 public:
  Preparation(const Tokenizer& tokenizer, const std::string& output_prefix, const PrepareOptions& options)
      : tokenizer_(tokenizer),
        options_(options),
        encoder_(tokenizer, options.workers),
        writer_(output_prefix, tokenizer.vocab_size()) {}

  // True if a batch was written.
  bool add(std::string document) {
    pending_bytes_ += static_cast<std::int64_t>(document.size());
    documents_.push_back(std::move(document));
    if (pending_bytes_ < kBatchBytes) return false;
    write_batch();
    return true;
  }

  PrepareStats finish() {
    write_batch();
    writer_.finish();
    stats_.documents = writer_.num_documents();
    stats_.tokens = writer_.num_tokens();
    stats_.replaced = encoder_.num_replaced();
    return stats_;
  }

 private:
  void write_batch() {
    for (Ids& ids : encoder_.encode(documents_)) {
      stats_.empty_documents += ids.empty();
      if (!ids.empty() && options_.append_eod == AppendEod::kYes) ids.push_back(tokenizer_.eod());
      writer_.add_document(ids);
    }
    stats_.bytes += std::exchange(pending_bytes_, 0);
    documents_.clear();
  }

  const Tokenizer& tokenizer_;
  const PrepareOptions& options_;
  ParallelEncoder encoder_;
  IndexedDatasetWriter writer_;
  std::vector<std::string> documents_;
  std::int64_t pending_bytes_ = 0;
  PrepareStats stats_;
};

}  // namespace

PrepareStats prepare_text(const std::vector<std::string>& inputs, const Tokenizer& tokenizer, const std::string& output_prefix,
                          const PrepareOptions& options, const std::function<void(const PrepareProgress&)>& progress) {
  if (inputs.empty()) throw ConfigError("--input: no files; name at least one text or JSONL file");
  if (options.workers < 1 || options.workers > 256)
    throw ConfigError(fmt::format("--workers = {}: allowed are 1 to 256", options.workers));
  const double start = monotonic_seconds();

  // All inputs are opened before any work is done: a typing error in the last name is told at once.
  std::vector<DocumentReader> readers;
  PrepareProgress done;
  for (const std::string& path : inputs) {
    for (const std::string& output : {bin_path(output_prefix), idx_path(output_prefix)}) {
      std::error_code ignored;  // of files that are not there
      if (path != output && !std::filesystem::equivalent(path, output, ignored)) continue;
      throw ConfigError(fmt::format("--output = {}: would overwrite the input {}; choose another prefix", output_prefix, path));
    }
    readers.emplace_back(path, options.json_key, options.separator_line);
    done.bytes_total += readers.back().bytes_total();
  }

  Preparation preparation(tokenizer, output_prefix, options);
  for (DocumentReader& reader : readers) {
    std::int64_t documents = 0;
    while (std::optional<std::string> document = reader.next()) {
      ++documents;
      const bool wrote = preparation.add(std::move(*document));
      if (wrote && progress) progress({done.bytes_done + reader.bytes_done(), done.bytes_total});
    }
    if (documents == 0) throw DataError(fmt::format("{}: holds no document; leave it out of --input", reader.path()));
    done.bytes_done += reader.bytes_total();
  }
  PrepareStats stats = preparation.finish();
  if (progress) progress({done.bytes_total, done.bytes_total});
  stats.seconds = monotonic_seconds() - start;
  return stats;
}

}  // namespace trident

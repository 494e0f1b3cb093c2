// Token files for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/file_io.h"
#include "data/dataset_files.h"
#include "data/indexed_dataset_writer.h"

namespace trident {

using Documents = std::vector<std::vector<std::int32_t>>;

// Without a record, as Megatron-LM's tools write it.
inline void write_dataset(const std::string& prefix, const Documents& documents, std::int64_t vocab_size) {
  IndexedDatasetWriter writer(prefix, vocab_size, Overwrite::kYes);
  for (const auto& document : documents) writer.add_document(document);
  writer.finish({});
  remove_file(record_path(prefix));
}

// With a record and a mask, of which `counts` has a bit for each token.
inline void write_masked_dataset(const std::string& prefix, const Documents& documents, std::span<const std::uint8_t> counts,
                                 std::int64_t vocab_size) {
  IndexedDatasetWriter writer(prefix, vocab_size, Overwrite::kYes, WithMask::kYes);
  for (const auto& document : documents) {
    writer.add_document(document, counts.first(document.size()));
    counts = counts.subspan(document.size());
  }
  writer.finish({});
}

// `count` documents of lengths 0, 1, 2, ... (mod 7) times 5; all tokens of all documents count up from 0, modulo vocab_size.
inline Documents counting_documents(std::int64_t count, std::int64_t vocab_size) {
  Documents documents;
  std::int64_t next = 0;
  for (std::int64_t d = 0; d < count; ++d) {
    std::vector<std::int32_t> document;
    for (std::int64_t i = 0; i < d % 7 * 5; ++i) document.push_back(static_cast<std::int32_t>(next++ % vocab_size));
    documents.push_back(std::move(document));
  }
  return documents;
}

// Puts `value` into a file, over what is there.
template <class T>
void change(const std::string& path, std::size_t offset, T value) {
  std::string bytes = read_file(path);
  std::memcpy(bytes.data() + offset, &value, sizeof value);
  write_file(path, bytes);
}

inline std::vector<std::int32_t> concatenation(const Documents& documents) {
  std::vector<std::int32_t> all;
  for (const auto& document : documents) all.insert(all.end(), document.begin(), document.end());
  return all;
}

// Tokens first .. first + count - 1, as a model of `vocab_size` tokens reads them.
inline std::vector<std::int32_t> tokens_of(const IndexedDataset& dataset, std::int64_t first, std::int64_t count,
                                           std::int64_t vocab_size) {
  std::vector<std::byte> stored(static_cast<std::size_t>(count * size_of(dataset.type())));
  dataset.read_tokens(first, count, stored);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  dataset.decode_tokens(stored.data(), first, count, vocab_size, ids.data(), 1);
  return ids;
}

}  // namespace trident

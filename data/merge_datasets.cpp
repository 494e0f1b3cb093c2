#include "data/merge_datasets.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/check.h"
#include "data/dataset_files.h"
#include "data/dataset_record.h"
#include "data/indexed_dataset_writer.h"

namespace trident {

namespace {

constexpr std::int64_t kCopiedAtOnce = std::int64_t{16} << 20;

void refuse_overwriting(const std::vector<std::string>& inputs, const std::string& output) {
  for (const std::string& input : inputs) {
    for (const std::string& old_path : {bin_path(input), idx_path(input)}) {
      for (const std::string& new_path : {bin_path(output), idx_path(output)}) {
        std::error_code ignored;  // of files that are not there
        if (old_path != new_path && !std::filesystem::equivalent(old_path, new_path, ignored)) continue;
        throw ConfigError(fmt::format("--output = {}: would overwrite the input {}; choose another prefix", output, input));
      }
    }
  }
}

void refuse_mixed_types(std::span<const IndexedDataset> datasets) {
  for (const IndexedDataset& dataset : datasets) {
    if (dataset.type() == datasets[0].type()) continue;
    throw DataError(fmt::format("{} holds tokens as {}, {} as {}; merge what one tokenizer made, or prepare the text again",
                                datasets[0].prefix(), name_of(datasets[0].type()), dataset.prefix(), name_of(dataset.type())));
  }
}

// Where the merged tokens come from; refuses inputs of different tokenizers.
DatasetOrigin origin_of(std::span<const IndexedDataset> datasets) {
  DatasetOrigin origin;
  const std::string* first = nullptr;  // the prefix whose tokenizer is known first
  bool all_known = true;
  std::optional<std::int64_t> packed = 0;  // the longest, where all are packs
  for (const IndexedDataset& dataset : datasets) {
    const std::optional<DatasetRecord> record = read_record(dataset.prefix());
    if (record) origin.add_sources(record->origin);
    else origin.add({bin_path(dataset.prefix()), dataset.bin().size()});
    all_known = all_known && record && record->origin.tokenizer;
    if (!record || !record->origin.packed) packed.reset();
    if (packed) packed = std::max(*packed, *record->origin.packed);
    const bool pairs = record && record->origin.pairs;
    if (&dataset != datasets.data() && pairs != origin.pairs)
      throw DataError(fmt::format("{} and {}: one is of pairs of answers (trident data prepare --preference) and the other is not; "
                                  "prepare both again, alike (earlier versions recorded no pairs), or take each by itself",
                                  datasets[0].prefix(), dataset.prefix()));
    origin.pairs = pairs;
    const std::string chat_template = record ? record->origin.chat_template : "";
    if (&dataset == datasets.data()) origin.chat_template = chat_template;
    else if (chat_template != origin.chat_template) origin.chat_template.clear();
    if (!record || !record->origin.tokenizer) continue;
    if (first == nullptr) {
      first = &dataset.prefix();
      origin.tokenizer = record->origin.tokenizer;
    } else if (*record->origin.tokenizer != *origin.tokenizer) {
      throw DataError(fmt::format("{} was made by {}, {} by {}; merge what one tokenizer made, or prepare the text again", *first,
                                  described(*origin.tokenizer), dataset.prefix(), described(*record->origin.tokenizer)));
    } else {
      refuse_other_around(record_path(dataset.prefix()), *record->origin.tokenizer, *first, *origin.tokenizer);
    }
  }
  if (!all_known) origin.tokenizer.reset();
  origin.packed = packed;
  return origin;
}

// Returns how many tokens count.
std::int64_t append_merged_masks(AtomicFile& file, std::span<const IndexedDataset> datasets, std::int64_t tokens) {
  LossMaskWriter mask(file, tokens);
  std::vector<std::uint8_t> counts;
  for (const IndexedDataset& dataset : datasets) {
    for (std::int64_t at = 0; at < dataset.num_tokens(); at += std::ssize(counts)) {
      counts.assign(static_cast<std::size_t>(std::min(kCopiedAtOnce, dataset.num_tokens() - at)), 1);
      if (dataset.mask() != nullptr) dataset.mask()->read(at, counts);
      for (const std::uint8_t count : counts) mask.append(count != 0);
    }
  }
  mask.finish();
  return mask.counted();
}

}  // namespace

std::pair<std::vector<IndexedDataset>, DatasetOrigin> open_inputs(const std::vector<std::string>& inputs,
                                                                 const std::string& output) {
  if (inputs.empty()) throw ConfigError("--input: no datasets; name at least one prefix of .bin and .idx");
  refuse_overwriting(inputs, output);
  std::vector<IndexedDataset> datasets;
  for (const std::string& input : inputs) datasets.emplace_back(input);
  refuse_mixed_types(datasets);
  DatasetOrigin origin = origin_of(datasets);
  return {std::move(datasets), std::move(origin)};
}

void append_merged_index(AtomicFile& idx, std::span<const IndexedDataset> datasets) {
  std::int64_t sequences = 0, documents = 0;
  for (const IndexedDataset& dataset : datasets) sequences += dataset.num_sequences(), documents += dataset.num_documents();
  append_index_header(idx, datasets[0].type(), sequences, documents);
  for (const IndexedDataset& dataset : datasets) {
    IndexReader index(dataset);
    for (std::int64_t s = 0; s < dataset.num_sequences(); ++s)
      append_value(idx, static_cast<std::int32_t>(index.sequence_length(s)));
  }
  std::int64_t offset = 0;
  for (const IndexedDataset& dataset : datasets) {
    IndexReader index(dataset);
    for (std::int64_t s = 0; s < dataset.num_sequences(); ++s) {
      append_value(idx, offset);
      index.check_sequence(s);
      offset += index.sequence_length(s) * size_of(dataset.type());
    }
  }
  std::int64_t sequences_before = 0;
  append_value(idx, sequences_before);
  for (const IndexedDataset& dataset : datasets) {
    IndexReader index(dataset);
    for (std::int64_t d = 1; d <= dataset.num_documents(); ++d) append_value(idx, sequences_before + index.check_document(d));
    sequences_before += dataset.num_sequences();
  }
}

MergeStats merge_datasets(const std::vector<std::string>& inputs, const std::string& output, Overwrite overwrite,
                          const OnProgress& progress) {
  const auto [datasets, origin] = open_inputs(inputs, output);
  MergeStats stats;
  for (const IndexedDataset& dataset : datasets) {
    stats.documents += dataset.num_documents();
    stats.sequences += dataset.num_sequences();
    stats.tokens += dataset.num_tokens();
    stats.bytes += dataset.bin().size();
  }

  const bool masked = std::ranges::any_of(datasets, [](const IndexedDataset& dataset) { return dataset.mask() != nullptr; });
  DatasetOutput files(output, overwrite, masked ? WithMask::kYes : WithMask::kNo);
  for (const IndexedDataset& dataset : datasets) {
    BlockReader blocks(dataset.bin(), kCopiedAtOnce);
    for (std::int64_t at = 0, size = dataset.bin().size(); at < size; at += kCopiedAtOnce) {
      const std::int64_t bytes = std::min(kCopiedAtOnce, size - at);
      files.bin().append({blocks.bytes_at(at, bytes), static_cast<std::size_t>(bytes)});
      if (progress) progress(files.bin().size(), stats.bytes);
    }
  }
  append_merged_index(files.idx(), datasets);
  if (masked) stats.counted = append_merged_masks(*files.mask(), datasets, stats.tokens);
  files.commit(origin, {stats.documents, stats.sequences, stats.tokens});
  return stats;
}

}  // namespace trident

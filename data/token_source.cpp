#include "data/token_source.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "core/check.h"
#include "core/counted.h"
#include "core/shell_word.h"
#include "data/dataset_record.h"

namespace trident {

namespace {

TokenSource whole(const std::string& path, double weight, const ReadAt& read_at, SampleKind samples, const PrepareHint& hint) {
  auto dataset = std::make_shared<const IndexedDataset>(path, read_at, hint);
  const std::int64_t num_tokens = dataset->num_tokens(), num_documents = dataset->num_documents();
  return {.dataset = std::move(dataset),
          .first_token = 0,
          .num_tokens = num_tokens,
          .weight = weight,
          .label = path,
          .samples = samples,
          .documents = {0, num_documents},
          .remedies = {}};
}

TokenSource part(const TokenSource& source, IndexRange documents, const std::string& name) {
  TokenSource result = source;
  const std::int64_t begin = source.dataset->document_begin(documents.begin), end = source.dataset->document_begin(documents.end);
  if (end < begin) {
    refuse_dataset(source.dataset->idx(),
                   fmt::format("document {} begins at token {}, document {} at {}: documents must follow each other",
                               documents.begin, begin, documents.end, end));
  }
  result.first_token = begin;
  result.num_tokens = end - begin;
  result.documents = documents;
  result.label = fmt::format("{} ({} part of data.split, {} of {})", source.label, name, documents.end - documents.begin,
                             counted(source.dataset->num_documents(), "document"));
  if (documents.begin == documents.end && source.samples == SampleKind::kPacked)
    result.remedies = ", or, as a split goes by whole packs, a larger share, such as --set data.split=80,20, or data.valid in its "
                      "place";
  else if (documents.begin == documents.end)
    result.remedies =
        ", or, as a split goes by whole documents, a larger share, text that is prepared as several documents (trident data "
        "prepare --separator-line), or data.valid in place of data.split";
  return result;
}

void check_weights(std::span<const WeightedPath> paths, std::string_view key) {
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (std::isfinite(paths[i].weight) && paths[i].weight > 0) continue;
    throw ConfigError(
        fmt::format("{}[{}].weight = {}: must be a positive number; leave the file out instead", key, i, paths[i].weight));
  }
  double sum = 0;
  for (const WeightedPath& path : paths) sum += path.weight;
  if (!std::isfinite(sum))
    throw ConfigError(fmt::format("{}: the weights add up to more than a number holds; use smaller ones", key));
}

// An error says which key named the file; ahead of all else, for it may end in a command to be pasted.
TokenSource opened(std::string_view key, const std::string& path, double weight, const ReadAt& read_at, SampleKind samples,
                   const PrepareHint& hint) {
  try {
    return whole(path, weight, read_at, samples, hint);
  } catch (Error& error) {
    error = Error(error.code(), fmt::format("{} = {}: {}", key, path, error.what()));  // what was thrown keeps its type
    throw;
  }
}

}  // namespace

std::int64_t samples_of(std::span<const TokenSource> sources, std::int64_t sequence) {
  std::int64_t samples = 0;
  for (const TokenSource& source : sources) samples += source.num_samples(sequence);
  return samples;
}

void refuse_long_pack(const TokenSource& source, std::int64_t document, std::int64_t tokens, std::int64_t sequence) {
  throw DataError(
      fmt::format("{}: document {} has {}, and with data.samples = \"packed\" it is a sample of at most {}; pack the "
                  "data: {}; lengthen batch.sequence (with trident eval --sequence), or "
                  "take documents that are no packs with data.samples = \"stream\"",
                  source.dataset->idx().path(), document, counted(tokens, "token"), sequence,
                  pack_command(source.dataset->prefix(), sequence)));
}

std::string pack_command(const std::string& prefix, std::int64_t sequence) {
  const bool is_packed = origin_in_record(prefix).packed.has_value();
  return fmt::format("trident data pack {} --sequence {} --output {}", for_shell(prefix), sequence,
                     for_shell(is_packed ? fmt::format("{}-{}", prefix, sequence) : prefix + "-packed"));
}

std::int64_t look_at_packs(const TokenSource& source, std::int64_t sequence, PackContent content) {
  const IndexedDataset& dataset = *source.dataset;
  IndexReader index(dataset);
  std::vector<std::uint8_t> counts;
  std::int64_t targets = 0;
  for (std::int64_t d = source.documents.begin, s = index.first_sequence(d); d < source.documents.end; ++d) {
    const std::int64_t begin = index.document_begin(d), tokens = index.document_begin(d + 1) - begin;
    if (tokens > sequence) refuse_long_pack(source, d, tokens, sequence);
    counts.assign(static_cast<std::size_t>(std::max<std::int64_t>(0, tokens)), 1);
    if (dataset.mask() != nullptr) dataset.mask()->read(begin, counts);
    auto at = counts.begin();
    const std::int64_t first = s, end = index.check_document(d + 1);
    std::int64_t without = 0;
    for (; s < end; ++s) {
      index.check_sequence(s);
      const std::int64_t length = index.sequence_length(s);
      const std::int64_t own = length > 0 ? std::accumulate(at + 1, at + length, std::int64_t{0}) : 0;
      targets += own, without += own == 0;
      at += length;
    }
    if (content == PackContent::kPairs && (without > 0 || end == first || (end - first) % 2 != 0))
      throw DataError(fmt::format("{}: document {} has {}, {} of them without a target that counts, and with loss.type = \"dpo\" "
                                  "every two are a pair of answers; prepare the data by trident data prepare --preference",
                                  dataset.prefix(), d, counted(end - first, "sequence"), without));
  }
  if (targets == 0 && source.documents.end > source.documents.begin)
    throw DataError(fmt::format("{}: of {} none has a target that counts; look at them by trident data inspect", dataset.prefix(),
                                counted(source.documents.end - source.documents.begin, "pack")));
  return targets;
}

TokenSources open_token_sources(std::span<const WeightedPath> train, std::span<const WeightedPath> valid,
                                const std::optional<std::string>& split, const ReadAt& read_at, SampleKind samples,
                                const PrepareHint& hint) {
  if (train.empty()) throw ConfigError("data.train = []: no training data; name at least one {\"path\": PREFIX}");
  if (!valid.empty() && split) {
    throw ConfigError(
        fmt::format("data.split = \"{}\": data.valid names held-out files already; set one of them to null", *split));
  }
  check_weights(train, "data.train");
  check_weights(valid, "data.valid");
  TokenSources sources;
  for (const auto& [path, weight] : train) {
    TokenSource source = opened("data.train", path, weight, read_at, samples, hint);
    if (split) {
      const auto ranges = split_documents(*split, source.dataset->num_documents());
      sources.train.push_back(part(source, ranges[0], "training"));
      sources.valid.push_back(part(source, ranges[1], "validation"));
    } else {
      sources.train.push_back(std::move(source));
    }
  }
  for (const auto& [path, weight] : valid) sources.valid.push_back(opened("data.valid", path, weight, read_at, samples, hint));
  return sources;
}

}  // namespace trident

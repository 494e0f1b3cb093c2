#include "data/token_source.h"

#include <cmath>
#include <cstdint>

#include "core/check.h"
#include "core/counted.h"
#include "data/sample_order.h"

namespace trident {

namespace {

TokenSource whole(const std::string& path, double weight, const ReadAt& read_at) {
  auto dataset = std::make_shared<const IndexedDataset>(path, read_at);
  const std::int64_t num_tokens = dataset->num_tokens();
  return {.dataset = std::move(dataset),
          .first_token = 0,
          .num_tokens = num_tokens,
          .weight = weight,
          .label = path,
          .remedies = {}};
}

TokenSource part(const TokenSource& source, DocumentRange documents, const std::string& name) {
  TokenSource result = source;
  const std::int64_t begin = source.dataset->document_begin(documents.begin), end = source.dataset->document_begin(documents.end);
  if (end < begin) {
    refuse_dataset(source.dataset->idx(),
                   fmt::format("document {} begins at token {}, document {} at {}: documents must follow each other",
                               documents.begin, begin, documents.end, end));
  }
  result.first_token = begin;
  result.num_tokens = end - begin;
  result.label = fmt::format("{} ({} part of data.split, {} of {})", source.label, name, documents.end - documents.begin,
                             counted(source.dataset->num_documents(), "document"));
  if (documents.begin == documents.end)
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
TokenSource opened(std::string_view key, const std::string& path, double weight, const ReadAt& read_at) {
  try {
    return whole(path, weight, read_at);
  } catch (Error& error) {
    error = Error(error.code(), fmt::format("{} = {}: {}", key, path, error.what()));  // what was thrown keeps its type
    throw;
  }
}

}  // namespace

TokenSources open_token_sources(std::span<const WeightedPath> train, std::span<const WeightedPath> valid,
                                const std::optional<std::string>& split, const ReadAt& read_at) {
  if (train.empty()) throw ConfigError("data.train = []: no training data; name at least one {\"path\": PREFIX}");
  if (!valid.empty() && split) {
    throw ConfigError(
        fmt::format("data.split = \"{}\": data.valid names held-out files already; set one of them to null", *split));
  }
  check_weights(train, "data.train");
  check_weights(valid, "data.valid");
  TokenSources sources;
  for (const auto& [path, weight] : train) {
    TokenSource source = opened("data.train", path, weight, read_at);
    if (split) {
      const auto ranges = split_documents(*split, source.dataset->num_documents());
      sources.train.push_back(part(source, ranges[0], "training"));
      sources.valid.push_back(part(source, ranges[1], "validation"));
    } else {
      sources.train.push_back(std::move(source));
    }
  }
  for (const auto& [path, weight] : valid) sources.valid.push_back(opened("data.valid", path, weight, read_at));
  return sources;
}

}  // namespace trident

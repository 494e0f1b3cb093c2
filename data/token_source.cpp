#include "data/token_source.h"

#include <cmath>

#include "core/check.h"
#include "data/sample_order.h"

namespace trident {

namespace {

TokenSource whole(const std::string& path, double weight) {
  auto dataset = std::make_shared<const IndexedDataset>(path);
  const std::int64_t num_tokens = dataset->num_tokens();
  return {.dataset = std::move(dataset), .first_token = 0, .num_tokens = num_tokens, .weight = weight, .label = path};
}

TokenSource part(const TokenSource& source, DocumentRange documents, const std::string& name) {
  TokenSource result = source;
  result.first_token = source.dataset->document_begin(documents.begin);
  result.num_tokens = source.dataset->document_begin(documents.end) - result.first_token;
  result.label = fmt::format("{} ({} part of data.split, {} of {} documents)", source.label, name, documents.end - documents.begin,
                             source.dataset->num_documents());
  return result;
}

}  // namespace

TokenSources open_token_sources(std::span<const WeightedPath> train, const std::optional<std::string>& valid,
                                const std::optional<std::string>& split) {
  if (train.empty()) throw ConfigError("data.train = []: no training data; name at least one {\"path\": PREFIX}");
  if (valid && split) {
    throw ConfigError(
        fmt::format("data.split = \"{}\": data.valid names a held-out file already; set one of them to null", *split));
  }
  TokenSources sources;
  for (std::size_t i = 0; i < train.size(); ++i) {
    const auto& [path, weight] = train[i];
    if (!std::isfinite(weight) || weight <= 0) {
      throw ConfigError(
          fmt::format("data.train[{}].weight = {}: must be a positive number; leave the file out instead", i, weight));
    }
    TokenSource source = whole(path, weight);
    if (split) {
      const auto ranges = split_documents(*split, source.dataset->num_documents());
      sources.train.push_back(part(source, ranges[0], "training"));
      sources.valid.push_back(part(source, ranges[1], "validation"));
    } else {
      sources.train.push_back(std::move(source));
    }
  }
  if (valid) sources.valid.push_back(whole(*valid, 1.0));
  return sources;
}

}  // namespace trident

// The config's data block, opened: which stretches of which files are trained on and which are held out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/document_boundaries.h"
#include "core/weighted_path.h"
#include "data/indexed_dataset.h"
#include "data/sample_order.h"

namespace trident {

// Consecutive tokens of one file, and their share in a blend.
struct TokenSource {
  std::shared_ptr<const IndexedDataset> dataset;
  std::int64_t first_token = 0;
  std::int64_t num_tokens = 0;
  double weight = 1.0;
  std::string label;  // for messages: the prefix, and which part of data.split this is
  SampleKind samples = SampleKind::kStream;
  IndexRange documents = {};                 // that these tokens are
  std::optional<std::int64_t> targets = {};  // that count, where packs were looked at: look_at_packs()
  std::string remedies;  // where it has less than a sample: what helps besides a shorter sequence and more text, ", or ..."

  std::int64_t num_samples(std::int64_t sequence) const {
    return samples == SampleKind::kPacked ? documents.end - documents.begin : num_samples_of(num_tokens, sequence);
  }
};

// Returns the samples of all sources, each once.
std::int64_t samples_of(std::span<const TokenSource> sources, std::int64_t sequence);

// Reads the index of a packed source, and its mask, once. DataError: a document of more than `sequence` tokens, or a damaged index;
// no target that counts; with kPairs a document that is not of pairs whose answers all have such. Returns how many targets count.
enum class PackContent : std::uint8_t { kSequences, kPairs };
std::int64_t look_at_packs(const TokenSource& source, std::int64_t sequence, PackContent content = PackContent::kSequences);
// "trident data pack PREFIX --sequence N --output PREFIX-packed", to be pasted.
std::string pack_command(const std::string& prefix, std::int64_t sequence);
[[noreturn]] void refuse_long_pack(const TokenSource& source, std::int64_t document, std::int64_t tokens, std::int64_t sequence);

struct TokenSources {
  std::vector<TokenSource> train;
  std::vector<TokenSource> valid;  // empty: nothing is held out
};

// data.train, data.valid, data.split as in the config. With `valid` those files are held out; with `split` each training file is
// cut by documents and its second share held out, blended by the same weights (the third share is used by neither); with none
// everything trains; `samples` says of all what a sample is. ConfigError: no training file, a weight that is not positive, both
// valid and split. DataError: as IndexedDataset. A split has only its boundaries looked up.
TokenSources open_token_sources(std::span<const WeightedPath> train, std::span<const WeightedPath> valid,
                                const std::optional<std::string>& split, const ReadAt& read_at = ::pread,
                                SampleKind samples = SampleKind::kStream, const PrepareHint& hint = {});

}  // namespace trident

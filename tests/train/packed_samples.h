// Samples of packed conversations for runs without files of their own: 19 sequences of 2 to 14 tokens, with a mask.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/batch_loader.h"
#include "data/pack_datasets.h"
#include "tests/data/token_files.h"
#include "train/run/rank_trainer.h"

namespace trident::testing {

inline constexpr std::int64_t kPackedSequence = 16;

// Writes the sequences, each a document, to `alone` and their packs to `packs`; vocabulary 97.
inline PackStats write_packs(const std::string& alone, const std::string& packs) {
  trident::Documents documents;
  std::vector<std::uint8_t> counts;
  for (std::int32_t d = 0; d < 19; ++d) {
    auto& ids = documents.emplace_back();
    for (std::int32_t t = 0; t < 2 + d * 5 % 13; ++t) {
      ids.push_back((7 * d + t * t) % 97);
      counts.push_back(t > 0 && (t + d) % 3 > 0);
    }
  }
  write_masked_dataset(alone, documents, counts, 97);
  return pack_datasets({alone}, packs, {.sequence = kPackedSequence});
}

// The documents of a prefix in their order, each a sample.
inline LoadSamples samples_of_packs(const std::string& prefix) {
  return [prefix](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
    const std::vector<WeightedPath> train = {{prefix, 1.0}};
    BatchLoader loader(open_token_sources(train, {}, {}, ::pread, SampleKind::kPacked).train,
                       {.sequence = kPackedSequence, .vocab_size = 97, .shuffle = Shuffle::kInOrder});
    loader.load(first, count, spans);
  };
}

}  // namespace trident::testing

// Token and target ids of a micro-batch, read from the files into the caller's buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/blend.h"
#include "data/document_starts.h"
#include "data/sample_order.h"
#include "data/token_source.h"

namespace trident {

struct BatchLoaderOptions {
  std::int64_t sequence = 0;    // T, the config's batch.sequence
  std::int64_t vocab_size = 0;  // ids must be below it (the unpadded vocabulary)
  std::uint64_t seed = 0;
  Shuffle shuffle = Shuffle::kPerEpoch;
  BlendStart blend_start = {};  // one source: nothing
  DocumentRules documents = {};
};

// One rank's loader; loaders of several ranks share the files. load() and prefetch() allocate nothing.
class BatchLoader {
 public:
  // Sources of one kind of samples. One without a full sample of T+1 tokens, or without a pack: DataError that names it.
  BatchLoader(std::vector<TokenSource> sources, const BatchLoaderOptions& options);

  // Samples of one pass over every source.
  std::int64_t samples_per_epoch() const;
  // Sequences of one pass over every source of packs.
  std::int64_t sequences_per_epoch() const { return num_sequences_; }
  // Samples of each source at positions below `position`; ascending positions are cheap.
  std::vector<std::int64_t> taken_before(std::int64_t position) { return blend_counted_.taken_before(position); }
  const BlendStart& blend_start() const { return options_.blend_start; }

  // Fills tokens[s*B + i] and targets[s*B + i] with tokens s and s+1 of the sample at position first_position + i (see
  // BatchSlicing), and document_starts as DocumentRules has it. A target that does not count in the source's mask is -1. Each span
  // may be empty: the first pipeline stage needs only tokens, the last only targets. One pread per sample, another of its mask, and
  // with boundaries by the index those of find_sequences(). A pack of fewer than T tokens is padded: token 0, target -1, a document
  // of each row; its sequences are documents that predict nothing of each other. One of more: DataError. An id outside the
  // vocabulary: DataError that names file, position, id and document. A file that cannot be read, or became shorter: StorageError.
  void load(std::int64_t first_position, std::int64_t batch, const SampleSpans& spans);

  // Asks the kernel to read what load() of the same positions will copy, and returns without waiting. Called a step ahead, between
  // steps, it lets the disk work while the step computes, so that load() finds its pages in memory instead of waiting inside the
  // step. Costs a system call per sample; load() does not depend on it.
  void prefetch(std::int64_t first_position, std::int64_t batch);
  // The same for all micro-batches of a data rank in a step (numbered from 0).
  void prefetch_step(const BatchSlicing& slicing, std::int64_t step, std::int64_t data_rank);

 private:
  struct Sample {
    const TokenSource& source;
    std::size_t dataset;       // its number
    std::int64_t first_token, tokens;  // those to read: sequence + 1, or all of a pack
    std::int64_t first_sequence = 0;   // of a pack
  };
  Sample sample_at(Blend& blend, std::int64_t position);
  bool is_packed() const { return sources_.front().samples == SampleKind::kPacked; }
  void find_documents(const Sample& sample, std::int64_t inputs);

  std::vector<TokenSource> sources_;
  BatchLoaderOptions options_;
  std::vector<SampleOrder> orders_;  // one per source
  std::vector<std::int64_t> before_;  // of packs: what a source adds to the number of a sequence in its file
  std::int64_t num_sequences_ = 0;
  Blend blend_;
  std::vector<std::byte> stored_;    // of a sample as it is in the file
  std::vector<IndexReader> indices_;           // with boundaries by the index: one per source
  std::vector<std::int32_t> inputs_, begins_;  // of a sample: with boundaries by an eod its tokens, and where documents begin
  std::vector<std::uint8_t> counts_;           // whether targets of a sample count, where a source has a mask
  Blend blend_counted_;  // of taken_before
  Blend blend_ahead_;  // of prefetch, which asks further ahead: a blend is cheap only for ascending positions
};

}  // namespace trident

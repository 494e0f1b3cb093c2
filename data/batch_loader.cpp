#include "data/batch_loader.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/check.h"

namespace trident {

namespace {

std::vector<double> weights_of(const std::vector<TokenSource>& sources) {
  std::vector<double> weights;
  for (const TokenSource& source : sources) weights.push_back(source.weight);
  return weights;
}

}  // namespace

BatchLoader::BatchLoader(std::vector<TokenSource> sources, const BatchLoaderOptions& options)
    : sources_(std::move(sources)), options_(options), blend_(weights_of(sources_), options.blend_start), blend_counted_(blend_), blend_ahead_(blend_) {
  TRIDENT_CHECK(options_.sequence > 0 && options_.vocab_size > 0, "sequence {}, vocabulary {}", options_.sequence,
                options_.vocab_size);
  for (const TokenSource& source : sources_) {
    const std::int64_t num_samples = num_samples_of(source.num_tokens, options_.sequence);
    if (num_samples == 0) {
      throw DataError(fmt::format("{}: {} tokens available, batch.sequence = {} needs {}; use a shorter sequence or more text{}",
                                  source.label, source.num_tokens, options_.sequence, options_.sequence + 1, source.remedies));
    }
    orders_.emplace_back(num_samples, options_.seed, options_.shuffle, static_cast<std::uint32_t>(orders_.size()));
    const std::int64_t bytes = (options_.sequence + 1) * size_of(source.dataset->type());
    stored_.resize(std::max(stored_.size(), static_cast<std::size_t>(bytes)));
  }
}

std::int64_t BatchLoader::samples_per_epoch() const {
  std::int64_t sum = 0;
  for (const SampleOrder& order : orders_) sum += order.num_samples();
  return sum;
}

void BatchLoader::load(std::int64_t first_position, std::int64_t batch, std::span<std::int32_t> tokens,
                       std::span<std::int32_t> targets) {
  const auto elements = static_cast<std::size_t>(options_.sequence * batch);
  TRIDENT_CHECK(tokens.empty() || tokens.size() == elements, "{} tokens for [{}, {}]", tokens.size(), options_.sequence, batch);
  TRIDENT_CHECK(targets.empty() || targets.size() == elements, "{} targets for [{}, {}]", targets.size(), options_.sequence, batch);
  if (tokens.empty() && targets.empty()) return;
  for (std::int64_t i = 0; i < batch; ++i) {
    const Sample sample = sample_at(blend_, first_position + i);
    const IndexedDataset& dataset = *sample.source.dataset;
    const std::int64_t skipped = tokens.empty() ? 1 : 0, count = options_.sequence + (targets.empty() ? 0 : 1) - skipped;
    dataset.read_tokens(sample.first_token + skipped, count,
                        std::span(stored_).first(static_cast<std::size_t>(count * size_of(dataset.type()))));
    const auto decode = [&](std::int64_t first, std::span<std::int32_t> out) {
      if (out.empty()) return;
      const std::byte* stored = stored_.data() + (first - skipped) * size_of(dataset.type());
      dataset.decode_tokens(stored, sample.first_token + first, options_.sequence, options_.vocab_size, out.data() + i, batch);
    };
    decode(0, tokens);
    decode(1, targets);
  }
}

void BatchLoader::prefetch(std::int64_t first_position, std::int64_t batch) {
  for (std::int64_t i = 0; i < batch; ++i) {
    const Sample sample = sample_at(blend_ahead_, first_position + i);
    sample.source.dataset->will_need(sample.first_token, options_.sequence + 1);
  }
}

void BatchLoader::prefetch_step(const BatchSlicing& slicing, std::int64_t step, std::int64_t data_rank) {
  for (std::int64_t k = 0; k < slicing.num_micro_batches(); ++k) prefetch(slicing.first_sample(step, k, data_rank), slicing.micro);
}

BatchLoader::Sample BatchLoader::sample_at(Blend& blend, std::int64_t position) const {
  const BlendedSample blended = blend.at(position);
  const auto d = static_cast<std::size_t>(blended.dataset);
  const TokenSource& source = sources_[d];
  return {source, source.first_token + orders_[d].sample_at(blended.index) * options_.sequence};
}

}  // namespace trident

#include "data/batch_loader.h"

#include <algorithm>
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
  const bool by_index = options_.documents.boundaries == DocumentBoundaries::kIndex || is_packed();
  if (is_packed()) options_.documents.masks_targets = true;
  if (!by_index && options_.documents.eod >= 0) inputs_.resize(static_cast<std::size_t>(options_.sequence));
  if (by_index || !inputs_.empty()) begins_.reserve(static_cast<std::size_t>(options_.sequence));
  for (const TokenSource& source : sources_) {
    const std::int64_t num_samples = source.num_samples(options_.sequence);
    if (num_samples == 0 && is_packed())
      throw DataError(fmt::format("{}: has no document, and with data.samples = \"packed\" a sample is one; give more text{}",
                                  source.label, source.remedies));
    if (num_samples == 0) {
      throw DataError(fmt::format("{}: {} tokens available, batch.sequence = {} needs {}; use a shorter sequence or more text{}",
                                  source.label, source.num_tokens, options_.sequence, options_.sequence + 1, source.remedies));
    }
    orders_.emplace_back(num_samples, options_.seed, options_.shuffle, static_cast<std::uint32_t>(orders_.size()));
    const std::int64_t bytes = (options_.sequence + 1) * size_of(source.dataset->type());
    stored_.resize(std::max(stored_.size(), static_cast<std::size_t>(bytes)));
    if (source.dataset->mask() != nullptr) counts_.resize(static_cast<std::size_t>(options_.sequence));
    if (by_index) indices_.emplace_back(*source.dataset, IndexReader::Blocks::kNone);
    if (!is_packed()) continue;
    const std::int64_t first = indices_.back().first_sequence(source.documents.begin);
    before_.push_back(num_sequences_ - first);
    num_sequences_ += indices_.back().first_sequence(source.documents.end) - first;
  }
}

std::int64_t BatchLoader::samples_per_epoch() const {
  std::int64_t sum = 0;
  for (const SampleOrder& order : orders_) sum += order.num_samples();
  return sum;
}

void BatchLoader::load(std::int64_t first_position, std::int64_t batch, const SampleSpans& spans) {
  const auto& [tokens, targets, starts, numbers] = spans;
  const auto elements = static_cast<std::size_t>(options_.sequence * batch);
  for (const std::size_t size : {tokens.size(), targets.size(), starts.size()})
    TRIDENT_CHECK(size == 0 || size == elements, "{} tokens, {} targets, {} starts for [{}, {}]", tokens.size(), targets.size(),
                  starts.size(), options_.sequence, batch);
  const DocumentRules& documents = options_.documents;
  const bool finds = !starts.empty() || (documents.masks_targets && !targets.empty());
  const bool by_eod = finds && !inputs_.empty();
  if (!finds && tokens.empty() && targets.empty()) return;
  for (std::int64_t i = 0; i < batch; ++i) {
    const Sample sample = sample_at(blend_, first_position + i);
    if (!numbers.empty()) numbers[static_cast<std::size_t>(i)] = before_.at(sample.dataset) + sample.first_sequence;
    const IndexedDataset& dataset = *sample.source.dataset;
    const bool reads_inputs = by_eod || !tokens.empty();
    const std::int64_t predicted = std::max<std::int64_t>(0, sample.tokens - 1), inputs = is_packed() ? sample.tokens : predicted;
    const std::int64_t skipped = reads_inputs ? 0 : 1, count = (targets.empty() ? inputs : sample.tokens) - skipped;
    if (count > 0 && (reads_inputs || !targets.empty()))
      dataset.read_tokens(sample.first_token + skipped, count,
                          std::span(stored_).first(static_cast<std::size_t>(count * size_of(dataset.type()))));
    // Tokens first .. first + n - 1 of the sample; what lies behind them in the column becomes `padding`.
    const auto decode = [&](std::int64_t first, std::int64_t n, std::int32_t* out, std::int64_t stride, std::int32_t padding) {
      const std::byte* stored = stored_.data() + (first - skipped) * size_of(dataset.type());
      dataset.decode_tokens(stored, sample.first_token + first, n, options_.vocab_size, out, stride);
      for (; n < options_.sequence; ++n) out[n * stride] = padding;
    };
    if (!tokens.empty()) decode(0, inputs, tokens.data() + i, batch, 0);
    if (!targets.empty()) decode(1, predicted, targets.data() + i, batch, -1);
    if (const LossMask* const mask = dataset.mask(); mask != nullptr && !targets.empty() && predicted > 0) {
      const std::span counts = std::span(counts_).first(static_cast<std::size_t>(predicted));
      mask->read(sample.first_token + 1, counts);
      hide_uncounted(counts, i, batch, targets);
    }
    if (!finds) continue;
    begins_.clear();
    if (by_eod) {
      decode(0, inputs, inputs_.data(), 1, 0);
      find_behind_eod(inputs_, documents.eod, begins_);
    } else if (!indices_.empty()) {
      find_documents(sample, inputs);
    }
    mark_documents(begins_, documents.masks_targets, options_.sequence, i, batch, spans);
  }
}

void BatchLoader::prefetch(std::int64_t first_position, std::int64_t batch) {
  for (std::int64_t i = 0; i < batch; ++i) {
    const Sample sample = sample_at(blend_ahead_, first_position + i);
    sample.source.dataset->will_need(sample.first_token, sample.tokens);
  }
}

void BatchLoader::prefetch_step(const BatchSlicing& slicing, std::int64_t step, std::int64_t data_rank) {
  for (std::int64_t k = 0; k < slicing.num_micro_batches(); ++k) prefetch(slicing.first_sample(step, k, data_rank), slicing.micro);
}

BatchLoader::Sample BatchLoader::sample_at(Blend& blend, std::int64_t position) {
  const BlendedSample blended = blend.at(position);
  const auto d = static_cast<std::size_t>(blended.dataset);
  const TokenSource& source = sources_[d];
  const std::int64_t sample = orders_[d].sample_at(blended.index);
  if (!is_packed()) return {source, d, source.first_token + sample * options_.sequence, options_.sequence + 1};
  const std::int64_t document = source.documents.begin + sample, begin = indices_[d].document_begin(document),
                     tokens = indices_[d].document_begin(document + 1) - begin;
  if (tokens > options_.sequence) refuse_long_pack(source, document, tokens, options_.sequence);
  if (tokens < 0) indices_[d].refuse_document(document + 1, indices_[d].first_sequence(document + 1));
  return {source, d, begin, tokens, indices_[d].first_sequence(document)};
}

// By the index, into begins_. Each row of padding is by itself.
void BatchLoader::find_documents(const Sample& sample, std::int64_t inputs) {
  IndexReader& index = indices_[sample.dataset];
  if (!is_packed()) return find_sequences(index, sample.first_token, options_.sequence, begins_);
  find_sequences_from(sample.first_sequence, index, sample.first_token, inputs - 1, begins_);
  for (std::int64_t row = std::max<std::int64_t>(1, inputs); row < options_.sequence; ++row)
    begins_.push_back(static_cast<std::int32_t>(row));
}

}  // namespace trident

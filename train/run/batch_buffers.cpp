#include "train/run/batch_buffers.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace trident {

BatchBuffers::BatchBuffers(const RunPlan& plan, Device& device, int stage, LossDetail detail, ArenaPlan& arena_plan)
    : plan_(plan), device_(device), stage_(stage), detail_(detail),
      angles_(plan.model, detail == LossDetail::kOfTokens ? plan.num_micro_batches * plan.config.batch.micro : 0,
              plan.config.batch.sequence, arena_plan) {
  const BatchConfig& batch = plan_.config.batch;
  const std::int64_t m = plan_.num_micro_batches, tokens = batch.micro * batch.sequence;
  const auto book = [&](const char* name, std::int64_t elements, DType dtype) {
    return arena_plan.book(name, MemoryUse::kData, elements * size_of(dtype));
  };
  slots_ = {book("tokens", m * tokens, DType::kI32),
            book("targets", m * tokens, DType::kI32),
            book("positions by row", tokens, DType::kI32),
            book("positions by sample", (detail_ == LossDetail::kOfTokens ? m : 1) * tokens, DType::kI32),
            book("sample numbers", m * batch.micro, DType::kI64),
            book("losses", m, DType::kF64),
            detail_ == LossDetail::kOfTokens ? book("losses of tokens", m * tokens, DType::kF32) : ArenaSlot{}};
}

void BatchBuffers::bind(Arena& arena) {
  const std::int64_t m = plan_.num_micro_batches, b = plan_.config.batch.micro, t = plan_.config.batch.sequence;
  angles_.bind(arena);
  tokens_ = arena.grant(slots_.tokens, DType::kI32, {m, t * b});
  targets_ = arena.grant(slots_.targets, DType::kI32, {m, t * b});
  positions_by_row_ = arena.grant(slots_.positions_by_row, DType::kI32, {t * b});
  const std::int64_t kinds = detail_ == LossDetail::kOfTokens ? m : 1;  // of micro-batches: all are alike but for lengths
  positions_by_sample_ = arena.grant(slots_.positions_by_sample, DType::kI32, {kinds, b * t});
  samples_ = arena.grant(slots_.samples, DType::kI64, {m, b});
  losses_ = arena.grant(slots_.losses, DType::kF64, {m});
  if (detail_ == LossDetail::kOfTokens) token_losses_ = arena.grant(slots_.token_losses, DType::kF32, {m, t * b});
  if (device_.has_bytes()) {
    write_positions();
    host_.tokens.resize(static_cast<std::size_t>(m * t * b));
    host_.targets.resize(host_.tokens.size());
    host_.samples.resize(static_cast<std::size_t>(m * b));
    if (detail_ == LossDetail::kOfTokens) host_.token_losses.resize(host_.tokens.size());
  }
  host_.losses.resize(static_cast<std::size_t>(m));
  micro_batches_.resize(static_cast<std::size_t>(m));
  for (std::int64_t k = 0; k < m; ++k) {
    MicroBatch& mb = micro_batches_[static_cast<std::size_t>(k)];
    mb.tokens = tokens_.rows(k, 1).flat();
    mb.targets = targets_.rows(k, 1).flat();
    mb.positions_by_row = positions_by_row_;
    mb.positions_by_sample = positions_by_sample_.rows(k % kinds, 1).reshape({b, t});
    mb.samples = samples_.rows(k, 1).flat();
    mb.loss = losses_.range(k, 1);
    if (detail_ == LossDetail::kOfTokens) mb.token_losses = token_losses_.rows(k, 1).flat();
  }
}

void BatchBuffers::write_positions() {
  const std::int64_t b = plan_.config.batch.micro, t = plan_.config.batch.sequence;
  std::vector<std::int32_t> by_row(static_cast<std::size_t>(t * b));
  std::vector<std::int32_t> by_sample(static_cast<std::size_t>(positions_by_sample_.shape().num_elements()));
  for (std::size_t i = 0; i < by_row.size(); ++i) by_row[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) / b);
  for (std::size_t i = 0; i < by_sample.size(); ++i) by_sample[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % t);
  device_.write(device_.compute_stream(), positions_by_row_, by_row.data());
  device_.write(device_.compute_stream(), positions_by_sample_, by_sample.data());
}

void BatchBuffers::set_lengths(const SampleTokens& tokens, const ModelConstants& constants, std::int64_t batch,
                               const BatchSlicing& slicing, int data) {
  if ((constants.short_rows() == 0 && !angles_.any()) || !device_.has_bytes()) return;  // one table for all lengths
  const std::int64_t t = plan_.config.batch.sequence;
  std::vector<std::int32_t>& rows = host_.positions_by_sample;
  rows.clear();
  for (std::int64_t k = 0; k < plan_.num_micro_batches; ++k) {
    const std::int64_t first = slicing.first_sample(batch, k, data);
    for (std::int64_t i = 0; i < slicing.micro; ++i) {
      const std::int64_t length = std::max<std::int64_t>(tokens(first + i), 1);
      const std::int64_t begin = angles_.any() ? i * t : constants.first_row(length);
      // Padding may lie behind the table.
      const std::int64_t last = (angles_.any() ? length : begin == 0 ? t : constants.short_rows()) - 1;
      if (angles_.any()) angles_.set(k * slicing.micro + i, length, device_);
      for (std::int64_t s = 0; s < t; ++s) rows.push_back(static_cast<std::int32_t>(begin + std::min(s, last)));
    }
    if (!angles_.any()) continue;
    MicroBatch& mb = micro_batches_[static_cast<std::size_t>(k)];
    mb.rope_cos = angles_.cos(k * slicing.micro, slicing.micro);
    mb.rope_sin = angles_.sin(k * slicing.micro, slicing.micro);
  }
  device_.write(device_.compute_stream(), positions_by_sample_, rows.data());
}

void BatchBuffers::load(const LoadSamples& load, std::int64_t batch, const BatchSlicing& slicing, int data) {
  const bool counts = is_last() && plan_.counts_targets();
  counted_ = counts && !device_.has_bytes() ? micro_batches_.size() * plan_.config.batch.micro * plan_.config.batch.sequence : 0;
  if (!device_.has_bytes()) return;
  const auto tokens_of_one = static_cast<std::size_t>(plan_.config.batch.micro * plan_.config.batch.sequence);
  for (std::int64_t k = 0; k < plan_.num_micro_batches; ++k) {
    const std::int64_t first = slicing.first_sample(batch, k, data);
    const auto ids = [&](std::vector<std::int32_t>& all, bool wanted) {
      return wanted ? std::span(all).subspan(static_cast<std::size_t>(k) * tokens_of_one, tokens_of_one)
                    : std::span<std::int32_t>();
    };
    if (is_first() || is_last())
      load(first, slicing.micro, {.tokens = ids(host_.tokens, is_first()), .targets = ids(host_.targets, is_last())});
    for (std::int64_t i = 0; i < slicing.micro; ++i) host_.samples[static_cast<std::size_t>(k * slicing.micro + i)] = first + i;
  }
  if (counts) counted_ = std::ranges::count_if(host_.targets, [](std::int32_t target) { return target >= 0; });
  Stream& stream = device_.compute_stream();
  if (is_first()) device_.write(stream, tokens_, host_.tokens.data());
  if (is_last()) device_.write(stream, targets_, host_.targets.data());
  device_.write(stream, samples_, host_.samples.data());
}

std::span<const double> BatchBuffers::read_losses() {
  device_.read(device_.compute_stream(), host_.losses.data(), losses_);
  return host_.losses;
}

std::span<const float> BatchBuffers::read_token_losses() {
  if (device_.has_bytes()) device_.read(device_.compute_stream(), host_.token_losses.data(), token_losses_);
  return host_.token_losses;
}

}  // namespace trident

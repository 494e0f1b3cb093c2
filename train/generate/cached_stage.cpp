#include "train/generate/cached_stage.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/int_math.h"
#include "model/declare.h"
#include "model/gpt.h"

namespace trident {
namespace {

constexpr auto kSaved = static_cast<std::size_t>(Region::kSaved), kSavedForW = static_cast<std::size_t>(Region::kSavedForW);

LayerGeometry with_extent(LayerGeometry geometry, std::int64_t sequence, std::int64_t batch) {
  geometry.sequence = sequence;
  geometry.micro_batch = batch;
  return geometry;
}

}  // namespace

std::vector<std::int64_t> piece_rows_for(std::int64_t longest) {
  std::vector<std::int64_t> rows{8};
  for (const std::int64_t size : {32, 128, 512}) {
    if (longest >= size) rows.push_back(size);
  }
  return rows;
}

std::vector<std::int64_t> pieces_of_prompt(std::int64_t tokens, std::span<const std::int64_t> rows) {
  std::vector<std::int64_t> pieces;
  for (std::size_t size = rows.size(); size-- > 0;) {
    for (; tokens >= rows[size]; tokens -= rows[size]) pieces.push_back(rows[size]);
  }
  if (tokens > 0) pieces.push_back(rows.front());
  return pieces;
}

CachedStage::CachedStage(const ModelConfig& model, const LayerGeometry& geometry, const std::vector<int>& units,
                         const CachedShapes& shapes, ParallelContext& context, ArenaPlan& plan)
    : model_(model), shapes_(shapes), context_(context), constants_(model, with_extent(geometry, shapes.capacity, 1), plan) {
  TRIDENT_CHECK(!geometry.sequence_parallel, "a cached stage under sequence parallelism");
  for (const std::int64_t rows : shapes_.piece_rows) variants_.push_back({with_extent(geometry, rows, 1), {}});
  variants_.push_back({with_extent(geometry, 1, shapes_.slots), {}});
  for (const int number : units) {
    Unit& unit = units_.emplace_back();
    unit.number = number;
    unit.layer = make_unit(model_, number);
    for (Variant& variant : variants_) {
      const UnitPlan planned =
          plan_cached_unit(*unit.layer, variant.geometry, model_, shapes_.capacity, constants_, context_.device().ops(), number);
      unit.params = planned.params();
      variant.memory.push_back(planned.memory());
      most_rows_ = std::max(most_rows_, variant.geometry.full_rows());
      for (std::size_t r = 0; r < region_bytes_.size(); ++r)
        region_bytes_[r] = std::max(region_bytes_[r], planned.region_bytes(static_cast<Region>(r)));
    }
  }
  book(plan);
}

void CachedStage::book(ArenaPlan& plan) {
  const DType compute = variants_.front().geometry.compute;
  const int tensor_degree = variants_.front().geometry.tensor_degree;
  static constexpr auto kNames =
      std::to_array<const char*>({"activations of a unit", "activations of a unit for weight gradients", "recomputed activations",
                                  "recomputed activations for weight gradients", "kept gradients", "scratch", "workspace"});
  static_assert(kNames.size() == kNumRegions);
  for (std::size_t r = 0; r < region_bytes_.size(); ++r) {
    const MemoryUse use = r == kSaved || r == kSavedForW ? MemoryUse::kActivations : MemoryUse::kWorkspace;
    region_slots_[r] = plan.book(kNames[r], use, region_bytes_[r]);
  }
  for (ArenaSlot& slot : activation_slots_)
    slot = plan.book("activations between units", MemoryUse::kActivations, most_rows_ * model_.hidden * size_of(compute));
  const std::int64_t head_bytes = local_kv_heads(model_, tensor_degree) * model_.head_dim * size_of(compute);
  const std::int64_t cache_bytes = shapes_.slots * shapes_.capacity * head_bytes;
  for (Unit& unit : units_) {
    if (unit.number == 0 || unit.number == head_unit(model_)) continue;
    unit.keys_slot = plan.book(fmt::format("keys of block {}", unit.number - 1), MemoryUse::kActivations, cache_bytes);
    unit.values_slot = plan.book(fmt::format("values of block {}", unit.number - 1), MemoryUse::kActivations, cache_bytes);
    cache_bytes_per_position_ += 2 * head_bytes;
  }
  const std::int64_t row_bytes = most_rows_ * size_of(DType::kI32);
  tokens_slot_ = plan.book("tokens", MemoryUse::kData, row_bytes);
  by_row_slot_ = plan.book("positions by row", MemoryUse::kData, row_bytes);
  by_sample_slot_ = plan.book("positions by sample", MemoryUse::kData, row_bytes);
  samples_slot_ = plan.book("sample numbers", MemoryUse::kData, shapes_.slots * size_of(DType::kI64));
  const std::int64_t columns = padded_vocabulary(model_, tensor_degree) / tensor_degree;
  logits_slot_ = plan.book("logits of last tokens, f32", MemoryUse::kActivations,
                           is_last_stage() ? shapes_.slots * columns * size_of(DType::kF32) : 0);
}

std::vector<UnitParams> CachedStage::unit_params() const {
  std::vector<UnitParams> params;
  for (const Unit& unit : units_) params.push_back({unit.number, unit.params});
  return params;
}

void CachedStage::bind(Arena& arena, const InferenceWeights& weights) {
  weights_ = &weights;
  Device& device = context_.device();
  constants_.bind(arena, device);
  const DType compute = variants_.front().geometry.compute;
  const int tensor_degree = variants_.front().geometry.tensor_degree;
  for (std::size_t r = 0; r < regions_.size(); ++r)
    regions_[r] = arena.grant(region_slots_[r], DType::kU8, {region_slots_[r].bytes}).data();
  for (std::size_t i = 0; i < activations_.size(); ++i)
    activations_[i] = arena.grant(activation_slots_[i], compute, {most_rows_ * model_.hidden});
  caches_.resize(static_cast<std::size_t>(num_units(model_)));
  slot_caches_.resize(caches_.size());
  const Shape kept{shapes_.slots, local_kv_heads(model_, tensor_degree), shapes_.capacity, model_.head_dim};
  for (const Unit& unit : units_) {
    if (unit.number == 0 || unit.number == head_unit(model_)) continue;
    LayerCache& cache = caches_[static_cast<std::size_t>(unit.number)];
    cache = {arena.grant(unit.keys_slot, compute, kept), arena.grant(unit.values_slot, compute, kept)};
    // Places without a token are multiplied by a probability of 0, and must be numbers.
    device.ops().fill_zero(device.compute_stream(), cache.keys);
    device.ops().fill_zero(device.compute_stream(), cache.values);
  }
  tokens_ = arena.grant(tokens_slot_, DType::kI32, {most_rows_});
  by_row_ = arena.grant(by_row_slot_, DType::kI32, {most_rows_});
  by_sample_ = arena.grant(by_sample_slot_, DType::kI32, {most_rows_});
  samples_ = arena.grant(samples_slot_, DType::kI64, {shapes_.slots});
  if (is_last_stage()) {
    const std::int64_t columns = padded_vocabulary(model_, tensor_degree) / tensor_degree;
    all_logits_ = arena.grant(logits_slot_, DType::kF32, {shapes_.slots, columns});
  }
}

void CachedStage::extend(std::int64_t slot, std::int64_t first, std::span<const std::int32_t> tokens, std::int64_t rows,
                         bool choose) {
  const auto found = std::ranges::find(shapes_.piece_rows, rows);
  TRIDENT_CHECK(
      found != shapes_.piece_rows.end() && !tokens.empty() && std::ssize(tokens) <= rows && slot >= 0 && slot < shapes_.slots,
      "{} tokens of slot {} in a piece of {} rows", tokens.size(), slot, rows);
  for (std::size_t unit = 0; unit < caches_.size(); ++unit) {
    if (caches_[unit].keys.data() != nullptr)
      slot_caches_[unit] = {caches_[unit].keys.rows(slot, 1), caches_[unit].values.rows(slot, 1)};
  }
  firsts_ = {first};
  counts_ = {std::ssize(tokens)};
  const CachedStep step{shapes_.capacity, firsts_, counts_, slot_caches_, is_last_stage() ? all_logits_.rows(0, 1) : TensorView()};
  run(variants_[static_cast<std::size_t>(found - shapes_.piece_rows.begin())], step, tokens, choose);
}

void CachedStage::step(std::span<const Next> next) {
  TRIDENT_CHECK(std::ssize(next) == shapes_.slots, "{} tokens for {} slots", next.size(), shapes_.slots);
  firsts_.clear();
  counts_.assign(next.size(), 1);
  token_rows_.clear();
  for (const Next& n : next) {
    firsts_.push_back(n.position);
    token_rows_.push_back(n.token);
  }
  run(variants_.back(), {shapes_.capacity, firsts_, counts_, caches_, all_logits_}, token_rows_, true);
}

void CachedStage::write_batch(const Variant& variant, const CachedStep& step, std::span<const std::int32_t> tokens) {
  const std::int64_t S = variant.geometry.sequence, B = variant.geometry.micro_batch;
  std::vector<std::int32_t>& row_tokens = token_rows_;
  if (row_tokens.data() != tokens.data()) row_tokens.assign(tokens.begin(), tokens.end());
  row_tokens.resize(static_cast<std::size_t>(S * B), 0);
  positions_by_row_.resize(static_cast<std::size_t>(S * B));
  positions_by_sample_.resize(static_cast<std::size_t>(S * B));
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t s = 0; s < S; ++s) {
      const auto position = static_cast<std::int32_t>(std::min(step.first[static_cast<std::size_t>(b)] + s, shapes_.capacity - 1));
      positions_by_row_[static_cast<std::size_t>(s * B + b)] = position;
      positions_by_sample_[static_cast<std::size_t>(b * S + s)] = position;
    }
  }
  Device& device = context_.device();
  Stream& stream = context_.compute_stream();
  device.write(stream, tokens_.range(0, S * B), row_tokens.data());
  device.write(stream, by_row_.range(0, S * B), positions_by_row_.data());
  device.write(stream, by_sample_.range(0, S * B), positions_by_sample_.data());
}

void CachedStage::run(const Variant& variant, const CachedStep& step, std::span<const std::int32_t> tokens, bool choose) {
  const LayerGeometry& g = variant.geometry;
  Stream& stream = context_.compute_stream();
  write_batch(variant, step, tokens);
  MicroBatch batch;
  batch.tokens = tokens_.range(0, g.full_rows());
  batch.positions_by_row = by_row_.range(0, g.full_rows());
  batch.positions_by_sample = by_sample_.range(0, g.full_rows()).reshape({g.micro_batch, g.sequence});
  batch.samples = samples_.range(0, g.micro_batch);
  batch.training = false;
  batch.cached = &step;
  logits_ = choose ? step.logits : TensorView();
  stream.wait(sent_);
  const auto activation = [&](std::size_t i) {
    return activations_[i].range(0, g.full_rows() * model_.hidden).reshape(g.activation_shape(model_.hidden));
  };
  std::size_t from = 0;
  if (!is_first_stage()) {
    Stream& arrivals = context_.recv_stream(Direction::kForward);
    arrivals.wait(stream.record());
    context_.pipeline(Direction::kForward).recv(arrivals, activation(from), context_.coordinates().pipeline - 1);
    stream.wait(arrivals.record());
  }
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const Unit& unit = units_[i];
    const bool is_head = unit.number == head_unit(model_);
    if (is_head && !choose) continue;
    PassPlace place{.ops = context_.device().ops(),
                    .stream = stream,
                    .tensor = context_.tensor(),
                    .params = weights_->of(unit.number),
                    .geometry = g,
                    .unit = unit.number,
                    .base = regions_,
                    .workspace_bytes = region_bytes_[static_cast<std::size_t>(Region::kWorkspace)],
                    .where = activations_[0].where()};
    LayerPass pass(Pass(place, variant.memory[i]), batch, constants_);
    const TensorView x = unit.number == 0 ? TensorView() : activation(from);
    unit.layer->forward(pass, x, is_head ? TensorView() : activation(1 - from));
    from = 1 - from;
  }
  if (is_last_stage()) return;
  Stream& departures = context_.send_stream(Direction::kForward);
  departures.wait(stream.record());
  context_.pipeline(Direction::kForward).send(departures, activation(from), context_.coordinates().pipeline + 1);
  sent_ = departures.record();
}

}  // namespace trident

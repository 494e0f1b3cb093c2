#include "pipeline/cached_stage.h"

#include <algorithm>
#include <utility>

#include "core/at.h"
#include "core/int_math.h"
#include "device/operations.h"
#include "device/ops.h"
#include "model/declare.h"
#include "parallel/zero/param_layout.h"
#include "pipeline/stage_regions.h"
#include "tensor_parallel/store_views.h"

namespace trident {
namespace {

// Rows without a token may cost less than the passes of smaller pieces, each of which reads all weights. With 512 rows they
// seldom do (docs/benchmarks/2026-11-24-generate.md).
bool fills(std::int64_t tokens, std::int64_t rows) { return tokens >= (rows > 128 ? rows / 8 * 7 : rows / 4 * 3); }

LayerGeometry with_extent(LayerGeometry geometry, std::int64_t sequence, std::int64_t batch) {
  geometry.sequence = sequence;
  geometry.micro_batch = batch;
  geometry.sequence_parallel = false;
  geometry.recompute = RecomputePolicy::kNone;
  geometry.document_interval = 0;  // a text is one document
  geometry.positions_restart = false;
  return geometry;
}

// Caches of layers with a window that hides some of the text have room for a pass behind what it sees; as much again, so that what
// moves does not overlap.
CacheCapacities capacities_of(const ModelConfig& model, const KvCacheShape& shapes) {
  const std::int64_t window = model.sliding_window;
  if (window == 0 || window >= shapes.capacity) return {shapes.capacity, 0};
  return {shapes.capacity, std::min(shapes.capacity, 2 * (window - 1) + shapes.piece_rows.back())};
}

}  // namespace

std::vector<std::int64_t> piece_rows_for(std::int64_t longest) {
  std::vector<std::int64_t> rows{8};
  for (const std::int64_t size : {64, 128, 512}) {
    if (fills(longest, size)) rows.push_back(size);
  }
  return rows;
}

std::vector<std::int64_t> pieces_of_prompt(std::int64_t tokens, std::span<const std::int64_t> rows) {
  std::vector<std::int64_t> pieces;
  for (std::size_t size = rows.size(); size-- > 0;) {
    for (; fills(tokens, rows[size]); tokens -= std::min(tokens, rows[size])) pieces.push_back(rows[size]);
  }
  if (tokens > 0) pieces.push_back(rows.front());
  return pieces;
}

KvCacheShape shapes_for(const ModelConfig& model, std::int64_t longest, std::int64_t new_tokens, std::int64_t slots,
                        std::string_view key) {
  const std::int64_t positions = model.longest_sequence(), positions_left = positions - longest;
  if (positions_left < 1)
    throw ConfigError(
        fmt::format("the longest prompt has {} tokens, and leaves no room for {} new ones in the model's {} positions; shorten it",
                    longest, new_tokens, positions));
  if (new_tokens > positions_left)
    throw ConfigError(
        fmt::format("{} = {}: with the longest prompt, of {} tokens, that is more than the model's {} positions; use at most {}",
                    key, new_tokens, longest, positions, positions_left));
  const std::int64_t capacity = longest + new_tokens - 1;  // the last new token is never looked at
  // Sequences that outgrow longrope's original context are computed again, in pieces that do not depend on prompts.
  const bool outgrow = model.rope.scaling == RopeScaling::kLongRope && capacity > model.rope.original_max_positions;
  return {capacity, slots, piece_rows_for(outgrow ? std::max(longest, model.rope.original_max_positions) : longest)};
}

CachedStage::CachedStage(const ModelConfig& model, const LayerGeometry& geometry, const UnitsOfStage& units_of_stage,
                         const KvCacheShape& shapes, ParallelContext& context, ArenaPlan& plan)
    : model_(model),
      shapes_(shapes),
      capacities_(capacities_of(model, shapes)),
      context_(context),
      constants_(model, with_extent(geometry, shapes.capacity, 1), plan, ModelConstants::Lengths::kGrowing),
      prompt_angles_(model, 1, shapes.capacity, plan),
      first_rows_(static_cast<std::size_t>(shapes.slots)),
      lengths_(static_cast<std::size_t>(shapes.slots)),
      window_bases_(static_cast<std::size_t>(shapes.slots)) {
  for (const std::int64_t rows : shapes_.piece_rows) variants_.push_back({with_extent(geometry, rows, 1), {}});
  variants_.push_back({with_extent(geometry, 1, shapes_.slots), {}});
  last_virtual_stage_ = static_cast<int>(units_of_stage.size()) - 1;
  for (int s = context_.coordinates().pipeline; s <= last_virtual_stage_; s += context_.grid().degrees().pipeline) {
    Chunk& chunk = chunks_.emplace_back();
    chunk.virtual_stage = s;
    for (const int number : at(units_of_stage, s)) chunk.units.push_back(planned_unit(number));
  }
  book(plan);
}

CachedStage::Unit CachedStage::planned_unit(int number) {
  Unit unit;
  unit.number = number;
  unit.layer = make_unit(model_, number);
  for (Variant& variant : variants_) {
    const UnitPlan planned =
        plan_cached_unit(*unit.layer, variant.geometry, model_, capacities_, constants_, context_.device().ops(), number);
    unit.params = planned.params();
    variant.memory.push_back(planned.memory());
    most_rows_ = std::max(most_rows_, variant.geometry.full_rows());
    unit.derived_bytes = planned.region_bytes(Region::kDerived);
    for (std::size_t r = 0; r < region_bytes_.size(); ++r)
      if (r != kDerived) region_bytes_[r] = std::max(region_bytes_[r], planned.region_bytes(static_cast<Region>(r)));
  }
  return unit;
}

void CachedStage::book(ArenaPlan& plan) {
  const DType compute = variants_.front().geometry.compute;
  const int tensor_degree = variants_.front().geometry.tensor_degree;
  for (std::size_t r = 0; r < region_bytes_.size(); ++r) {
    if (r == kDerived) continue;
    const MemoryUse use = is_saved(r) ? MemoryUse::kActivations : MemoryUse::kWorkspace;
    region_slots_[r] = plan.book(std::string(to_string(static_cast<Region>(r))), use, region_bytes_[r]);
  }
  for (BookedTensor& activation : activations_)
    activation = {plan, "activations between units", MemoryUse::kActivations, compute, {most_rows_ * model_.hidden}};
  const std::int64_t kv_heads = local_kv_heads(model_, tensor_degree);
  for_each_block([&](Unit& unit) {
    const Shape kept{shapes_.slots, kv_heads, capacity_of(unit), model_.head_dim};
    unit.keys = {plan, fmt::format("keys of block {}", unit.number - 1), MemoryUse::kActivations, compute, kept};
    unit.values = {plan, fmt::format("values of block {}", unit.number - 1), MemoryUse::kActivations, compute, kept};
    if (unit.derived_bytes > 0)
      unit.derived_slot = plan.book(derived_name(unit.number), MemoryUse::kParameters, unit.derived_bytes);
    cache_bytes_per_position_ += 2 * kv_heads * model_.head_dim * size_of(compute);
  });
  const std::int64_t columns = padded_vocabulary(model_, tensor_degree) / tensor_degree;
  tokens_ = {plan, "tokens", MemoryUse::kData, DType::kI32, {most_rows_}};
  by_row_ = {plan, "positions by row", MemoryUse::kData, DType::kI32, {most_rows_}};
  by_sample_ = {plan, "positions by sample", MemoryUse::kData, DType::kI32, {most_rows_}};
  first_key_ = {plan, "first keys in the window", MemoryUse::kData, DType::kI32, {capacities_.window > 0 ? most_rows_ : 0}};
  samples_ = {plan, "sample numbers", MemoryUse::kData, DType::kI64, {shapes_.slots}};
  all_logits_ = {plan, "logits of last tokens, f32", MemoryUse::kActivations, DType::kF32,
                 {is_last_stage() ? shapes_.slots : 0, columns}};
}

std::vector<UnitParams> CachedStage::unit_params() const {
  std::vector<UnitParams> params;
  for (const Chunk& chunk : chunks_)
    for (const Unit& unit : chunk.units) params.push_back({unit.number, unit.params});
  return params;
}

std::int64_t CachedStage::positions_seen(std::int64_t tokens) const {
  std::int64_t blocks = 0, seen = 0;
  for (const Chunk& chunk : chunks_) {
    for (const Unit& unit : chunk.units) {
      if (unit.number == 0 || unit.number == head_unit(model_)) continue;
      seen += slides(unit) ? std::min(tokens, model_.sliding_window) : tokens;
      ++blocks;
    }
  }
  return blocks == 0 ? tokens : seen / blocks;
}

std::int64_t CachedStage::weight_bytes_per_token() const {
  const LayerGeometry& g = variants_.front().geometry;
  std::int64_t elements = 0;
  for (const Chunk& chunk : chunks_) {
    for (const Unit& unit : chunk.units) {
      if (unit.number == 0) continue;
      for (const ParamSpec& spec : unit.params) elements += local_shape(spec, g.tensor_degree).num_elements();
    }
  }
  return elements * size_of(g.compute);
}

void CachedStage::bind(Arena& arena, ParamStore& store) {
  store_ = &store;
  Device& device = context_.device();
  constants_.bind(arena, device);
  prompt_angles_.bind(arena);
  for (std::size_t r = 0; r < regions_.size(); ++r)
    if (r != kDerived) regions_[r] = arena.grant(region_slots_[r], DType::kU8, {region_slots_[r].bytes}).data();
  caches_.resize(static_cast<std::size_t>(num_units(model_)));
  slot_caches_.resize(caches_.size());
  for_each_block([&](Unit& unit) {
    if (unit.derived_bytes > 0) unit.derived = arena.grant(unit.derived_slot, DType::kU8, {unit.derived_bytes}).data();
    for (BookedTensor* const cache : {&unit.keys, &unit.values}) {
      cache->bind(arena);
      // Places without a token are multiplied by a probability of 0, and must be numbers.
      device.ops().run(device.compute_stream(), op::FillZero{.out = *cache});
    }
    at(caches_, unit.number) = {unit.keys, unit.values};
  });
  for (BookedTensor& activation : activations_) activation.bind(arena);
  for (BookedTensor* const tensor : {&tokens_, &by_row_, &by_sample_, &first_key_, &samples_, &all_logits_}) tensor->bind(arena);
}

bool CachedStage::set_length(std::int64_t slot, std::int64_t tokens) {
  lengths_.at(static_cast<std::size_t>(slot)) = tokens;
  std::int64_t& first_row = first_rows_.at(static_cast<std::size_t>(slot));
  const std::int64_t before = std::exchange(first_row, constants_.first_row(tokens));
  return before != first_row;
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
  if (prompt_angles_.any()) prompt_angles_.set(0, at(lengths_, slot), context_.device());
  firsts_ = {first};
  counts_ = {std::ssize(tokens)};
  const CachedStep step = step_of(slot, slot_caches_, is_last_stage() ? all_logits_.rows(0, 1) : TensorView());
  run(at(variants_, found - shapes_.piece_rows.begin()), step, slot, tokens, choose);
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
  run(variants_.back(), step_of(0, caches_, all_logits_), 0, token_rows_, true);
}

CachedStep CachedStage::step_of(std::int64_t slot, std::span<const LayerCache> caches, TensorView logits) {
  const CachePlaces all{capacities_.all, firsts_};
  if (capacities_.window == 0) return {all, {}, counts_, caches, logits};
  window_firsts_.assign(firsts_.size(), 0);
  window_moved_.assign(firsts_.size(), 0);
  for (std::size_t b = 0; b < firsts_.size(); ++b) {
    std::int64_t& base = window_bases_[static_cast<std::size_t>(slot) + b];
    if (firsts_[b] == 0) base = 0;  // another text begins
    if (firsts_[b] - base + counts_[b] > capacities_.window) {
      const std::int64_t kept_from = firsts_[b] - (model_.sliding_window - 1);
      window_moved_[b] = kept_from - base;
      base = kept_from;
    }
    window_firsts_[b] = firsts_[b] - base;
  }
  return {all, {capacities_.window, window_firsts_, window_moved_}, counts_, caches, logits};
}

void CachedStage::write_batch(const Variant& variant, const CachedStep& step, std::int64_t slot,
                              std::span<const std::int32_t> tokens) {
  const std::int64_t S = variant.geometry.sequence, B = variant.geometry.micro_batch;
  std::vector<std::int32_t>& row_tokens = token_rows_;
  if (row_tokens.data() != tokens.data()) row_tokens.assign(tokens.begin(), tokens.end());
  row_tokens.resize(static_cast<std::size_t>(S * B), 0);
  positions_by_row_.resize(static_cast<std::size_t>(S * B));
  positions_by_sample_.resize(static_cast<std::size_t>(S * B));
  first_keys_.resize(static_cast<std::size_t>(S * B));
  for (std::int64_t b = 0; b < B; ++b) {
    const std::int64_t first_row = at(first_rows_, slot + b);
    const bool of_prompt = prompt_angles_.any() && &variant != &variants_.back();
    const std::int64_t rows = of_prompt        ? at(lengths_, slot + b)
                              : first_row == 0 ? shapes_.capacity
                                               : constants_.short_rows();
    for (std::int64_t s = 0; s < S; ++s) {
      const std::int64_t first = at(step.all.first, b);
      const auto position = static_cast<std::int32_t>(std::min(first + s, shapes_.capacity - 1));
      at(positions_by_row_, s * B + b) = position;
      // Rows of padding lie behind the sequence, perhaps behind its table.
      at(positions_by_sample_, b * S + s) =
          static_cast<std::int32_t>(first_row + std::min<std::int64_t>(position, rows - 1));
      if (step.window.capacity == 0) continue;
      const std::int64_t place = std::min(at(step.window.first, b) + s, step.window.capacity - 1);
      at(first_keys_, b * S + s) =
          static_cast<std::int32_t>(std::max<std::int64_t>(place - model_.sliding_window + 1, 0));
    }
  }
  Device& device = context_.device();
  Stream& stream = context_.compute_stream();
  device.write(stream, tokens_.range(0, S * B), row_tokens.data());
  device.write(stream, by_row_.range(0, S * B), positions_by_row_.data());
  device.write(stream, by_sample_.range(0, S * B), positions_by_sample_.data());
  if (step.window.capacity > 0) device.write(stream, first_key_.range(0, S * B), first_keys_.data());
}

void CachedStage::run(const Variant& variant, const CachedStep& step, std::int64_t slot, std::span<const std::int32_t> tokens,
                      bool choose) {
  const LayerGeometry& g = variant.geometry;
  Stream& stream = context_.compute_stream();
  write_batch(variant, step, slot, tokens);
  MicroBatch batch;
  batch.tokens = tokens_.range(0, g.full_rows());
  batch.positions_by_row = by_row_.range(0, g.full_rows());
  batch.positions_by_sample = by_sample_.range(0, g.full_rows()).reshape({g.micro_batch, g.sequence});
  if (step.window.capacity > 0)
    batch.first_key_in_window = first_key_.range(0, g.full_rows()).reshape({g.micro_batch, g.sequence});
  batch.samples = samples_.range(0, g.micro_batch);
  // A prompt turns by the angles of its whole length, and keys stay as they were turned.
  if (prompt_angles_.any() && &variant != &variants_.back())
    batch.rope_cos = prompt_angles_.cos(0, 1), batch.rope_sin = prompt_angles_.sin(0, 1);
  batch.training = false;
  batch.cached = &step;
  logits_ = choose ? step.logits : TensorView();
  const auto activation = [&](std::size_t i) {
    return activations_[i].range(0, g.full_rows() * model_.hidden).reshape(g.activation_shape(model_.hidden));
  };
  std::size_t from = 0, index = 0;
  for (Chunk& chunk : chunks_) {
    stream.wait(sent_);  // it may be sent from what is written next
    if (chunk.virtual_stage > 0) receive(activation(from));
    for (Unit& unit : chunk.units) {
      const bool is_head = unit.number == head_unit(model_);
      if (!is_head || choose)
        run_unit(unit, index, variant, batch, unit.number == 0 ? TensorView() : activation(from),
                 is_head ? TensorView() : activation(1 - from));
      from = 1 - from;
      ++index;
    }
    if (chunk.virtual_stage < last_virtual_stage_) send(activation(from));
  }
}

void CachedStage::run_unit(Unit& unit, std::size_t index, const Variant& variant, const MicroBatch& batch, ConstTensorView x,
                           TensorView y) {
  constexpr int kPlace = 0;  // of a gathered unit: there is none beside it
  if (!store_->resident()) store_->gather(unit.number, kPlace);
  store_->wait_gathered(unit.number, kPlace);
  const StoreViews params(*store_, unit.number);
  PassEnvironment place{.ops = context_.device().ops(),
                  .stream = context_.compute_stream(),
                  .tensor = context_.tensor(),
                  .params = params,
                  .geometry = variant.geometry,
                  .unit = unit.number,
                  .base = regions_,
                  .workspace_bytes = at(region_bytes_, Region::kWorkspace),
                  .where = activations_[0].where()};
  place.base[kDerived] = unit.derived;
  LayerPass pass(Pass(place, variant.memory[index]), batch, constants_);
  if (unit.derived_bytes > 0 && std::exchange(unit.derived_version, store_->weights_version()) != store_->weights_version())
    unit.layer->derive(pass);
  unit.layer->forward(pass, x, y);
  if (!store_->resident()) store_->free(unit.number, kPlace);
}

void CachedStage::receive(TensorView activation) {
  const int stages = context_.grid().degrees().pipeline;
  if (stages == 1) return;  // the chunk before lies here, and left it there
  Stream &stream = context_.compute_stream(), &arrivals = context_.recv_stream(Direction::kForward);
  arrivals.wait(stream.record());
  context_.pipeline(Direction::kForward).recv(arrivals, activation, (context_.coordinates().pipeline + stages - 1) % stages);
  stream.wait(arrivals.record());
}

void CachedStage::send(ConstTensorView activation) {
  const int stages = context_.grid().degrees().pipeline;
  if (stages == 1) return;
  Stream& departures = context_.send_stream(Direction::kForward);
  departures.wait(context_.compute_stream().record());
  context_.pipeline(Direction::kForward).send(departures, activation, (context_.coordinates().pipeline + 1) % stages);
  sent_ = departures.record();
}

}  // namespace trident

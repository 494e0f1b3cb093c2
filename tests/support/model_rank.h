// A whole model on one tensor-parallel rank: plans every unit, owns its memory, runs forward and backward of one micro-batch. What
// a pipeline stage does, in test form.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "core/zero_policy.h"
#include "model/gpt.h"
#include "model/head.h"
#include "model/model_constants.h"
#include "parallel/zero/param_store.h"
#include "tensor_parallel/store_views.h"
#include "tests/support/reference_model.h"
#include "tests/support/tensor_rank.h"

namespace trident::testing {

class ModelRank {
 public:
  ModelRank(TensorRank& rank, const ModelConfig& config, const LayerGeometry& geometry, const LogicalTensors& weights)
      : rank_(rank), config_(config), geometry_(geometry), constants_(config, geometry, arena_plan_),
        store_({.policy = policy_of(ZeroPreset::kDdp), .compute = geometry.compute}, plan_units(), rank.context, arena_plan_) {
    arena_ = std::make_unique<Arena>(arena_plan_, rank.device.allocate(arena_plan_.total_bytes(), "arena"));
    store_.bind(*arena_);
    constants_.bind(*arena_, rank.device);
    for (int unit = 0; unit < num_units(config); ++unit) {
      const std::vector<ParamSpec>& specs = plans_[index(unit)].params();
      for (std::size_t i = 0; i < specs.size(); ++i) {
        const ConstTensorView view = store_.weight(unit, static_cast<int>(i));
        scatter({const_cast<std::byte*>(view.data()), view.dtype(), view.shape()}, specs[i], weights, rank.degree(), rank.rank());
      }
    }
    allocate();
    for (int unit = 0; unit < num_units(config); ++unit) layers_[index(unit)]->derive(pass(unit));
  }

  void set_batch(const reference::ModelBatch& batch) {
    const std::int64_t S = batch.sequence, B = batch.samples;
    by_row_.resize(static_cast<std::size_t>(S * B));
    by_sample_.resize(by_row_.size());
    first_key_.resize(by_row_.size());
    for (std::int64_t i = 0; i < S * B; ++i) {
      by_row_[index(i)] = static_cast<std::int32_t>(i / B);
      by_sample_[index(i)] = static_cast<std::int32_t>(i % S);
      first_key_[index(i)] = static_cast<std::int32_t>(std::max<std::int64_t>(i % S + 1 - config_.sliding_window, 0));
    }
    batch_ = {.tokens = {batch.tokens.data(), DType::kI32, {S * B}},
              .targets = {batch.targets.data(), DType::kI32, {S * B}},
              .positions_by_row = {by_row_.data(), DType::kI32, {S * B}},
              .positions_by_sample = {by_sample_.data(), DType::kI32, {B, S}},
              .first_key_in_window = {first_key_.data(), DType::kI32, {B, S}},
              .samples = {batch.sample_numbers.data(), DType::kI64, {B}},
              .step = batch.step,
              .gradient_scale = static_cast<float>(batch.gradient_scale),
              .loss = {&loss_, DType::kF64, {1}}};
  }
  MicroBatch& batch() { return batch_; }
  double loss() const { return loss_; }  // with head_chunk, after backward

  double forward() {
    for (int unit = 0; unit < num_units(config_); ++unit) {
      const bool last = unit == head_unit(config_);
      layers_[index(unit)]->forward(pass(unit), input(unit), last ? TensorView() : input(unit + 1));
    }
    return loss_;
  }
  // The two gradients apart, as schedules may ask for them, or together.
  enum class Backward : std::uint8_t { kSplit, kFused };
  void backward(Accumulate mode, Backward how = Backward::kSplit) {
    const TensorView d = input(num_units(config_));
    for (int unit = head_unit(config_); unit >= 0; --unit) {
      const Layer& layer = *layers_[index(unit)];
      store_.begin_backward(unit, 0, mode);
      layer.recompute(pass(unit), input(unit));
      if (how == Backward::kFused) {
        layer.backward(pass(unit), input(unit), d);
        continue;
      }
      layer.backward_input(pass(unit), input(unit), d);
      scribble_scratch();
      scribble(saved_[index(unit)]);  // used last before
      layer.backward_weight(pass(unit), layer.input_last_use() == LastUse::kW ? input(unit) : TensorView());
    }
  }
  void collect(GradientCollector& collector) const {
    for (int unit = 0; unit < num_units(config_); ++unit) {
      const std::vector<ParamSpec>& specs = plans_[index(unit)].params();
      for (std::size_t i = 0; i < specs.size(); ++i)
        if (specs[i].trainable) collector.add(rank_.rank(), specs[i], store_.grad(unit, static_cast<int>(i)));
    }
  }
  // f(this rank's columns [R, padded V/t]), between forward and backward. The head makes them again without training, whose forward
  // may have turned them into their gradient, and then that.
  template <class F>
  void with_logits(F&& f) {
    const int head = head_unit(config_);
    for (const bool training : {false, true}) {
      batch_.training = training;
      layers_.back()->forward(pass(head), input(head), {});
      if (!training) f(dynamic_cast<const Head&>(*layers_.back()).logits(pass(head)));
    }
  }

 private:
  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

  std::vector<UnitParams> plan_units() {
    std::vector<UnitParams> params;
    for (int unit = 0; unit < num_units(config_); ++unit) {
      layers_.push_back(make_unit(config_, unit));
      plans_.push_back(plan_unit(*layers_.back(), geometry_, config_.hidden, constants_, rank_.device.ops()));
      params.push_back({unit, plans_.back().params()});
    }
    return params;
  }
  // Saved memory is a unit's own, the other regions are shared; all begin as NaN.
  void allocate() {
    for (std::size_t r = 0; r < kNumRegions; ++r) {
      std::int64_t bytes = 0;
      for (const UnitPlan& plan : plans_) bytes = std::max(bytes, plan.region_bytes(static_cast<Region>(r)));
      shared_[r] = filled(bytes);
    }
    for (const UnitPlan& plan : plans_) derived_.push_back(filled(plan.region_bytes(Region::kDerived)));
    for (const UnitPlan& plan : plans_) saved_.push_back(filled(plan.region_bytes(Region::kSaved)));
    for (const UnitPlan& plan : plans_) saved_for_w_.push_back(filled(plan.region_bytes(Region::kSavedForW)));
    for (int i = 0; i <= num_units(config_); ++i)
      activations_.push_back(filled(geometry_.activation_shape(config_.hidden).num_elements() * size_of(geometry_.compute)));
  }
  Buffer filled(std::int64_t bytes) {
    Buffer buffer = rank_.device.allocate(bytes, "region");
    if (bytes > 0) std::memset(buffer.data(), 0xff, static_cast<std::size_t>(bytes));
    return buffer;
  }
  // Nothing may live in scratch between two calls.
  void scribble_scratch() { scribble(shared_[index(static_cast<int>(Region::kScratch))]); }
  static void scribble(Buffer& buffer) {
    if (buffer.num_bytes() > 0) std::memset(buffer.data(), 0xff, static_cast<std::size_t>(buffer.num_bytes()));
  }
  TensorView input(int unit) {  // number num_units: the gradient stream
    return {activations_[index(unit)].data(), geometry_.compute, geometry_.activation_shape(config_.hidden)};
  }
  // For one call.
  LayerPass& pass(int unit) {
    std::array<std::byte*, kNumRegions> base{};
    for (std::size_t r = 0; r < kNumRegions; ++r) base[r] = shared_[r].data();
    base[index(static_cast<int>(Region::kDerived))] = derived_[index(unit)].data();
    base[index(static_cast<int>(Region::kSaved))] = saved_[index(unit)].data();
    base[index(static_cast<int>(Region::kSavedForW))] = saved_for_w_[index(unit)].data();
    views_.emplace(store_, unit);
    const PassEnvironment place{.ops = rank_.device.ops(),
                          .stream = rank_.device.compute_stream(),
                          .tensor = rank_.context.tensor(),
                          .params = *views_,
                          .geometry = geometry_,
                          .unit = unit,
                          .base = base,
                          .workspace_bytes = plans_[index(unit)].region_bytes(Region::kWorkspace)};
    return pass_.emplace(Pass(place, plans_[index(unit)].memory()), batch_, constants_);
  }

  TensorRank& rank_;
  ModelConfig config_;
  LayerGeometry geometry_;
  ArenaPlan arena_plan_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<UnitPlan> plans_;
  ModelConstants constants_;
  ParamStore store_;
  std::unique_ptr<Arena> arena_;
  std::array<Buffer, kNumRegions> shared_;
  std::vector<Buffer> derived_, saved_, saved_for_w_, activations_;
  std::vector<std::int32_t> by_row_, by_sample_, first_key_;
  MicroBatch batch_;
  std::optional<StoreViews> views_;
  std::optional<LayerPass> pass_;
  double loss_ = 0.0;
};

}  // namespace trident::testing

// Operations that check their operands and compute nothing.
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "device/operations.h"
#include "device/ops.h"

namespace trident {

// Is told of every operation that dry operations are asked for, in order, and of products that the oracle's device would carry out
// together with what follows them.
class OperationWatcher {
 public:
  virtual void performed(OperationRef operation) = 0;
  virtual void performed(const op::Fused& fused) = 0;

 protected:
  ~OperationWatcher() = default;
};

class DryOps : public Ops {
 public:
  // When products and attention are announced: before they are called, or else refused, as by backends that compute; or by the call
  // itself, which then needs no workspace.
  enum class Announced : std::uint8_t { kBefore, kOnUse };

  // `oracle`, if there is one, outlives the object and says what workspace a product or an attention takes, as while planning; it
  // computes nothing. Without one none takes any: what is booked for workspaces is then too little.
  explicit DryOps(Ops* oracle, Announced announced = Announced::kBefore) : oracle_(oracle), announced_(announced) {}

  void set_watcher(OperationWatcher* watcher) { watcher_ = watcher; }  // which outlives this

  // Bytes, of all products and attentions announced so far.
  std::int64_t largest_workspace() const { return largest_workspace_; }

  std::int64_t prepare_matmul(const MatmulShape& shape) override;
  PreparedProduct prepare_fused(const MatmulShape& shape, Epilogue epilogue, std::int64_t rank = 0) override;
  bool try_fused(Stream& stream, const FusedMatmul& fused) override;
  std::int64_t attention_workspace(const AttentionShape& shape) override;
  std::int64_t cached_attention_workspace(const AttentionShape& shape) override;
  bool attends_by_rows() const override { return oracle_ != nullptr && oracle_->attends_by_rows(); }
  void run(Stream& stream, OperationRef operation) override {
    check_and_execute(*this, stream, operation);
    if (watcher_ != nullptr) watcher_->performed(operation);
  }

  // For check_and_execute(): what is a row kernel needs nothing and does nothing.
  static bool reaches(MemoryKind) { return true; }
  void execute(Stream&, const op::Matmul& product);
  void execute(Stream&, const op::AttentionForward& a) { attend(a.kName.name, a.shape, a.workspace); }
  void execute(Stream&, const op::CachedAttention& a);
  void execute(Stream&, const op::AttentionBackward& a) { attend(a.kName.name, a.shape, a.workspace); }
  template <class Operation>
  void execute(Stream&, const Operation&) {}

 private:
  // Announced calls and their workspaces; a step has a few dozen.
  template <class Shape>
  using Announcements = std::vector<std::pair<Shape, std::int64_t>>;
  template <class Shape>
  std::int64_t note(Announcements<Shape>& announced, const Shape& shape, std::int64_t bytes);
  // The largest workspace of announced calls; 0 where calls need none.
  template <class Shape>
  std::int64_t needed(const Announcements<Shape>& announced, const Shape& shape, std::string_view what) const;

  bool one_kernel(const MatmulShape& shape, Epilogue epilogue, std::int64_t rank) const;
  void attend(std::string_view operation, const AttentionShape& shape, ConstTensorView workspace);

  Ops* oracle_;
  Announced announced_;
  OperationWatcher* watcher_ = nullptr;
  std::int64_t largest_workspace_ = 0;
  Announcements<MatmulShape> products_;
  Announcements<AttentionShape> attentions_, cached_attentions_;
  std::vector<std::tuple<MatmulShape, Epilogue, std::int64_t>> fused_;  // of the products: what the oracle has one kernel for
};

}  // namespace trident

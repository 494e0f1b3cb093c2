// Memory planned before the first step: booked while planning, granted at run time, never allocated in between.
//
// Planning code books named ranges in an ArenaPlan; the plan's total is what one Buffer must hold; an Arena grants views of the
// booked ranges. Plan and report are values: the memory plan can be printed, summed by category and compared with what was granted.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/named_enum.h"
#include "core/tensor_view.h"
#include "device/buffer.h"

namespace trident {

inline constexpr std::int64_t kArenaAlignment = 256;  // bytes; every range starts at a multiple of it

// A range of the arena. Valid for the plan that made it and for the arena made from that plan.
struct ArenaSlot {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};

// The purpose of bytes: the categories of the memory report.
enum class MemoryUse : std::uint8_t { kParameters, kGradients, kOptimizer, kActivations, kWorkspace, kCommunication, kData };
template <>
inline constexpr std::array<std::string_view, 7> kNamesOf<MemoryUse>{
    "parameters", "gradients", "optimizer", "activations", "workspace", "communication", "data"};
inline constexpr std::array kMemoryUses = {MemoryUse::kParameters,  MemoryUse::kGradients, MemoryUse::kOptimizer,
                                           MemoryUse::kActivations, MemoryUse::kWorkspace, MemoryUse::kCommunication,
                                           MemoryUse::kData};

class ArenaPlan {
 public:
  struct Entry {
    std::string name;
    MemoryUse use;
    ArenaSlot slot;
  };

  // Books `bytes` bytes that stay live for the whole run.
  ArenaSlot book(std::string name, MemoryUse use, std::int64_t bytes);

  std::int64_t total_bytes() const { return total_; }
  std::int64_t total_bytes(MemoryUse use) const;
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
  std::int64_t total_ = 0;
};

// Scratch inside one booked range: ranges taken within a scope are released, last in first out, when the scope closes, and the
// high-water mark is what has to be booked. Purely an offset computation; used by layers while they plan.
class ScratchPlan {
 public:
  // Offset (bytes, aligned) of a new range in the current scope.
  ArenaSlot take(std::int64_t bytes);
  std::int64_t mark() const { return top_; }
  void release_to(std::int64_t mark) { top_ = mark; }
  std::int64_t high_water() const { return high_water_; }

 private:
  std::int64_t top_ = 0, high_water_ = 0;
};

// RAII scope of a ScratchPlan.
class ScratchScope {
 public:
  explicit ScratchScope(ScratchPlan& plan) : plan_(plan), mark_(plan.mark()) {}
  ~ScratchScope() { plan_.release_to(mark_); }
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

 private:
  ScratchPlan& plan_;
  std::int64_t mark_;
};

class Arena {
 public:
  // `backing` holds at least plan.total_bytes() bytes: private memory, a node-wide segment, pinned or device memory.
  Arena(const ArenaPlan& plan, Buffer backing);

  // A view of `shape` elements at the start of the slot; it must fit.
  TensorView grant(ArenaSlot slot, DType dtype, Shape shape);

  std::int64_t planned_bytes() const { return planned_; }
  // End of the highest range granted so far; equals planned_bytes() once everything booked was granted.
  std::int64_t high_water() const { return high_water_; }

 private:
  Buffer backing_;
  std::int64_t planned_ = 0, high_water_ = 0;
};

// A tensor in an arena: booked with its type and shape, and from bind() on the view of its memory.
class BookedTensor : public TensorView {
 public:
  BookedTensor() = default;  // nothing is booked
  BookedTensor(ArenaPlan& plan, std::string name, MemoryUse use, DType dtype, Shape shape)
      : TensorView(nullptr, dtype, shape), slot_(plan.book(std::move(name), use, num_bytes())) {}
  void bind(Arena& arena) {
    if (shape().rank() > 0) static_cast<TensorView&>(*this) = arena.grant(slot_, dtype(), shape());
  }

 private:
  ArenaSlot slot_;
};

// For one line of a message: "most of it for unit 1 gradients 805.3 MB and 3 like it, ..."; "nothing in it" of an empty plan.
std::string largest_entries(const ArenaPlan& plan);

// "parameters 12.3 MB, gradients ..." by use, then the largest entries.
std::string memory_report(const ArenaPlan& plan);

}  // namespace trident

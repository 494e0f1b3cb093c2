// Values in memory that the ranks of a node share.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "device/buffer.h"
#include "tests/parallel/rank_context.h"

namespace trident::conformance {

// Memory that was given back is kept for values of about the same size: tests make thousands.
class SharedValues : public ValuesMemory {
 public:
  using Allocate = std::function<Buffer(std::int64_t bytes, const std::string& name)>;
  explicit SharedValues(Allocate allocate) : allocate_(std::move(allocate)) {}
  void* allocate(std::size_t bytes) override {
    const std::size_t size = std::bit_ceil(std::max<std::size_t>(bytes, 4096));
    std::vector<Buffer>& kept = kept_[size];
    if (kept.empty()) kept.push_back(allocate_(static_cast<std::int64_t>(size), "values"));
    Buffer buffer = std::move(kept.back());
    kept.pop_back();
    void* const data = buffer.data();
    used_.emplace(data, std::move(buffer));
    return data;
  }
  void release(void* memory) override {
    auto used = used_.extract(memory);
    kept_[static_cast<std::size_t>(used.mapped().num_bytes())].push_back(std::move(used.mapped()));
  }

 protected:
  bool holds(void* memory) const { return used_.contains(memory); }

 private:
  Allocate allocate_;
  std::map<std::size_t, std::vector<Buffer>> kept_;
  std::map<void*, Buffer> used_;
};

// Values of which some lie there and some in memory of the rank's own, as it comes.
class MixedValues final : public SharedValues {
 public:
  // `outside` of 8 values lie in the rank's own memory; the same ones in every run, others on every rank.
  MixedValues(Allocate allocate, int rank, unsigned outside)
      : SharedValues(std::move(allocate)), state_(static_cast<std::uint32_t>(rank) * 2654435761u + 1), outside_(outside) {}
  void* allocate(std::size_t bytes) override {
    state_ = state_ * 1664525u + 1013904223u;
    return (state_ >> 16) % 8 < outside_ ? ::operator new(bytes) : SharedValues::allocate(bytes);
  }
  void release(void* memory) override {
    if (holds(memory)) SharedValues::release(memory);
    else ::operator delete(memory);
  }

 private:
  std::uint32_t state_;
  unsigned outside_;
};

}  // namespace trident::conformance

// A profiler shows these beside its own measurements: named ranges of a rank's thread, and of its communication.
//
// A device that has a profiler to tell gives its Ranges (Device::ranges()); without one there are none, and nobody makes names. Names are
// zero-terminated and live until their range ends. Used by one thread.
#pragma once

#include <cstdint>
#include <utility>

namespace trident {

// Recomputed work of a backward is in a range of this name.
inline constexpr const char* kRecomputeRange = "recompute";
// A dry device puts this range around work given to Device::run_capturable().
inline constexpr const char* kRepeatRange = "repeat";

class Ranges {
 public:
  Ranges() = default;
  Ranges(const Ranges&) = delete;
  Ranges& operator=(const Ranges&) = delete;
  virtual ~Ranges() = default;

  // A range that may overlap others, until end() of the number that this returns.
  virtual std::uint64_t start(const char* name) = 0;
  virtual void end(std::uint64_t range) noexcept = 0;

  // The name of the RangeScope around the caller; nullptr outside of any.
  const char* innermost() const { return innermost_; }

 protected:
  // Ranges of the calling thread, each inside the one before it.
  virtual void push(const char* name) = 0;
  virtual void pop() noexcept = 0;

 private:
  friend class RangeScope;
  const char* innermost_ = nullptr;
};

// Names the thread's work `name` for as long as this lives. `ranges` may be nullptr.
class RangeScope {
 public:
  RangeScope(Ranges* ranges, const char* name) : ranges_(ranges) {
    if (ranges_ == nullptr) return;
    ranges_->push(name);
    outer_ = std::exchange(ranges_->innermost_, name);
  }
  ~RangeScope() {
    if (ranges_ == nullptr) return;
    ranges_->innermost_ = outer_;
    ranges_->pop();
  }
  RangeScope(const RangeScope&) = delete;
  RangeScope& operator=(const RangeScope&) = delete;

 private:
  Ranges* ranges_;
  const char* outer_ = nullptr;
};

}  // namespace trident

// Communicator tests are written against this: a rank with its streams, and typed buffers of small integers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/bf16.h"
#include "core/f16.h"
#include "parallel/communicator/communicator.h"

namespace trident::conformance {

// One rank of a running test.
struct RankContext {
  Communicator& world;
  Stream& compute;                   // each call returns when it is complete
  std::array<Stream*, 2> queues;     // operations complete later
  std::array<Stream*, 3> streams() const { return {&compute, queues[0], queues[1]}; }
};

// Errors of ranks that are expected to fail: the error of the whole, and that of each rank, "" where there was none.
struct Failures {
  std::string error;
  std::vector<std::string> per_rank;
};
// `run_ranks` runs the ranks; every one of them calls what it is given with its number and what may fail.
template <class RunRanks> Failures failures_of(std::size_t ranks, RunRanks run_ranks) {
  Failures failures;
  failures.per_rank.resize(ranks);
  try {
    run_ranks([&](int rank, auto what) {
      try {
        what();
      } catch (const std::exception& error) {
        failures.per_rank[static_cast<std::size_t>(rank)] = error.what();
        throw;
      }
    });
  } catch (const std::exception& error) {
    failures.error = error.what();
  }
  return failures;
}

// The limit of a watchdog that is to find who is missing: a rank that a busy machine holds up is late.
constexpr double kMissingSeconds = 6;

// A part of a group for split(): the ranks of which `color` says what it says of this one, in order, or the other way round.
enum class Order : std::uint8_t { kForward, kBackward };
template <class Color> std::vector<int> ranks_of_color(const Communicator& group, Color color, Order order = Order::kForward) {
  std::vector<int> ranks;
  for (int r = 0; r < group.size(); ++r)
    if (color(r) == color(group.rank())) ranks.push_back(r);
  if (order == Order::kBackward) std::reverse(ranks.begin(), ranks.end());
  return ranks;
}
// Neighbours in parts of `size`; every n-th rank; everybody the other way round.
inline std::vector<int> neighbours(const Communicator& group, int size) {
  return ranks_of_color(group, [&](int r) { return r / size; });
}
inline std::vector<int> every_nth(const Communicator& group, int n) {
  return ranks_of_color(group, [&](int r) { return r % n; });
}
inline std::vector<int> backwards(const Communicator& group) {
  return ranks_of_color(group, [](int) { return 0; }, Order::kBackward);
}

// Runs `body` on every rank of a world of `ranks` ranks and returns when all have ended.
using RankLauncher = std::function<void(int ranks, const std::function<void(RankContext&)>& body)>;

// Where Values take their memory when peers or devices reach only memory of a certain kind.
class ValuesMemory {
 public:
  virtual ~ValuesMemory() = default;
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) = 0;
  // Values of memory that is not the host's keep a copy in the host's.
  virtual MemoryKind where() const { return MemoryKind::kHost; }
  virtual void write(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  virtual void read(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
};
// The value belongs to this thread; null: any memory will do.
inline thread_local ValuesMemory* values_memory = nullptr;

template <class T> struct ValuesAllocator {
  using value_type = T;
  ValuesAllocator() = default;
  template <class U> explicit ValuesAllocator(const ValuesAllocator<U>& other) : memory(other.memory) {}
  T* allocate(std::size_t count) {
    return static_cast<T*>(memory != nullptr ? memory->allocate(count * sizeof(T)) : ::operator new(count * sizeof(T)));
  }
  void deallocate(T* values, std::size_t) {
    if (memory != nullptr) memory->release(values);
    else ::operator delete(values);
  }
  bool operator==(const ValuesAllocator&) const = default;

  ValuesMemory* memory = values_memory;
};

// A typed buffer whose elements are read and written as doubles.
class Values {
 public:
  Values(DType dtype, std::int64_t count)
      : dtype_(dtype), count_(count), bytes_(static_cast<std::size_t>(count * size_of(dtype)), std::byte{}, host_allocator()) {}
  template <class F> Values(DType dtype, std::int64_t count, F value) : Values(dtype, count) {
    for (std::int64_t i = 0; i < count; ++i) set(i, value(i));
  }
  Values(const Values& other) : dtype_(other.dtype_), count_(other.count_), bytes_(other.host_bytes()), device_(other.device_) {}
  Values(Values&&) = default;
  Values& operator=(Values&&) = default;
  std::int64_t count() const { return count_; }
  TensorView view() {
    if (device_.memory == nullptr) return {bytes_.data(), dtype_, {count_}};
    return {device_.get(bytes_), dtype_, {count_}, MemoryKind::kDevice};
  }
  TensorView range(std::int64_t first, std::int64_t count) { return view().range(first, count); }
  double at(std::int64_t i) const {
    device_.fetch(bytes_);
    switch (dtype_) {
      case DType::kF64: return load<double>(i);
      case DType::kF32: return static_cast<double>(load<float>(i));
      case DType::kBF16: return static_cast<double>(to_float(load<bf16>(i)));
      case DType::kF16: return static_cast<double>(to_float(load<f16>(i)));
      case DType::kI64: return static_cast<double>(load<std::int64_t>(i));
      case DType::kI32: return load<std::int32_t>(i);
      case DType::kU8: return load<std::uint8_t>(i);
      case DType::kU16: break;
    }
    return load<std::uint16_t>(i);
  }
  void set(std::int64_t i, double x) {
    device_.fetch(bytes_);
    device_.host_is_newer = true;
    switch (dtype_) {
      case DType::kF64: return store(i, x);
      case DType::kF32: return store(i, static_cast<float>(x));
      case DType::kBF16: return store(i, to_bf16(static_cast<float>(x)));
      case DType::kF16: return store(i, to_f16(static_cast<float>(x)));
      case DType::kI64: return store(i, static_cast<std::int64_t>(x));
      case DType::kI32: return store(i, static_cast<std::int32_t>(x));
      case DType::kU8: return store(i, static_cast<std::uint8_t>(x));
      case DType::kU16: break;
    }
    store(i, static_cast<std::uint16_t>(x));
  }

 private:
  using Bytes = std::vector<std::byte, ValuesAllocator<std::byte>>;

  // The copy on a device, which a view may have changed since; copies of Values have none yet.
  struct OnDevice {
    OnDevice() = default;
    OnDevice(const OnDevice& other) : memory(other.memory) {}
    OnDevice(OnDevice&& other) noexcept { swap(other); }
    OnDevice& operator=(OnDevice other) noexcept {
      swap(other);
      return *this;
    }
    ~OnDevice() {
      if (data != nullptr) memory->release(data);
    }
    void swap(OnDevice& other) noexcept {
      std::swap(memory, other.memory);
      std::swap(data, other.data);
      std::swap(host_is_newer, other.host_is_newer);
      std::swap(device_is_newer, other.device_is_newer);
    }
    void* get(const Bytes& bytes) {
      if (bytes.empty()) return nullptr;
      if (data == nullptr) data = memory->allocate(bytes.size());
      if (host_is_newer) memory->write(data, bytes.data(), bytes.size());
      host_is_newer = false;
      device_is_newer = true;
      return data;
    }
    void fetch(Bytes& bytes) {
      if (!device_is_newer) return;
      memory->read(bytes.data(), data, bytes.size());
      device_is_newer = false;
    }
    ValuesMemory* memory = values_memory != nullptr && values_memory->where() == MemoryKind::kDevice ? values_memory : nullptr;
    void* data = nullptr;
    bool host_is_newer = true, device_is_newer = false;
  };

  static ValuesAllocator<std::byte> host_allocator() {
    ValuesAllocator<std::byte> allocator;
    if (allocator.memory != nullptr && allocator.memory->where() == MemoryKind::kDevice) allocator.memory = nullptr;
    return allocator;
  }
  const Bytes& host_bytes() const {
    device_.fetch(bytes_);
    return bytes_;
  }
  template <class T> T load(std::int64_t i) const {
    T x;
    std::memcpy(&x, bytes_.data() + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return x;
  }
  template <class T> void store(std::int64_t i, T x) {
    std::memcpy(bytes_.data() + i * static_cast<std::int64_t>(sizeof(T)), &x, sizeof(T));
  }
  DType dtype_;
  std::int64_t count_;
  mutable Bytes bytes_;
  mutable OnDevice device_;
};

// 0 .. 16, exact in every dtype; sums over 8 ranks stay below 256, exact in bf16.
inline double value(int rank, std::int64_t i) { return static_cast<double>((rank * 5 + i * 3 + i / 7) % 17); }

// -16 .. 16: of neighbours, of which one has the other sign, so that sums over any number of neighbours stay below 256.
inline double summand(int rank, std::int64_t i) { return rank % 2 == 0 ? value(rank, i) : -value(rank, i); }

// Over hundreds of ranks it looks at one period of them: `of` is value() or summand(), which begin again there, and whose sums are
// exact.
inline double reduced(ReduceOp op, int ranks, std::int64_t i, double of(int, std::int64_t) = value) {
  constexpr int kPeriod = 2 * 17;
  double largest = of(0, i), part = 0, period = 0;  // part: of the ranks after the last whole period
  for (int r = 0; r < std::min(ranks, kPeriod); ++r) {
    const double x = of(r, i);
    largest = std::max(largest, x);
    period += x;
    if (r < ranks % kPeriod) part += x;
  }
  return op == ReduceOp::kMax ? largest : ranks / kPeriod * period + part;
}

// One message per buffer, not per element.
template <class F> void expect_values(const Values& values, F expected, const std::string& what) {
  for (std::int64_t i = 0; i < values.count(); ++i)
    if (values.at(i) != expected(i)) {
      ADD_FAILURE() << what << ": element " << i << " is " << values.at(i) << " instead of " << expected(i);
      return;
    }
}

}  // namespace trident::conformance

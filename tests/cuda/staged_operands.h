// Host operands of one kernel call on the device: copied there, and back when the call is done.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <list>
#include <vector>

#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_memory.h"
#include "tests/cuda/device_tensor.h"
#include "tests/cuda/kernel_table.h"

namespace trident::testing {

class StagedOperands {
 public:
  explicit StagedOperands(Placement placement) : placement_(placement) {}
  // Runs what was enqueued and brings everything back. Guard bytes and inputs must be what they were.
  ~StagedOperands() {
    stream_.synchronize();
    for (Operand& o : operands_) bring_back(o);
  }

  cudaStream_t stream() const { return stream_.get(); }

  // `count` elements at `host`, which a kernel reads, or also writes. The same host address twice is the same device address.
  template <class T>
  const T* in(const T* host, std::int64_t count) {
    return static_cast<const T*>(stage(host, count, sizeof(T), false));
  }
  template <class T>
  T* out(T* host, std::int64_t count) {
    return static_cast<T*>(stage(host, count, sizeof(T), true));
  }
  const void* in(RowType t, const void* host, std::int64_t count) { return stage(host, count, element(t), false); }
  void* out(RowType t, void* host, std::int64_t count) { return stage(host, count, element(t), true); }
  // Device memory that holds garbage.
  float* scratch(std::int64_t floats) {
    scratch_ = allocate_cuda(0, floats * 4, "scratch");
    const std::vector<std::byte> garbage(static_cast<std::size_t>(floats) * 4, std::byte{0xC5});
    copy(scratch_.data(), garbage.data(), garbage.size(), cudaMemcpyHostToDevice);
    return reinterpret_cast<float*>(scratch_.data());
  }

 private:
  static constexpr std::size_t kGuard = 256;

  struct Operand {
    const void* host;
    std::size_t bytes, offset;
    bool written;
    Buffer memory;
  };

  static std::size_t element(RowType t) { return t == RowType::kF32 ? 4 : 2; }
  static void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    if (bytes > 0) check_cuda(cudaMemcpy(to, from, bytes, kind), "an operand of a test");
    check_cuda(cudaDeviceSynchronize(), "an operand of a test");
  }

  void* stage(const void* host, std::int64_t count, std::size_t size, bool written) {
    for (Operand& o : operands_)
      if (host != nullptr && o.host == host) {
        o.written = o.written || written;
        return o.memory.data() + o.offset;
      }
    const std::size_t bytes = static_cast<std::size_t>(count) * size;
    const std::size_t offset = kGuard + (placement_ == Placement::kMisaligned ? size : 0);
    std::vector<std::byte> image(offset + bytes + kGuard, std::byte{0xA5});
    if (bytes > 0) std::memcpy(image.data() + offset, host, bytes);
    operands_.push_back({host, bytes, offset, written, allocate_cuda(0, static_cast<std::int64_t>(image.size()), "operand")});
    copy(operands_.back().memory.data(), image.data(), image.size(), cudaMemcpyHostToDevice);
    return operands_.back().memory.data() + offset;
  }

  void bring_back(Operand& o) {
    std::vector<std::byte> image(o.offset + o.bytes + kGuard);
    copy(image.data(), o.memory.data(), image.size(), cudaMemcpyDeviceToHost);
    for (std::size_t i = 0; i < image.size(); ++i)
      if ((i < o.offset || i >= o.offset + o.bytes) && image[i] != std::byte{0xA5}) {
        ADD_FAILURE() << "byte " << static_cast<std::int64_t>(i - o.offset) << " of an operand of " << o.bytes
                      << " bytes was written";
        break;
      }
    if (o.bytes == 0) return;
    if (o.written)
      std::memcpy(const_cast<void*>(o.host), image.data() + o.offset, o.bytes);
    else if (std::memcmp(o.host, image.data() + o.offset, o.bytes) != 0)
      ADD_FAILURE() << "an input of " << o.bytes << " bytes was written";
  }

  Placement placement_;
  TestStream stream_;
  std::list<Operand> operands_;
  Buffer scratch_;
};

}  // namespace trident::testing

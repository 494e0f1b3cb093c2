// Owned memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "core/tensor_view.h"

namespace trident {

// Move-only owner of `bytes` bytes, zero-filled, aligned to 4096 bytes (and backed by huge pages where the kernel gives them).
class Buffer {
 public:
  using Release = std::function<void(void* data, std::int64_t bytes)>;

  Buffer() = default;
  Buffer(void* data, std::int64_t bytes, MemoryKind where, Release release);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::int64_t num_bytes() const { return bytes_; }
  MemoryKind where() const { return where_; }

 private:
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
  MemoryKind where_ = MemoryKind::kHost;
  Release release_;
};

// Where somebody takes zero-filled host memory of which peers or devices can reach more than of private memory.
using HostAllocator = std::function<Buffer(std::int64_t bytes, const std::string& name)>;

// Private zero-filled host memory. Throws ConfigError naming `name` when the system refuses it, and InternalError inside a
// NoAllocationScope.
Buffer allocate_host(std::int64_t bytes, const std::string& name);

}  // namespace trident

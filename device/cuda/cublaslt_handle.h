// The cuBLASLt library on one device, and its errors.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <string_view>

namespace trident {

// Nothing on success. Otherwise one line: what failed, the library's name and words for it, the device, the remedy. ConfigError for
// what the machine or its set-up causes (no memory, a GPU that is too old, no driver), InternalError for the rest.
void check_cublas(cublasStatus_t status, std::string_view what, int device);

// Owner of a library handle; it and everything made with it belong to `device`. Calls on one handle may come from any thread.
class CublasLtHandle {
 public:
  explicit CublasLtHandle(int device);
  ~CublasLtHandle();
  CublasLtHandle(const CublasLtHandle&) = delete;
  CublasLtHandle& operator=(const CublasLtHandle&) = delete;

  cublasLtHandle_t get() const { return handle_; }
  int device() const { return device_; }
  // The version of the library that runs, which may be newer than the header: 130100 is 13.1.0.
  std::size_t library_version() const { return cublasLtGetVersion(); }

 private:
  int device_ = 0;
  cublasLtHandle_t handle_ = nullptr;
};

}  // namespace trident

// oneDNN's C interface as onednn_matmul uses it: owners of its handles, and the few calls that version 3 changed.
#pragma once

#include <oneapi/dnnl/dnnl.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "core/check.h"

namespace trident::onednn {

inline void check(dnnl_status_t status, std::string_view what) {
  TRIDENT_CHECK(status == dnnl_success, "oneDNN: {} failed with status {}", what, static_cast<int>(status));
}

// Owner of a oneDNN handle.
template <class T, dnnl_status_t (*destroy)(T)>
class Handle {
 public:
  Handle() = default;
  Handle(Handle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Handle() {
    if (handle_ != nullptr) destroy(handle_);
  }
  T get() const { return handle_; }
  T* receive() { return &handle_; }  // for functions that create one

 private:
  T handle_ = nullptr;
};
using Engine = Handle<dnnl_engine_t, dnnl_engine_destroy>;
using DnnlStream = Handle<dnnl_stream_t, dnnl_stream_destroy>;
using Attributes = Handle<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;
using PostOps = Handle<dnnl_post_ops_t, dnnl_post_ops_destroy>;
using PrimitiveDesc = Handle<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;
using Primitive = Handle<dnnl_primitive_t, dnnl_primitive_destroy>;
using Memory = Handle<dnnl_memory_t, dnnl_memory_destroy>;

// Descriptors of memory are structs in version 2 and handles in version 3.
#if DNNL_VERSION_MAJOR >= 3

class MemoryDesc {
 public:
  MemoryDesc(const dnnl_dims_t dims, const dnnl_dims_t strides, dnnl_data_type_t type) {
    check(dnnl_memory_desc_create_with_strides(desc_.receive(), 2, dims, type, strides), "memory descriptor");
  }
  const_dnnl_memory_desc_t get() const { return desc_.get(); }

 private:
  Handle<dnnl_memory_desc_t, dnnl_memory_desc_destroy> desc_;
};
using BorrowedMemoryDesc = const_dnnl_memory_desc_t;

// Whether the library has a kernel for this product.
inline bool create_matmul(PrimitiveDesc& pd, const Engine& engine, const MemoryDesc& a, const MemoryDesc& b, const MemoryDesc& out,
                          const Attributes& attributes) {
  return dnnl_matmul_primitive_desc_create(pd.receive(), engine.get(), a.get(), b.get(), nullptr, out.get(), attributes.get()) == dnnl_success;
}
inline void append_sum(const PostOps& post_ops) {
  check(dnnl_post_ops_append_sum(post_ops.get(), 1.0f, 0, dnnl_data_type_undef), "sum post-op");
}
inline void append_scale(const PostOps& post_ops, float scale) {
  check(dnnl_post_ops_append_eltwise(post_ops.get(), dnnl_eltwise_linear, scale, 0.0f), "scale post-op");
}
inline void set_data(const Memory& memory, void* data, const DnnlStream&, std::string_view what) {
  check(dnnl_memory_set_data_handle(memory.get(), data), what);
}

#else

class MemoryDesc {
 public:
  MemoryDesc(const dnnl_dims_t dims, const dnnl_dims_t strides, dnnl_data_type_t type) {
    check(dnnl_memory_desc_init_by_strides(&desc_, 2, dims, type, strides), "memory descriptor");
  }
  const dnnl_memory_desc_t* get() const { return &desc_; }

 private:
  dnnl_memory_desc_t desc_;
};
using BorrowedMemoryDesc = const dnnl_memory_desc_t*;

// Whether the library has a kernel for this product.
inline bool create_matmul(PrimitiveDesc& pd, const Engine& engine, const MemoryDesc& a, const MemoryDesc& b, const MemoryDesc& out,
                          const Attributes& attributes) {
  dnnl_matmul_desc_t desc;
  check(dnnl_matmul_desc_init(&desc, a.get(), b.get(), nullptr, out.get()), "matmul descriptor");
  return dnnl_primitive_desc_create(pd.receive(), &desc, attributes.get(), engine.get(), nullptr) == dnnl_success;
}
inline void append_sum(const PostOps& post_ops) { check(dnnl_post_ops_append_sum(post_ops.get(), 1.0f), "sum post-op"); }
inline void append_scale(const PostOps& post_ops, float scale) {
  check(dnnl_post_ops_append_eltwise(post_ops.get(), 1.0f, dnnl_eltwise_linear, scale, 0.0f), "scale post-op");
}
inline void set_data(const Memory& memory, void* data, const DnnlStream& stream, std::string_view what) {
  check(dnnl_memory_set_data_handle_v2(memory.get(), data, stream.get()), what);
}

#endif

inline BorrowedMemoryDesc scratchpad_of(const PrimitiveDesc& pd) { return dnnl_primitive_desc_query_md(pd.get(), dnnl_query_scratchpad_md, 0); }
inline void create_memory(Memory& memory, BorrowedMemoryDesc desc, const Engine& engine) {
  check(dnnl_memory_create(memory.receive(), desc, engine.get(), DNNL_MEMORY_NONE), "memory");
}

}  // namespace trident::onednn

// Safetensors files for exchanging tensors with the oracle: read and written whole.
//
// Not checkpoint/format/safetensors.h, on purpose: the oracle's files are judged, and the product's are read back in
// tests, by code that shares nothing with the product's.
//
// File: u64 little-endian N, N bytes of JSON {name: {dtype, shape, data_offsets}}, the data. F32, BF16, I32 and I64 only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace trident::test {

struct NamedTensor {
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;  // [] is a scalar
  std::vector<std::byte> data;      // dense, row-major, little-endian

  std::int64_t num_elements() const;
  // The elements; T must be the tensor's dtype (InternalError otherwise).
  template <class T>
  std::vector<T> values() const {
    TRIDENT_CHECK(dtype_of<T> == dtype, "tensor of {} read as {}", to_string(dtype), to_string(dtype_of<T>));
    std::vector<T> out(data.size() / sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), data.data(), data.size());
    return out;
  }
  template <class T>
  static NamedTensor of(std::vector<std::int64_t> shape, const std::vector<T>& values) {
    NamedTensor tensor{dtype_of<T>, std::move(shape), std::vector<std::byte>(values.size() * sizeof(T))};
    TRIDENT_CHECK(tensor.num_elements() == static_cast<std::int64_t>(values.size()), "shape and {} values", values.size());
    if (!values.empty()) std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
    return tensor;
  }
};

using TensorMap = std::map<std::string, NamedTensor>;

// Throws InternalError naming `source`: truncated, trailing bytes, unknown dtype, offsets that overlap, leave holes or do not fit
// the shape.
TensorMap parse_safetensors(std::string_view bytes, std::string_view source);
TensorMap read_safetensors(const std::string& path);

// The reference writer's bytes: wider dtypes first, then by name, header padded so that the data begins at a multiple of 8.
std::string to_safetensors(const TensorMap& tensors);
void write_safetensors(const std::string& path, const TensorMap& tensors);

}  // namespace trident::test

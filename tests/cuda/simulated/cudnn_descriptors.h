// Descriptors of the simulated cuDNN: attributes as they were set, and what finalizing makes of them.
#pragma once

#include <cudnn_graph.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace trident::simulated {

// Why a call fails; text as cudnnGetLastErrorString gives it.
struct CudnnFailure {
  cudnnStatus_t status;
  std::string text;
};

struct CudnnDescriptorState;
using CudnnReference = std::shared_ptr<CudnnDescriptorState>;

struct CudnnDescriptorState {
  struct Attribute {
    cudnnBackendAttributeType_t type;
    std::vector<std::byte> bytes;
    std::vector<CudnnReference> references;  // of CUDNN_TYPE_BACKEND_DESCRIPTOR
  };

  cudnnBackendDescriptorType_t type;
  bool final = false;
  std::map<int, Attribute> attributes;

  bool has(int name) const { return attributes.count(name) != 0; }
  template <class T>
  std::vector<T> values(int name) const {
    const std::vector<std::byte>& bytes = attributes.at(name).bytes;
    std::vector<T> result(bytes.size() / sizeof(T));
    std::memcpy(result.data(), bytes.data(), bytes.size());
    return result;
  }
  // Returns the value of an attribute that has one, of type T.
  template <class T>
  T value(int name) const {
    const std::vector<std::byte>& bytes = attributes.at(name).bytes;
    T result;
    std::memcpy(&result, bytes.data(), bytes.size());
    return result;
  }
  const CudnnReference& reference(int name) const { return attributes.at(name).references.front(); }
};

// Sets an attribute after checking its name, type and count against what the descriptor's type has; throws CudnnFailure.
// `references`: the descriptors that `values` names, if it names any.
void set_attribute(CudnnDescriptorState& descriptor, int name, cudnnBackendAttributeType_t type, std::int64_t count,
                   const void* values, std::vector<CudnnReference> references);
// Checks that what must be set is, and that what it refers to is final; throws CudnnFailure.
void finalize(CudnnDescriptorState& descriptor);

// Bytes of one value.
std::size_t attribute_bytes(cudnnBackendAttributeType_t type);

}  // namespace trident::simulated

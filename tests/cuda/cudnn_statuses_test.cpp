// Tests what cuDNN's backend API answers to mistakes. The same tests run with the real library (tests/cuda/plans) and with the
// simulated one, which other tests trust to answer alike.
#include <cudnn_graph.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

namespace trident {
namespace {

constexpr int kBad = CUDNN_STATUS_BAD_PARAM;

struct Descriptor {
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    EXPECT_EQ(cudnnBackendCreateDescriptor(type, &get), CUDNN_STATUS_SUCCESS);
  }
  ~Descriptor() { EXPECT_EQ(cudnnBackendDestroyDescriptor(get), CUDNN_STATUS_SUCCESS); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  // The category of the status.
  template <class T>
  int set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const T* values) const {
    return CUDNN_STATUS_CATEGORY(cudnnBackendSetAttribute(get, name, type, count, values));
  }
  int finalize() const { return CUDNN_STATUS_CATEGORY(cudnnBackendFinalize(get)); }

  cudnnBackendDescriptor_t get = nullptr;
};

constexpr std::array<std::int64_t, 4> kDims = {1, 2, 3, 4}, kStrides = {24, 12, 4, 1};

// All that a tensor needs.
void describe(const Descriptor& tensor, std::int64_t uid) {
  const cudnnDataType_t type = CUDNN_DATA_BFLOAT16;
  const std::int64_t alignment = 16;
  EXPECT_EQ(tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, kDims.data()), 0);
  EXPECT_EQ(tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, kStrides.data()), 0);
  EXPECT_EQ(tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type), 0);
  EXPECT_EQ(tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid), 0);
  EXPECT_EQ(tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment), 0);
}

std::string last_message() {
  std::array<char, 256> text{};
  cudnnGetLastErrorString(text.data(), text.size());
  return text.data();
}

TEST(CudnnStatuses, AttributesAreChecked) {
  const Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const cudnnDataType_t type = CUDNN_DATA_FLOAT;
  EXPECT_EQ(tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_FLOAT, 4, kDims.data()), kBad);
  EXPECT_EQ(cudnnBackendSetAttribute(tensor.get, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_FLOAT, 4, kDims.data()),
            CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  EXPECT_NE(last_message(), "");
  EXPECT_EQ(tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 2, kDims.data()), kBad);
  EXPECT_EQ(tensor.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type), kBad);
  EXPECT_EQ(tensor.set<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, nullptr), kBad);
}

TEST(CudnnStatuses, DescriptorsAreFinishedOnceAndThenFixed) {
  const Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  EXPECT_EQ(tensor.finalize(), kBad);
  describe(tensor, 5);
  EXPECT_EQ(tensor.finalize(), 0);
  EXPECT_EQ(tensor.finalize(), kBad);
  const std::int64_t uid = 6;
  EXPECT_EQ(tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid), kBad);
}

TEST(CudnnStatuses, ReferencesAreChecked) {
  const Descriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR), x(CUDNN_BACKEND_TENSOR_DESCRIPTOR),
      y(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  describe(x, 1);
  describe(y, 2);
  EXPECT_EQ(x.finalize(), 0);
  EXPECT_EQ(operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x.get), 0);
  EXPECT_EQ(operation.finalize(), kBad);  // without y
  std::int64_t count = 0;
  cudnnBackendDescriptor_t found = nullptr;
  EXPECT_EQ(
      cudnnBackendGetAttribute(operation.get, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &found),
      CUDNN_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y.get), 0);
  EXPECT_EQ(operation.finalize(), kBad);  // y is not final
  EXPECT_EQ(y.finalize(), 0);
  EXPECT_EQ(operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y.get), 0);
  EXPECT_EQ(operation.finalize(), 0);
}

TEST(CudnnStatuses, VariantPacksAreChecked) {
  const Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const std::array<std::int64_t, 2> uids = {1, 2};
  std::int64_t anything = 0;
  const std::array<void*, 3> pointers = {&anything, &anything, &anything};
  void* const workspace = nullptr;
  EXPECT_EQ(pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 2, uids.data()), 0);
  EXPECT_EQ(pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, pointers.data()), 0);
  EXPECT_EQ(pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace), 0);
  EXPECT_EQ(pack.finalize(), kBad);
  EXPECT_EQ(pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 2, pointers.data()), 0);
  EXPECT_EQ(pack.finalize(), 0);
}

}  // namespace
}  // namespace trident

// One product of the simulated cuBLASLt: what its descriptors ask for, and its computation.
#pragma once

#include <cstdint>

#include "tests/cuda/simulated/cublaslt_descriptors.h"

namespace trident::simulated {

// D = op(A) op(B) * alpha + beta * C, column-major; D is [m,n].
struct Product {
  OperationDescriptor operation;
  MatrixDescriptor a, b, c, d;
  AlgorithmDescriptor algorithm;
  const void* a_data = nullptr;
  const void* b_data = nullptr;
  const void* c_data = nullptr;
  void* d_data = nullptr;
  float alpha = 1, beta = 0;
  std::uint64_t number = 0;  // of this product in the process: in which order partial sums arrive that nothing orders

  std::int64_t m() const { return static_cast<std::int64_t>(d.rows); }
  std::int64_t n() const { return static_cast<std::int64_t>(d.columns); }
  std::int64_t k() const { return static_cast<std::int64_t>(operation.transpose_a == CUBLAS_OP_N ? a.columns : a.rows); }
};

// Whether the library computes this at all: layouts that fit together, types, operations, an epilogue with what it needs.
cublasStatus_t check_product(const OperationDescriptor& operation, const MatrixDescriptor& a, const MatrixDescriptor& b,
                             const MatrixDescriptor& c, const MatrixDescriptor& d);

// Bytes of workspace of an algorithm for a result d.
std::uint64_t workspace_bytes(const AlgorithmDescriptor& algorithm, const MatrixDescriptor& d);

// Bytes from the first element to behind the last.
std::size_t extent_bytes(const MatrixDescriptor& matrix);

// f32 arithmetic in the order that the algorithm stands for; results are rounded once, except where partial sums are of another
// type. All memory must be reachable.
void compute(const Product& product);

}  // namespace trident::simulated

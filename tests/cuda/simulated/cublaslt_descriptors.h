// These structures lie behind cuBLASLt's opaque descriptors in the simulation.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

namespace trident::simulated {

// In a cublasLtMatmulDescOpaque_t.
struct OperationDescriptor {
  std::uint32_t magic;
  std::int32_t compute, scale, pointer_mode, transpose_a, transpose_b, transpose_c, fill;
  std::uint32_t epilogue;
  std::int32_t aux_type, bias_type, multiprocessors;
  void* bias;
  void* aux;
  std::int64_t aux_leading;
  static constexpr std::uint32_t kMagic = 0x4D4D3031;
};

// In a cublasLtMatrixLayoutOpaque_t.
struct MatrixDescriptor {
  std::uint32_t magic, type;
  std::int32_t order, batch;
  std::uint64_t rows, columns;
  std::int64_t leading;
  static constexpr std::uint32_t kMagic = 0x4D4C3031;
};

// In a cublasLtMatmulPreferenceOpaque_t.
struct PreferenceDescriptor {
  std::uint32_t magic, search;
  std::uint64_t max_workspace;
  std::uint32_t reductions, align_a, align_b, align_c, align_d;
  static constexpr std::uint32_t kMagic = 0x4D503031;
};

// In a cublasLtMatmulAlgo_t.
struct AlgorithmDescriptor {
  std::uint32_t magic, tile, scheme;
  std::uint32_t alignment, aligned_operands;  // bytes that these operands must lie at multiples of; a mask of Operand
  std::int32_t id, splits, reserved;
  std::uint64_t version, extra_workspace;
  enum Operand : std::uint32_t { kA = 1, kB = 2, kC = 4, kD = 8, kAll = 15 };  // kD: and what its epilogue writes
  static constexpr std::uint32_t kMagic = 0x4D413031;
};

// Returns what an opaque structure holds; nullptr if it was not initialised.
const OperationDescriptor* contents(const cublasLtMatmulDescOpaque_t* operation);
const MatrixDescriptor* contents(const cublasLtMatrixLayoutOpaque_t* matrix);
const PreferenceDescriptor* contents(const cublasLtMatmulPreferenceOpaque_t* preference);
const AlgorithmDescriptor* contents(const cublasLtMatmulAlgo_t* algorithm);

// Bytes of an element; 0 for a type that no matrix of ours has.
std::size_t element_bytes(std::int32_t cuda_type);

}  // namespace trident::simulated

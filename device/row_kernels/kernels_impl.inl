// The functions of the table. Included inside the namespace of one instruction set.
//
// A file of row_kernels has the body of a row and behind it the loop over rows that is the table's function. GPUs take the bodies
// alone (device/cuda/kernels/row_bodies.cuh): where they are, there is no TRIDENT_ROW_KERNEL.

// x as it would be after a store to T and a load.
template <class T>
TRIDENT_ROW_BODY RowVec round_to(RowVec x) {
  if constexpr (is_same<T, Bf16>)
    return from_bits(round_bits(x) << 16);
  else if constexpr (is_same<T, F16>)
    return round_to_f16(x);
  else
    return x;
}

#include "device/row_kernels/host_team.inl"

// One table function: everything it calls is inlined into it.
#define TRIDENT_ROW_KERNEL static __attribute__((flatten)) void

constexpr HostTeam kTeam;

// Calls f with a null pointer of the element type.
template <class F>
TRIDENT_ROW_BODY void with_type(RowType t, F&& f) {
  if (t == RowType::kF32)
    f(static_cast<float*>(nullptr));
  else if (t == RowType::kBF16)
    f(static_cast<Bf16*>(nullptr));
  else
    f(static_cast<F16*>(nullptr));
}
template <class T>
TRIDENT_ROW_BODY T* as(void* p, T*) {
  return static_cast<T*>(p);
}
template <class T>
TRIDENT_ROW_BODY const T* as(const void* p, T*) {
  return static_cast<const T*>(p);
}

TRIDENT_ROW_BODY I bytes_of(RowType t) { return t == RowType::kF32 ? 4 : 2; }
// Empty operands may be null.
TRIDENT_ROW_BODY void copy_bytes(void* to, const void* from, I bytes) {
  if (bytes > 0) __builtin_memcpy(to, from, static_cast<std::size_t>(bytes));
}
TRIDENT_ROW_BODY void zero_bytes(void* to, I bytes) {
  if (bytes > 0) __builtin_memset(to, 0, static_cast<std::size_t>(bytes));
}

// Each needs those before it.
// clang-format off
#include "device/row_kernels/math.inl"
#include "device/row_kernels/activations.inl"
#include "device/row_kernels/elementwise.inl"
#include "device/row_kernels/heads.inl"
#include "device/row_kernels/loss.inl"
#include "device/row_kernels/norms.inl"
#include "device/row_kernels/optimizer.inl"
#include "device/row_kernels/random.inl"
#include "device/row_kernels/sum_of_squares.inl"
// clang-format on

constexpr RowKernels table_of(IsaLevel level) {
  RowKernels k{};
  k.level = level;
#define TRIDENT_ENTRY(name) k.name = name;
  TRIDENT_PLAIN_ROW_KERNELS(TRIDENT_ENTRY)
  TRIDENT_SCRATCH_ROW_KERNELS(TRIDENT_ENTRY)
  TRIDENT_OTHER_ROW_KERNELS(TRIDENT_ENTRY)
#undef TRIDENT_ENTRY
  return k;
}

// Vector types of one instruction set. Included inside that set's namespace, after kLanes (f32 elements per register).
//
// The kernel bodies (norms.inl, ...) use a small vocabulary: RowVec with + - * /, broadcast, load, store, round_to, fma,
// square_root, sign, larger, smaller, scale_by_power_of_two, and a team's each(), sum(), sum_pair(), largest(). Whoever provides
// these names in a namespace of its own can include the bodies there, whatever a "vector" and a "team" are on that machine.

// Before every function that works on vectors: inlined, so that none is left over as a symbol that the linker could share.
#define TRIDENT_ROW_BODY static inline __attribute__((always_inline))

using I = std::int64_t;

typedef float RowVec __attribute__((vector_size(4 * kLanes)));
typedef std::uint32_t U32s __attribute__((vector_size(4 * kLanes)));
typedef std::uint64_t U64s __attribute__((vector_size(4 * kLanes)));
typedef double F64s __attribute__((vector_size(4 * kLanes)));

// Storage only, like trident::bf16 and f16, whose headers have inline functions that must not be compiled here.
struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

// How many elements of a vector a load, store or reduction means: all, or the first few at the end of a row.
struct AllLanes {};
struct SomeLanes {
  int count;
};

struct PairVec {
  RowVec first, second;
};
struct PairSum {
  float first, second;
};

TRIDENT_ROW_BODY RowVec broadcast(float x) { return RowVec{} + x; }
// 1, -1, or x itself where it is zero or NaN.
TRIDENT_ROW_BODY RowVec sign(RowVec x) { return x > 0.0f ? broadcast(1.0f) : x < 0.0f ? broadcast(-1.0f) : x; }
TRIDENT_ROW_BODY U32s bits_of(RowVec x) { return reinterpret_cast<U32s>(x); }
TRIDENT_ROW_BODY RowVec from_bits(U32s x) { return reinterpret_cast<RowVec>(x); }

template <class A, class B>
constexpr bool is_same = false;
template <class A>
constexpr bool is_same<A, A> = true;

// The 16 bits of a bf16 in each 32-bit lane: to nearest, ties to even; NaN stays NaN; as trident::to_bf16.
TRIDENT_ROW_BODY U32s round_bits(RowVec x) {
  const U32s u = bits_of(x);
  const U32s rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return x == x ? rounded : ((u >> 16) | 0x40u);
}

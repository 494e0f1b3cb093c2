// The operands of attention's products as floats. Included after what wide_vectors.inl needs; attention_pairs.inl has the same
// names.
//
// A word has 32 bits: kPack elements that lie beside one another in a sum. A tile lies in rows, [rows, words of a row], where its
// columns are summed over, and across rows, [rows / kPack, columns], where its rows are.
#include "device/cpu/wide_vectors.inl"

constexpr I kPack = 1;

inline Floats multiply_add(Floats sum, Floats a, Floats b) { return sum + a * b; }

// As store(), by an instruction of its own where there is one.
template <class T>
__attribute__((always_inline)) inline void store_rounded(T* p, Floats v, I count) {
  store(p, v, count);
}

// x T[rows, width], x_row elements from one to the next, as rows of `words`, a multiple of kWidth: 0 behind the width.
template <class T>
void pack_rows(float* to, I words, const T* x, I x_row, I rows, I width) {
  for (I r = 0; r < rows; ++r, x += x_row, to += words) {
    I c = 0;
    for (; c + kWidth <= width; c += kWidth) store(to + c, load(x + c, kWidth), kWidth);
    if (c < width) store(to + c, load(x + c, width - c), kWidth);
    for (c = (width + kWidth - 1) / kWidth * kWidth; c < words; c += kWidth) store(to + c, Floats{}, kWidth);
  }
}
template <class T>
void pack_across(float* to, I columns, const T* x, I x_row, I rows, I width) {
  pack_rows(to, columns, x, x_row, rows, width);
}

// 2 to the power of a number that is the sum of two.
inline Floats weight_of(Floats high, Floats low) { return power_of_two(high + low); }

// kPack vectors of a row.
inline void store_in_row(float* to, const Floats* v) { store(to, *v, kWidth); }
// A vector of each of kPack rows.
inline void store_across(float* to, const Floats* v) { store(to, *v, kWidth); }

// f.operator()<element type>().
template <class F>
void with_element(RowType t, F f) {
  if (t == RowType::kF32)
    f.template operator()<float>();
  else if (t == RowType::kBF16)
    f.template operator()<Bf16>();
  else
    f.template operator()<F16>();
}

// Multiply-adds in vectors of kWidth floats. Included inside a namespace of the instruction set's name and an unnamed one, after
// kWidth and kSums: as many sums as hide the latency of an instruction, of which two may begin in a cycle.

typedef float Floats __attribute__((vector_size(4 * kWidth)));

// The sums converge to 1, so that no operand is zero or denormal, which would take less power or more time.
void multiply_floats(std::int64_t rounds) {
  Floats factor = Floats{} + 0.75f, term = Floats{} + 0.25f, sums[kSums];
  __asm__ volatile("" : "+x"(factor), "+x"(term));  // else the compiler knows what comes out
#pragma GCC unroll 24
  for (int i = 0; i < kSums; ++i) sums[i] = term * static_cast<float>(i);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < kSums; ++i) sums[i] = sums[i] * factor + term;
  }
#pragma GCC unroll 24
  for (int i = 0; i < kSums; ++i) __asm__ volatile("" : : "x"(sums[i]));
}

constexpr MultiplyLoop kFloats{2.0 * kSums * kWidth, multiply_floats};

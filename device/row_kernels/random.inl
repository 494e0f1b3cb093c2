// Philox4x32-10 as in core/philox.h, one counter block per lane, and the dropout mask made from it.

struct PhiloxWords {
  U32s w[4];
};

struct Product64 {
  U32s low, high;
};

TRIDENT_ROW_BODY Product64 multiply_wide(U32s a, std::uint32_t factor) {
  const U32s f = U32s{} + factor;
  const U64s even = multiply_even(a, f), odd = multiply_even(reinterpret_cast<U32s>(reinterpret_cast<U64s>(a) >> 32), f);
  const U64s low_half = U64s{} + std::uint64_t{0xffffffffu};
  return {reinterpret_cast<U32s>((even & low_half) | (odd << 32)), reinterpret_cast<U32s>((even >> 32) | (odd & ~low_half))};
}

// Blocks block .. block + kLanes - 1 under key; lane 4q + j has block number j * kLanes / 4 + q, so that transpose_quads() puts the
// words of all blocks in order.
TRIDENT_ROW_BODY PhiloxWords philox_blocks(std::uint64_t block, std::uint32_t key0, std::uint32_t key1) {
  std::uint32_t low[kLanes], high[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    const std::uint64_t counter = block + static_cast<std::uint64_t>(i % 4 * (kLanes / 4) + i / 4);
    low[i] = static_cast<std::uint32_t>(counter);
    high[i] = static_cast<std::uint32_t>(counter >> 32);
  }
  PhiloxWords c{};
  __builtin_memcpy(&c.w[0], low, sizeof(low));
  __builtin_memcpy(&c.w[1], high, sizeof(high));
  for (int round = 0; round < 10; ++round) {
    const Product64 p0 = multiply_wide(c.w[0], 0xD2511F53u), p1 = multiply_wide(c.w[2], 0xCD9E8D57u);
    c = {{p1.high ^ c.w[1] ^ key0, p1.low, p0.high ^ c.w[3] ^ key1, p0.low}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

// out = x * mask / (1 - p) for elements whose numbers start at `first`. An element is kept if its uniform number in (0, 1] is > p.
template <class Team, class T>
TRIDENT_ROW_BODY void dropout_row(const Team& team, T* out, const T* x, I count, std::uint64_t first, const DropoutRows& spec) {
  constexpr I kGroup = 4 * kLanes;
  const float survivor = 1.0f / (1.0f - spec.probability);
  float factor[kGroup];
  I done = 0;
  while (done < count) {
    const std::uint64_t number = first + static_cast<std::uint64_t>(done);
    const PhiloxWords words = philox_blocks(number / 4, spec.key[0], spec.key[1]);
    RowVec kept[4];
    for (int w = 0; w < 4; ++w) {
      // As uniform_from_bits(): (bits >> 8) + 1 is at most 2^24 and therefore exact as a float.
      typedef std::int32_t I32s __attribute__((vector_size(4 * kLanes)));
      const RowVec uniform = __builtin_convertvector(reinterpret_cast<I32s>((words.w[w] >> 8) + 1u), RowVec) * 0x1p-24f;
      kept[w] = uniform > spec.probability ? broadcast(survivor) : RowVec{};
    }
    transpose_quads(kept);
    for (int w = 0; w < 4; ++w) store(factor + w * kLanes, kept[w], AllLanes{});
    const I skip = static_cast<I>(number % 4);  // numbers of the first block that belong to elements before this one
    const I left = count - done, length = left < kGroup - skip ? left : kGroup - skip;
    team.each(length,
              [&](I i, auto lanes) { store(out + done + i, load(x + done + i, lanes) * load(factor + skip + i, lanes), lanes); });
    done += length;
  }
}

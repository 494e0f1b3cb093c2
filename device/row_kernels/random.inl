// Philox4x32-10 as in core/philox.h, one counter block per lane, and what is made from it: dropout masks, and bf16 weights rounded up or
// down at random.

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

// Blocks block .. block + kLanes - 1 under key, with `stream` in the upper counter words; lane 4q + j has block number j * kLanes /
// 4 + q, so that transpose_quads() puts the words of all blocks in order.
TRIDENT_ROW_BODY PhiloxWords philox_blocks(std::uint64_t block, std::uint64_t stream, std::uint32_t key0, std::uint32_t key1) {
  std::uint32_t low[kLanes], high[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    const std::uint64_t counter = block + static_cast<std::uint64_t>(i % 4 * (kLanes / 4) + i / 4);
    low[i] = static_cast<std::uint32_t>(counter);
    high[i] = static_cast<std::uint32_t>(counter >> 32);
  }
  PhiloxWords c{};
  __builtin_memcpy(&c.w[0], low, sizeof(low));
  __builtin_memcpy(&c.w[1], high, sizeof(high));
  c.w[2] = U32s{} + static_cast<std::uint32_t>(stream);
  c.w[3] = U32s{} + static_cast<std::uint32_t>(stream >> 32);
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
TRIDENT_ROW_BODY void dropout_row(const Team& team, T* out, const T* x, I count, std::uint64_t first, const DropoutSpec& spec) {
  constexpr I kGroup = 4 * kLanes;
  const float survivor = 1.0f / (1.0f - spec.probability);
  float factor[kGroup];
  I done = 0;
  while (done < count) {
    const std::uint64_t number = first + static_cast<std::uint64_t>(done);
    const PhiloxWords words = philox_blocks(number / 4, 0, spec.key[0], spec.key[1]);
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

// x plus 16 random bits below its last bit as a bf16, the rest cut off; what has no bf16 beyond it stays, for a store to round.
TRIDENT_ROW_BODY RowVec round_at_random(RowVec x, U32s bits) {
  const U32s u = bits_of(x);
  return from_bits((u & 0x7fffffffu) > 0x7f7f0000u ? u : (u + bits) & 0xffff0000u);
}

// An update of RoundedElements (device/op_numbers.h), in runs that share a row of the tensor and kLanes counter blocks.
template <UpdateRule rule, class Team>
TRIDENT_ROW_BODY void update_at_random(const Team& team, Bf16* param, float* master, const UpdateStates& states, const float* grad,
                                       I count, const UpdateNumbers& numbers, const RoundedElements& elements) {
  constexpr I kGroup = 8 * kLanes;
  Bf16 halves[kGroup];
  // Whole rows follow one another: all of them are one.
  const I columns = elements.columns == elements.stride ? elements.first_column + count : elements.columns;
  I row = elements.first_index, column = elements.first_column;
  for (I done = 0; done < count;) {
    const std::uint64_t element = static_cast<std::uint64_t>(row + column);
    const PhiloxWords words = philox_blocks(element / 8, numbers.update_number(), elements.key[0], elements.key[1]);
    RowVec in_order[4];
    for (int w = 0; w < 4; ++w) in_order[w] = from_bits(words.w[w]);
    transpose_quads(in_order);
    __builtin_memcpy(halves, in_order, sizeof(halves));
    const I skip = static_cast<I>(element % 8);  // halves of the first block that belong to elements before this one
    const I of_row = columns - column, of_group = kGroup - skip, left = count - done;
    const I with_row = left < of_row ? left : of_row, length = with_row < of_group ? with_row : of_group;
    update_row<rule>(
        team, param + done, master + done, states_from<rule>(states, done), grad + done, length, numbers,
        [&](I i, RowVec next, auto lanes) { return round_at_random(next, bits_of(load(halves + skip + i, lanes)) >> 16); });
    done += length;
    column += length;
    if (column == columns) {
      column = 0;
      row += elements.stride;
    }
  }
}

TRIDENT_ROW_KERNEL dropout(RowType t, void* out, const void* x, const std::int64_t* samples, I sequence, I batch, I width,
                           const DropoutSpec& spec) {
  with_type(t, [&](auto* type) {
    for (I s = 0; s < sequence; ++s)
      for (I b = 0; b < batch; ++b) {
        const I token = samples[b] * spec.sequence + spec.position_offset + s;
        const I row = (s * batch + b) * width;
        const I first = token * (spec.all_columns > 0 ? spec.all_columns : width) + spec.first_column;
        dropout_row(kTeam, as(out, type) + row, as(x, type) + row, width, static_cast<std::uint64_t>(first), spec);
      }
  });
}

template <UpdateRule rule>
TRIDENT_ROW_KERNEL update_by(RowType t, void* param, float* master, const UpdateStates& states, const float* grad, I count,
                             const UpdateNumbers& numbers, const RoundedElements* at_random) {
  if (at_random != nullptr)
    return update_at_random<rule>(kTeam, static_cast<Bf16*>(param), master, states, grad, count, numbers, *at_random);
  with_type(t, [&](auto* type) { update_row<rule>(kTeam, as(param, type), master, states, grad, count, numbers); });
}

TRIDENT_ROW_KERNEL update(UpdateRule rule, RowType t, void* param, float* master, const UpdateStates& states,
                          const float* grad, I count, const UpdateNumbers& numbers, const RoundedElements* at_random) {
  switch (rule) {
#define TRIDENT_UPDATE_BY(r, name, states_of_it) \
  case UpdateRule::r: return update_by<UpdateRule::r>(t, param, master, states, grad, count, numbers, at_random);
    TRIDENT_UPDATE_RULES(TRIDENT_UPDATE_BY)
#undef TRIDENT_UPDATE_BY
  }
}

// Bodies of product_tiles.h. Included by one source file per instruction set inside a namespace named after it and an unnamed one,
// after wide_vectors.inl, attention_floats.inl or attention_pairs.inl, kTileRows and kTileVectors.

constexpr I kTileColumns = kTileVectors * kWidth;

// kWidth words of one line, of which `left` elements are there.
template <class T>
__attribute__((always_inline)) inline Floats words_along(const T* x, I left) {
  if constexpr (kPack == 1) {
    return load(x, within(left, kWidth));
  } else {
    Floats v = {};
    if (left >= kPack * kWidth)
      __builtin_memcpy(&v, x, sizeof v);
    else if (left > 0)
      __builtin_memcpy(&v, x, static_cast<unsigned long>(left) * sizeof(T));
    return v;
  }
}

// One word of each of kWidth lines, of which `count` are there; `left` elements of the sum are.
template <class T>
__attribute__((always_inline)) inline Floats words_across(const T* x, I stride, I left, I count) {
  if constexpr (kPack == 1) {
    return load(x, count);
  } else {
    const Words first = load_bits(x, count);
    return (Floats)(left > 1 ? first | load_bits(x + stride, count) << 16 : first);
  }
}

// Word w of kWidth lines, `count` of them in this panel, goes to to + w * panel. All but the last ones are stored whole, because the
// next word overwrites what is too much.
template <class T>
void fill_along(const T* x, I stride, I lines, I depth, float* to, I panel, I count) {
  const I words = (depth + kPack - 1) / kPack;
  for (I w = 0; w < words; w += kWidth) {
    Floats v[kWidth];
#pragma GCC unroll 16
    for (I l = 0; l < kWidth; ++l) v[l] = l < lines ? words_along(x + l * stride + w * kPack, depth - w * kPack) : Floats{};
    transpose<kWidth / 2>(v);
    if (w + kWidth < words) {
#pragma GCC unroll 16
      for (I i = 0; i < kWidth; ++i) store(to + (w + i) * panel, v[i], kWidth);
    } else {
      float last[kWidth * kWidth];
#pragma GCC unroll 16
      for (I i = 0; i < kWidth; ++i) store(last + i * kWidth, v[i], kWidth);
      for (I i = 0; i < words - w; ++i) store(to + (w + i) * panel, load(last + i * kWidth, kWidth), count);
    }
  }
}

template <class T>
void fill_of(const PanelLines& from, float* to, I panel) {
  const T* x = static_cast<const T*>(from.x);
  const I words = (from.depth + kPack - 1) / kPack, all = (from.lines + panel - 1) / panel * panel;
  if (from.by_depth) {
    // All panels at a time, because lines that are whole pages apart push each other out of the cache.
    for (I w = 0; w < words; ++w, x += kPack * from.stride) {
      for (I first = 0; first < all; first += panel) {
        for (I c = 0; c < panel; c += kWidth) {
          const I there = within(from.lines - first - c, kWidth);
          const Floats v = words_across(x + first + c, from.stride, from.depth - w * kPack, there);
          store(to + first * words + w * panel + c, v, w + 1 < words ? kWidth : within(panel - c, kWidth));
        }
      }
    }
    return;
  }
  for (I first = 0; first < all; first += panel) {
    for (I c = 0; c < panel; c += kWidth) {
      const I lines = within(from.lines - first - c, within(panel - c, kWidth));
      fill_along(x + (first + c) * from.stride, from.stride, lines, from.depth, to + first * words + c, panel,
                 within(panel - c, kWidth));
    }
  }
}

void fill(const PanelLines& from, float* to, I panel) {
  with_element(from.type, [&]<class T>() { fill_of<T>(from, to, panel); });
}

template <class To, class Add>
void put(const ProductTile& t, const float* sums, I sums_stride) {
  for (I r = 0; r < t.rows; ++r, sums += sums_stride) {
    To* const to = static_cast<To*>(t.to.data) + r * t.to.stride;
    const Add* const add = static_cast<const Add*>(t.add.data) + r * t.add.stride;
    for (I c = 0; c < t.columns; c += kWidth) {
      const I count = within(t.columns - c, kWidth);
      Floats v = load(sums + c, kWidth) * t.scale;
      if (t.add.data != nullptr) v += load(add + c, count);
      store(to + c, v, count);
    }
  }
}
template <class F>
void with_place(const TilePlace& place, F f) {
  if (place.type == RowType::kF32)
    f.template operator()<float>();
  else if (place.type == RowType::kBF16)
    f.template operator()<Bf16>();
  else
    f.template operator()<F16>();
}
__attribute__((noinline)) void finish(const ProductTile& t, const float* sums, I sums_stride) {
  with_place(t.to, [&]<class To>() {
    with_place(t.add, [&]<class Add>() { put<To, Add>(t, sums, sums_stride); });
  });
}

// Arrays whose loops are unrolled stay in registers.
template <I rows, I vectors>
void multiply_tile(const ProductTile& t) {
  Floats sums[rows * vectors] = {};
  const float *a = t.a, *b = t.b;
  for (I i = 0; i < t.words; ++i, a += kTileRows, b += kTileColumns) {
    Floats right[vectors];
#pragma GCC unroll 4
    for (I c = 0; c < vectors; ++c) right[c] = load(b + c * kWidth, kWidth);
#pragma GCC unroll 16
    for (I r = 0; r < rows; ++r) {
      const Floats left = broadcast_word(a + r);
#pragma GCC unroll 4
      for (I c = 0; c < vectors; ++c) sums[r * vectors + c] = multiply_add(sums[r * vectors + c], left, right[c]);
    }
  }
  float tile[rows * vectors * kWidth];
#pragma GCC unroll 32
  for (I i = 0; i < rows * vectors; ++i) store(tile + i * kWidth, sums[i], kWidth);
  finish(t, tile, vectors * kWidth);
}

template <I vectors, I... r>
void multiply_rows(const ProductTile& t, Indices<r...>) {
  constexpr void (*kOfRows[])(const ProductTile&) = {multiply_tile<r + 1, vectors>...};
  kOfRows[t.rows - 1](t);
}
template <I... c>
void multiply_columns(const ProductTile& t, Indices<c...>) {
  const I vectors = (t.columns + kWidth - 1) / kWidth;
  ((c + 1 == vectors ? multiply_rows<c + 1>(t, UpTo<kTileRows>()) : void()), ...);
}
void multiply(const ProductTile& t) { multiply_columns(t, UpTo<kTileVectors>()); }

constexpr ProductTiles kProductTiles{kTileRows, kTileColumns, kPack, fill, multiply};

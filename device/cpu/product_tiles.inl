// Bodies of product_tiles.h. Included by one source file per instruction set inside a namespace named after it and an unnamed one,
// after attention_floats.inl or attention_pairs.inl, kTileRows and kTileVectors.

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

// Word w of kWidth lines, `count` of them in this panel, goes to to + w * panel. All but the last ones are stored whole, because
// the next word overwrites what is too much.
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

// Words of the sum that are packed at a time, where each lies on another page, and how many bytes further on in its rows are asked
// for meanwhile. Words further on in the sum may be another thread's to pack.
constexpr I kWordsAtOnce = 16, kAskedAhead = 128;

// `words` words of kWidth lines from number c of a panel on, of which `lines` are there; `depth` elements of the sum are.
template <class T>
void fill_across(const T* x, I stride, I lines, I depth, float* to, I panel, I c, I words) {
  const I there = within(lines, kWidth), stored = within(panel - c, kWidth);
  I w = 0;
  if (there == kWidth) {
    const I whole = stored == kWidth ? within(depth / kPack, words) : within(depth / kPack, words - 1);
    for (; w < whole; ++w, x += kPack * stride, to += panel) {
      for (I i = 0; i < kPack; ++i) {
        // No pointer: it may lie behind the end.
        const auto row = reinterpret_cast<unsigned long>(x + i * stride);
        __builtin_prefetch(reinterpret_cast<const void*>(row + kAskedAhead));
      }
      store(to, words_across(x, stride, kPack, kWidth), kWidth);
    }
  }
  for (; w < words; ++w, x += kPack * stride, to += panel)
    store(to, words_across(x, stride, depth - w * kPack, there), w + 1 < words ? kWidth : stored);
}

template <class T>
void fill_of(const PanelLines& from, float* to, I panel, I panel_words) {
  const T* x = static_cast<const T*>(from.x);
  const I words = (from.depth + kPack - 1) / kPack, all = (from.lines + panel - 1) / panel * panel;
  if (from.by_depth) {
    // A few words of all panels at a time, because lines that are whole pages apart push each other out of the cache.
    for (I w = 0; w < words; w += kWordsAtOnce) {
      for (I first = 0; first < all; first += panel) {
        for (I c = 0; c < panel; c += kWidth) {
          fill_across(x + w * kPack * from.stride + first + c, from.stride, from.lines - first - c, from.depth - w * kPack,
                      to + first * panel_words + w * panel + c, panel, c, smaller(kWordsAtOnce, words - w));
        }
      }
    }
    return;
  }
  for (I first = 0; first < all; first += panel) {
    for (I c = 0; c < panel; c += kWidth) {
      const I lines = within(from.lines - first - c, within(panel - c, kWidth));
      fill_along(x + (first + c) * from.stride, from.stride, lines, from.depth, to + first * panel_words + c, panel,
                 within(panel - c, kWidth));
    }
  }
}

void fill(const PanelLines& from, float* to, I panel, I panel_words) {
  with_element(from.type, [&]<class T>() { fill_of<T>(from, to, panel, panel_words); });
}

struct Nothing {};

template <class To, class Add>
__attribute__((always_inline)) inline void put_vector(To* to, const float* sums, float scale, const Add* add, I c, I count) {
  Floats v = load(sums + c, kWidth) * scale;
  if constexpr (!__is_same(Add, Nothing)) v += load(add + c, count);
  store_rounded(to + c, v, count);
}
template <I vectors, class To, class Add>
void put(const ProductTile& t, const float* sums) {
  To* to = static_cast<To*>(t.to.data);
  const Add* add = static_cast<const Add*>(t.add.data);
  constexpr I kLast = (vectors - 1) * kWidth;
  for (I r = 0; r < t.rows; ++r, sums += vectors * kWidth, to += t.to.stride, add += t.add.stride) {
#pragma GCC unroll 4
    for (I c = 0; c < kLast; c += kWidth) put_vector(to, sums, t.scale, add, c, kWidth);
    put_vector(to, sums, t.scale, add, kLast, t.columns - kLast);
  }
}
template <class F>
void with_place(const TilePlace& place, F f) {
  if (place.data == nullptr)
    f.template operator()<Nothing>();
  else if (place.type == RowType::kF32)
    f.template operator()<float>();
  else if (place.type == RowType::kBF16)
    f.template operator()<Bf16>();
  else
    f.template operator()<F16>();
}
template <I vectors>
__attribute__((noinline)) void finish(const ProductTile& t, const float* sums) {
  with_place(t.to, [&]<class To>() {
    if constexpr (!__is_same(To, Nothing)) with_place(t.add, [&]<class Add>() { put<vectors, To, Add>(t, sums); });
  });
}

// Asks for a row of a tile in time: it comes from memory while the product is made.
inline void ask_for(const TilePlace& place, I row, I columns) {
  const I width = place.type == RowType::kF32 ? 4 : 2;
  const char* p = static_cast<const char*>(place.data) + row * place.stride * width;
  __builtin_prefetch(p);
  __builtin_prefetch(p + columns * width - 1);
}

// Rows that one register and two distances reach: an address is a register and 1, 2, 4 or 8 times another.
constexpr I kRowsOfABase = 5;

// Arrays whose loops are unrolled stay in registers.
template <I rows, I vectors>
__attribute__((always_inline)) inline void add_product(Floats* sums, const TileFactors& f, const float* ahead, I ahead_row) {
  constexpr I kBases = (rows + kRowsOfABase - 1) / kRowsOfABase;
  const float *a[kBases], *b = f.b;
#pragma GCC unroll 4
  for (I base = 0; base < kBases; ++base) a[base] = f.a + base * kRowsOfABase * f.a_row;
  const I row = f.a_row;
  I three_rows = 3 * row;
  __asm__("" : "+r"(three_rows));  // else every row takes a register, and more than there are
  for (I i = 0; i < f.words; ++i, b += kTileColumns) {
    __builtin_prefetch(ahead + i);
    __builtin_prefetch(ahead + i + ahead_row);
    Floats right[vectors];
#pragma GCC unroll 4
    for (I c = 0; c < vectors; ++c) right[c] = load(b + c * kWidth, kWidth);
#pragma GCC unroll 16
    for (I r = 0; r < rows; ++r) {
      const I of_base = r % kRowsOfABase;
      const Floats left = broadcast_word(a[r / kRowsOfABase] + (of_base == 3 ? three_rows : of_base * row));
#pragma GCC unroll 4
      for (I c = 0; c < vectors; ++c) sums[r * vectors + c] = multiply_add(sums[r * vectors + c], left, right[c]);
    }
#pragma GCC unroll 4
    for (I base = 0; base < kBases; ++base) a[base] += f.a_word;
  }
}

template <I rows, I vectors>
void multiply_tile(const ProductTile& t) {
  for (I r = 0; r < rows; ++r) ask_for(t.to, r, t.columns);
  if (t.add.data != nullptr && t.add.data != t.to.data) {
    for (I r = 0; r < rows; ++r) ask_for(t.add, r, t.columns);
  }
  Floats sums[rows * vectors] = {};
  add_product<rows, vectors>(sums, t.product, t.ahead != nullptr ? t.ahead : t.product.a, t.ahead_row);
  if (t.second.words > 0) add_product<rows, vectors>(sums, t.second, t.second.a, 0);
  float tile[rows * vectors * kWidth];
#pragma GCC unroll 32
  for (I i = 0; i < rows * vectors; ++i) store(tile + i * kWidth, sums[i], kWidth);
  finish<vectors>(t, tile);
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

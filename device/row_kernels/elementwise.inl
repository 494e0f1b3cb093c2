// Sums, copies and conversions.

template <class Team, class T>
TRIDENT_ROW_BODY void add_row(const Team& team, T* out, const T* a, const T* b, I count) {
  team.each(count, [&](I i, auto lanes) { store(out + i, load(a + i, lanes) + load(b + i, lanes), lanes); });
}

// out f32 += x T.
template <class Team, class T>
TRIDENT_ROW_BODY void accumulate_row(const Team& team, float* out, const T* x, I count) {
  team.each(count, [&](I i, auto lanes) { store(out + i, load(out + i, lanes) + load(x + i, lanes), lanes); });
}

template <class Team, class To, class From>
TRIDENT_ROW_BODY void convert_row(const Team& team, To* out, const From* x, I count) {
  team.each(count, [&](I i, auto lanes) { store(out + i, load(x + i, lanes), lanes); });
}

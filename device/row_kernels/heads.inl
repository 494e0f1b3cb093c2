// Rotary position embedding (Su et al. 2021), half-split form as in GPT-NeoX and Llama: pairs (j, j + half).
template <class Team, class T>
TRIDENT_ROW_BODY void rope_row(const Team& team, T* x, const float* cos, const float* sin, I half, float direction) {
  team.each(half, [&](I j, auto lanes) {
    const auto c = load(cos + j, lanes), s = load(sin + j, lanes) * direction;
    const auto a = load(x + j, lanes), b = load(x + half + j, lanes);
    store(x + j, a * c - b * s, lanes);
    store(x + half + j, b * c + a * s, lanes);
  });
}

// A team works on one row together; on the host it is one thread. Reductions have a fixed order: it depends on the row's length
// only.

TRIDENT_ROW_BODY float add_lanes(RowVec x) {
  float lane[kLanes];
  store(lane, x, AllLanes{});
  for (int step = kLanes / 2; step > 0; step /= 2)
    for (int i = 0; i < step; ++i) lane[i] += lane[i + step];
  return lane[0];
}

struct HostTeam {
  // Waits until every member of the team is here; whether this member is the one that speaks for the team.
  TRIDENT_ROW_BODY void barrier() {}
  TRIDENT_ROW_BODY bool leads() { return true; }

  // f(i, lanes) for consecutive pieces of [0, n): full vectors, then the rest.
  template <class F>
  __attribute__((always_inline)) void each(I n, F&& f) const {
    I i = 0;
    for (; i + kLanes <= n; i += kLanes) f(i, AllLanes{});
    if (i < n) f(i, SomeLanes{static_cast<int>(n - i)});
  }

  // Sum over [0, n) of the values f(i, lanes). Four running sums hide the latency of the addition.
  template <class F>
  __attribute__((always_inline)) float sum(I n, F&& f) const {
    RowVec a{}, b{}, c{}, d{};
    I i = 0;
    for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
      a += f(i, AllLanes{});
      b += f(i + kLanes, AllLanes{});
      c += f(i + 2 * kLanes, AllLanes{});
      d += f(i + 3 * kLanes, AllLanes{});
    }
    for (; i + kLanes <= n; i += kLanes) a += f(i, AllLanes{});
    if (i < n) {
      const SomeLanes rest{static_cast<int>(n - i)};
      b += first_lanes(f(i, rest), RowVec{}, rest);
    }
    return add_lanes((a + b) + (c + d));
  }

  // Two sums in one pass: f returns a PairVec.
  template <class F>
  __attribute__((always_inline)) PairSum sum_pair(I n, F&& f) const {
    PairVec a{}, b{};
    I i = 0;
    for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
      a = plus(a, f(i, AllLanes{}));
      b = plus(b, f(i + kLanes, AllLanes{}));
    }
    if (i + kLanes <= n) {
      a = plus(a, f(i, AllLanes{}));
      i += kLanes;
    }
    if (i < n) {
      const SomeLanes rest{static_cast<int>(n - i)};
      const PairVec last = f(i, rest);
      b = plus(b, {first_lanes(last.first, RowVec{}, rest), first_lanes(last.second, RowVec{}, rest)});
    }
    return {add_lanes(a.first + b.first), add_lanes(a.second + b.second)};
  }

  // Largest of the values f(i, lanes), -infinity when n is 0; NaNs are passed over.
  template <class F>
  __attribute__((always_inline)) float largest(I n, F&& f) const {
    const RowVec none = broadcast(-__builtin_inff());
    RowVec a = none, b = none;
    I i = 0;
    for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
      a = larger(f(i, AllLanes{}), a);
      b = larger(f(i + kLanes, AllLanes{}), b);
    }
    if (i + kLanes <= n) {
      a = larger(f(i, AllLanes{}), a);
      i += kLanes;
    }
    if (i < n) {
      const SomeLanes rest{static_cast<int>(n - i)};
      b = larger(first_lanes(f(i, rest), none, rest), b);
    }
    float lane[kLanes];
    store(lane, larger(a, b), AllLanes{});
    float result = lane[0];
    for (int k = 1; k < kLanes; ++k) result = lane[k] > result ? lane[k] : result;
    return result;
  }

 private:
  TRIDENT_ROW_BODY PairVec plus(PairVec x, PairVec y) { return {x.first + y.first, x.second + y.second}; }
};

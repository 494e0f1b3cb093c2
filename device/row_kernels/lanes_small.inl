// Loads and stores of part of a vector for instruction sets without masks: through a small array. Needs the AllLanes functions.
TRIDENT_ROW_BODY RowVec load(const float* p, SomeLanes lanes) {
  float all[kLanes] = {};
  __builtin_memcpy(all, p, sizeof(*p) * static_cast<std::size_t>(lanes.count));
  return load(all, AllLanes{});
}
template <class Half>
TRIDENT_ROW_BODY RowVec load(const Half* p, SomeLanes lanes) {
  Half all[kLanes] = {};
  __builtin_memcpy(all, p, sizeof(*p) * static_cast<std::size_t>(lanes.count));
  return load(all, AllLanes{});
}
TRIDENT_ROW_BODY void store(float* p, RowVec x, SomeLanes lanes) {
  __builtin_memcpy(p, &x, sizeof(*p) * static_cast<std::size_t>(lanes.count));
}
template <class Half>
TRIDENT_ROW_BODY void store(Half* p, RowVec x, SomeLanes lanes) {
  Half all[kLanes];
  store(all, x, AllLanes{});
  __builtin_memcpy(p, all, sizeof(*p) * static_cast<std::size_t>(lanes.count));
}
TRIDENT_ROW_BODY RowVec first_lanes(RowVec x, RowVec rest, SomeLanes lanes) {
  for (int i = lanes.count; i < kLanes; ++i) x[i] = rest[i];
  return x;
}

// x * 2^n for |n| <= 256 given as the integer-valued float `n`, in two factors so that results reach infinity and zero gradually.
TRIDENT_ROW_BODY RowVec scale_by_power_of_two(RowVec x, RowVec n) {
  // Adding 1.5 * 2^23 leaves the integer in the low bits.
  const U32s integer = bits_of(n + 12582912.0f) - 0x4B400000u;
  typedef std::int32_t I32s __attribute__((vector_size(4 * kLanes)));
  const I32s whole = reinterpret_cast<I32s>(integer), half = whole >> 1, other = whole - half;
  const RowVec a = reinterpret_cast<RowVec>((half + 127) << 23), b = reinterpret_cast<RowVec>((other + 127) << 23);
  return x * a * b;
}

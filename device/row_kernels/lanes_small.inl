// Loads and stores of part of a vector for instruction sets without masks: through a small array. Needs the AllLanes functions.
TRIDENT_ROW_BODY HostVec load(const float* p, SomeLanes lanes) {
  float all[kLanes] = {};
  for (int i = 0; i < lanes.count; ++i) all[i] = p[i];
  return load(all, AllLanes{});
}
TRIDENT_ROW_BODY HostVec load(const Bf16* p, SomeLanes lanes) {
  Bf16 all[kLanes] = {};
  for (int i = 0; i < lanes.count; ++i) all[i] = p[i];
  return load(all, AllLanes{});
}
TRIDENT_ROW_BODY void store(float* p, HostVec x, SomeLanes lanes) {
  for (int i = 0; i < lanes.count; ++i) p[i] = x[i];
}
TRIDENT_ROW_BODY void store(Bf16* p, HostVec x, SomeLanes lanes) {
  Bf16 all[kLanes];
  store(all, x, AllLanes{});
  for (int i = 0; i < lanes.count; ++i) p[i] = all[i];
}
TRIDENT_ROW_BODY HostVec first_lanes(HostVec x, HostVec rest, SomeLanes lanes) {
  for (int i = lanes.count; i < kLanes; ++i) x[i] = rest[i];
  return x;
}

// x * 2^n for |n| <= 256 given as the integer-valued float `n`, in two factors so that results reach infinity and zero gradually.
TRIDENT_ROW_BODY HostVec scale_by_power_of_two(HostVec x, HostVec n) {
  // Adding 1.5 * 2^23 leaves the integer in the low bits.
  const U32s integer = bits_of(n + 12582912.0f) - 0x4B400000u;
  typedef std::int32_t I32s __attribute__((vector_size(4 * kLanes)));
  const I32s whole = reinterpret_cast<I32s>(integer), half = whole >> 1, other = whole - half;
  const HostVec a = reinterpret_cast<HostVec>((half + 127) << 23), b = reinterpret_cast<HostVec>((other + 127) << 23);
  return x * a * b;
}

// Keys of sorts: u32 whose order is that of the elements. NaN counts as the largest, -0 equals 0.
uint sort_key(float x) {
  uint bits = floatBitsToUint(x);
  if (bits == 0x80000000u) bits = 0u;
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    bits = 0xffffffffu;
  } else {
    bits = (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
  }
  return DESCENDING == 1 ? ~bits : bits;
}
uint sort_key(int x) {
  const uint bits = uint(x) ^ 0x80000000u;
  return DESCENDING == 1 ? ~bits : bits;
}
uint sort_key(uint x) { return DESCENDING == 1 ? ~x : x; }

// Elements that are stored otherwise than as one 32-bit word. Blocks as in math.glsl.
//@ ae_f16_bits
// Round to nearest, ties to even; overflow to infinity; NaN stays NaN. packHalf2x16 may round either way.
uint ae_f16_bits(float x) {
  uint bits = floatBitsToUint(x), sign = (bits >> 16) & 0x8000u, m = bits & 0x7fffffffu;
  if (m > 0x7f800000u) return sign | 0x7e00u | ((m >> 13) & 0x1ffu);
  if (m >= 0x477ff000u) return sign | 0x7c00u;
  if (m >= 0x38800000u) return sign | ((m - 0x38000000u + 0xfffu + ((m >> 13) & 1u)) >> 13);
  if (m < 0x33000000u) return sign;
  uint f = (m & 0x7fffffu) | 0x800000u, shift = 126u - (m >> 23);  // subnormal: 14 to 24 bits go
  uint q = f >> shift, rest = f & ((1u << shift) - 1u), tie = 1u << (shift - 1u);
  return sign | (q + uint(rest > tie || (rest == tie && (q & 1u) != 0u)));
}
//@ ae_bf16_bits
uint ae_bf16_bits(float x) {
  uint bits = floatBitsToUint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
//@ ae_round_f16
float ae_round_f16(float x) { return unpackHalf2x16(ae_f16_bits(x)).x; }
vec4 ae_round_f16(vec4 x) {
  return vec4(unpackHalf2x16(ae_f16_bits(x.x) | (ae_f16_bits(x.y) << 16)),
              unpackHalf2x16(ae_f16_bits(x.z) | (ae_f16_bits(x.w) << 16)));
}
//@ ae_round_bf16
float ae_round_bf16(float x) { return uintBitsToFloat(ae_bf16_bits(x) << 16); }
vec4 ae_round_bf16(vec4 x) {
  return uintBitsToFloat(uvec4(ae_bf16_bits(x.x), ae_bf16_bits(x.y), ae_bf16_bits(x.z), ae_bf16_bits(x.w)) << 16);
}
//@ ae_from_f16
// Half `index` & 1 of a word; four neighbours from two words.
float ae_from_f16(uint word, uint index) { return unpackHalf2x16(word >> ((index & 1u) << 4)).x; }
vec4 ae_from_f16(uvec2 words) { return vec4(unpackHalf2x16(words.x), unpackHalf2x16(words.y)); }
//@ ae_from_bf16
float ae_from_bf16(uint word, uint index) { return uintBitsToFloat((index & 1u) == 0u ? word << 16 : word & 0xffff0000u); }
vec4 ae_from_bf16(uvec2 words) {
  return uintBitsToFloat(uvec4(words.x << 16, words.x & 0xffff0000u, words.y << 16, words.y & 0xffff0000u));
}
//@ ae_to_f16
uint ae_to_f16(float x) { return ae_f16_bits(x); }
uvec2 ae_to_f16(vec4 x) {
  return uvec2(ae_f16_bits(x.x) | (ae_f16_bits(x.y) << 16), ae_f16_bits(x.z) | (ae_f16_bits(x.w) << 16));
}
//@ ae_to_bf16
uint ae_to_bf16(float x) { return ae_bf16_bits(x); }
uvec2 ae_to_bf16(vec4 x) {
  return uvec2(ae_bf16_bits(x.x) | (ae_bf16_bits(x.y) << 16), ae_bf16_bits(x.z) | (ae_bf16_bits(x.w) << 16));
}
//@ ae_exact_f16
// Of values that f16 holds: no rounding is left to do.
uint ae_exact_f16(float x) { return packHalf2x16(vec2(x, 0.0)); }
uvec2 ae_exact_f16(vec4 x) { return uvec2(packHalf2x16(x.xy), packHalf2x16(x.zw)); }
//@ ae_exact_bf16
uint ae_exact_bf16(float x) { return floatBitsToUint(x) >> 16; }
uvec2 ae_exact_bf16(vec4 x) {
  uvec4 bits = floatBitsToUint(x);
  return uvec2((bits.x >> 16) | (bits.y & 0xffff0000u), (bits.z >> 16) | (bits.w & 0xffff0000u));
}
//@ ae_bytes
// The four bytes of a word, lowest first.
vec4 ae_bytes(uint word) { return vec4(uvec4(word, word >> 8, word >> 16, word >> 24) & uvec4(255u)); }
//@ ae_signed_bytes
vec4 ae_signed_bytes(uint word) { return vec4(ivec4(uvec4(word << 24, word << 16, word << 8, word)) >> 24); }
//@ quant_q8_0
// Decoders, one pair of functions per operand ($ is its buffer): elements e to e + 3, e a multiple of 4. The device
// layout is that of base/quant.h: units of two blocks begin with both scales. All arithmetic is exact but for one
// rounding at the end, so that neither contraction nor reordering changes a value.
vec4 quant4_$(uint e) {
  uint block = e >> 5, unit = (block >> 1) * 17u;
  uint q = $[unit + 1u + (block & 1u) * 8u + ((e & 31u) >> 2)];
  return ae_signed_bytes(q) * ae_from_f16($[unit], block);
}
//@ quant_q4_0
vec4 quant4_$(uint e) {
  uint block = e >> 5, unit = (block >> 1) * 9u;
  uint q = $[unit + 1u + (block & 1u) * 4u + ((e & 15u) >> 2)] >> ((e & 16u) >> 2);
  return (ae_bytes(q & 0x0f0f0f0fu) - 8.0) * ae_from_f16($[unit], block);
}
//@ quant_q4_1
vec4 quant4_$(uint e) {
  uint unit = (e >> 5) * 5u;
  uint q = $[unit + 1u + ((e & 15u) >> 2)] >> ((e & 16u) >> 2);
  vec2 d = unpackHalf2x16($[unit]);
  return ae_bytes(q & 0x0f0f0f0fu) * d.x + d.y;
}
//@ quant_q5_0
vec4 quant4_$(uint e) {
  uint block = e >> 5, unit = (block >> 1) * 11u, rest = unit + 1u + (block & 1u) * 5u;
  uint high = ($[rest] >> (e & 31u)) & 15u;  // bit 4 of each of the four
  uint q = $[rest + 1u + ((e & 15u) >> 2)] >> ((e & 16u) >> 2);
  q = (q & 0x0f0f0f0fu) | (((high * 0x00204081u) & 0x01010101u) << 4);
  return (ae_bytes(q) - 16.0) * ae_from_f16($[unit], block);
}
//@ quant_q4_K
vec4 quant4_$(uint e) {
  uint unit = (e >> 8) * 36u, group = (e >> 5) & 7u, shift = (group & 3u) << 3;
  uint a = $[unit + 1u] >> shift, b = $[unit + 2u] >> shift, c = $[unit + 3u] >> shift;
  uint scale = group < 4u ? a & 63u : (c & 15u) | ((a >> 2) & 48u);
  uint minimum = group < 4u ? b & 63u : ((c >> 4) & 15u) | ((b >> 2) & 48u);
  uint q = $[unit + 4u + ((e >> 6) & 3u) * 8u + ((e & 31u) >> 2)] >> ((group & 1u) << 2);
  vec2 d = unpackHalf2x16($[unit]);
  return ae_bytes(q & 0x0f0f0f0fu) * (d.x * float(scale)) - d.y * float(minimum);
}
//@ quant_q6_K
vec4 quant4_$(uint e) {
  uint block = e >> 8, unit = (block >> 1) * 105u, rest = unit + 1u + (block & 1u) * 52u;
  uint part = (e >> 7) & 1u, group = (e >> 5) & 3u, l = (e & 31u) >> 2;
  uint low = $[rest + part * 16u + (group & 1u) * 8u + l] >> ((group & 2u) << 1);
  uint high = $[rest + 32u + part * 8u + l] >> (group << 1);
  uint q = (low & 0x0f0f0f0fu) | ((high & 0x03030303u) << 4);
  int scale = bitfieldExtract(int($[rest + 48u + ((e >> 6) & 3u)]), int((e >> 4) & 3u) * 8, 8);
  return (ae_bytes(q) - 32.0) * (ae_from_f16($[unit], block) * float(scale));
}

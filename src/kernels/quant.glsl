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
//@ ae_less_in_bytes
// Each byte of x less that of y; both below 128, results in two's complement.
uint ae_less_in_bytes(uint x, uint y) { return ((x | 0x80808080u) - y) ^ 0x80808080u; }
//@ Pair
struct Pair { uint d, q, which; };
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
//@ pair_q8_0
// Decoders of two quads at once, which share words and scales: elements e to e + 3, and as many from e + D on. pair_at finds the words of
// e; a step of whole units further, d and q are as many words further. pair_words and pair_scale_words read them, apart so that many reads can be under
// way; scale words of zeros mean zeros. The elements are low * scales.x + scales.z and high * scales.y + scales.w; the scales are those of the next
// pair too, if e / 4 (in pairs: that of its first quad) is even. D 4; e a multiple of 8.
Pair pair_at_$(uint e) {
  uint block = e >> 5, unit = (block >> 1) * 17u;
  return Pair(unit, unit + 1u + (block & 1u) * 8u + ((e & 31u) >> 2), block << 4 & 16u);
}
uvec3 pair_words_$(Pair p) { return uvec3($[p.q], $[p.q + 1u], 0u); }
uvec4 pair_scale_words_$(Pair p) { return uvec4($[p.d] >> p.which, 0u, 0u, 0u); }
void pair_values_$(Pair p, uvec3 w, out vec4 low, out vec4 high) {
  low = ae_signed_bytes(w.x);
  high = ae_signed_bytes(w.y);
}
vec4 pair_scales_$(Pair p, uvec4 w) { return vec4(vec2(unpackHalf2x16(w.x).x), 0.0, 0.0); }
//@ pair_q4_0
// D 16; (e & 16) == 0, as for q4_1 and q5_0.
Pair pair_at_$(uint e) {
  uint block = e >> 5, unit = (block >> 1) * 9u;
  return Pair(unit, unit + 1u + (block & 1u) * 4u + ((e & 15u) >> 2), block << 4 & 16u);
}
uvec3 pair_words_$(Pair p) { return uvec3($[p.q], 0u, 0u); }
uvec4 pair_scale_words_$(Pair p) { return uvec4($[p.d] >> p.which, 0u, 0u, 0u); }
void pair_values_$(Pair p, uvec3 w, out vec4 low, out vec4 high) {
  low = ae_signed_bytes(ae_less_in_bytes(w.x & 0x0f0f0f0fu, 0x08080808u));
  high = ae_signed_bytes(ae_less_in_bytes((w.x >> 4) & 0x0f0f0f0fu, 0x08080808u));
}
vec4 pair_scales_$(Pair p, uvec4 w) { return vec4(vec2(unpackHalf2x16(w.x).x), 0.0, 0.0); }
//@ pair_q4_1
Pair pair_at_$(uint e) {
  uint unit = (e >> 5) * 5u;
  return Pair(unit, unit + 1u + ((e & 15u) >> 2), 0u);
}
uvec3 pair_words_$(Pair p) { return uvec3($[p.q], 0u, 0u); }
uvec4 pair_scale_words_$(Pair p) { return uvec4($[p.d], 0u, 0u, 0u); }
void pair_values_$(Pair p, uvec3 w, out vec4 low, out vec4 high) {
  low = ae_bytes(w.x & 0x0f0f0f0fu);
  high = ae_bytes((w.x >> 4) & 0x0f0f0f0fu);
}
vec4 pair_scales_$(Pair p, uvec4 w) { return unpackHalf2x16(w.x).xxyy; }
//@ pair_q5_0
Pair pair_at_$(uint e) {
  uint block = e >> 5, unit = (block >> 1) * 11u;
  return Pair(unit, unit + 2u + (block & 1u) * 5u + ((e & 15u) >> 2), (block << 4 & 16u) | (e & 12u));
}
uvec3 pair_words_$(Pair p) {
  uint bits = $[p.q - 1u - ((p.which & 12u) >> 2)];  // bit 4 of all elements
  return uvec3($[p.q], bits >> (p.which & 12u), 0u);
}
uvec4 pair_scale_words_$(Pair p) { return uvec4($[p.d] >> (p.which & 16u), 0u, 0u, 0u); }
void pair_values_$(Pair p, uvec3 w, out vec4 low, out vec4 high) {
  uint q0 = (w.x & 0x0f0f0f0fu) | ((((w.y & 15u) * 0x00204081u) & 0x01010101u) << 4);
  uint q1 = ((w.x >> 4) & 0x0f0f0f0fu) | (((((w.y >> 16) & 15u) * 0x00204081u) & 0x01010101u) << 4);
  low = ae_signed_bytes(ae_less_in_bytes(q0, 0x10101010u));
  high = ae_signed_bytes(ae_less_in_bytes(q1, 0x10101010u));
}
vec4 pair_scales_$(Pair p, uvec4 w) { return vec4(vec2(unpackHalf2x16(w.x).x), 0.0, 0.0); }
//@ pair_q4_K
// D 32; (e & 32) == 0, as for q6_K.
Pair pair_at_$(uint e) {
  uint unit = (e >> 8) * 36u;
  return Pair(unit, unit + 4u + ((e >> 6) & 3u) * 8u + ((e & 31u) >> 2), (e >> 5) & 6u);  // which of 8 groups
}
uvec3 pair_words_$(Pair p) { return uvec3($[p.q], 0u, 0u); }
uvec4 pair_scale_words_$(Pair p) { return uvec4($[p.d], $[p.d + 1u], $[p.d + 2u], $[p.d + 3u]); }
void pair_values_$(Pair p, uvec3 w, out vec4 low, out vec4 high) {
  low = ae_bytes(w.x & 0x0f0f0f0fu);
  high = ae_bytes((w.x >> 4) & 0x0f0f0f0fu);
}
vec4 pair_scales_$(Pair p, uvec4 w) {
  uvec3 packed = w.yzw >> ((p.which & 2u) << 3);
  bool first = p.which < 4u;  // two scales and two minima, each a byte
  uint s = first ? packed.x & 0x3f3fu : (packed.z & 0x0f0fu) | ((packed.x >> 2) & 0x3030u);
  uint m = first ? packed.y & 0x3f3fu : ((packed.z >> 4) & 0x0f0fu) | ((packed.y >> 2) & 0x3030u);
  return vec4(float(s & 255u), float(s >> 8 & 255u), float(m & 255u), float(m >> 8 & 255u)) * vec2(1.0, -1.0).xxyy *
         unpackHalf2x16(w.x).xxyy;
}
//@ pair_q6_K
Pair pair_at_$(uint e) {
  uint block = e >> 8, unit = (block >> 1) * 105u, l = (e & 31u) >> 2;
  uint rest = unit + 1u + (block & 1u) * 52u, part = (e >> 7) & 1u;
  // Which block of the unit; which 128, 64 and 16 elements of it.
  return Pair(unit, rest + part * 16u + l, (block & 1u) | part << 1 | (e >> 4 & 4u) | (l << 1 & 8u));
}
uvec3 pair_words_$(Pair p) {
  return uvec3($[p.q], $[p.q + 8u], $[p.q + 32u - (p.which >> 1 & 1u) * 8u]);
}
uvec4 pair_scale_words_$(Pair p) {
  uint at = p.d + 49u + (p.which & 1u) * 52u + (p.which & 2u) + (p.which >> 2 & 1u);
  return uvec4($[p.d] >> ((p.which & 1u) << 4), $[at], 0u, 0u);
}
void pair_values_$(Pair p, uvec3 w, out vec4 low, out vec4 high) {
  uint shift = p.which & 4u, bits = w.z >> shift;
  uint q0 = ((w.x >> shift) & 0x0f0f0f0fu) | ((bits & 0x03030303u) << 4);
  uint q1 = ((w.y >> shift) & 0x0f0f0f0fu) | (((bits >> 2) & 0x03030303u) << 4);
  low = ae_signed_bytes(ae_less_in_bytes(q0, 0x20202020u));
  high = ae_signed_bytes(ae_less_in_bytes(q1, 0x20202020u));
}
vec4 pair_scales_$(Pair p, uvec4 w) {
  int at = int(p.which & 8u), scales = int(w.y);
  return vec4(vec2(bitfieldExtract(scales, at, 8), bitfieldExtract(scales, at + 16, 8)) * unpackHalf2x16(w.x).x, 0.0, 0.0);
}

// What any kernel may call. Blocks as in math.glsl.
//@ ae_group
// Linear number of this workgroup: launches fold a linear count over x, y and z, so that the last few may be surplus.
uint ae_group() {
  return gl_WorkGroupID.x + gl_NumWorkGroups.x * (gl_WorkGroupID.y + gl_NumWorkGroups.y * gl_WorkGroupID.z);
}
//@ ae_infinity
float ae_infinity() { return uintBitsToFloat(0x7f800000u); }
//@ ae_nan
float ae_nan() { return uintBitsToFloat(0x7fc00000u); }
//@ ae_isnan
// By bits: a driver may assume that NaN does not occur and fold isnan() and x != x to false.
bool ae_isnan(float x) { return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }
//@ ae_isinf
bool ae_isinf(float x) { return (floatBitsToUint(x) & 0x7fffffffu) == 0x7f800000u; }
//@ ae_isfinite
bool ae_isfinite(float x) { return (floatBitsToUint(x) & 0x7f800000u) != 0x7f800000u; }
//@ ae_copysign
float ae_copysign(float magnitude, float sign) {
  return uintBitsToFloat((floatBitsToUint(magnitude) & 0x7fffffffu) | (floatBitsToUint(sign) & 0x80000000u));
}
//@ ae_max
// NaN if either is.
float ae_max(float a, float b) { return ae_isnan(a) ? a : ae_isnan(b) ? b : a > b ? a : b; }
vec4 ae_max(vec4 a, vec4 b) { return vec4(ae_max(a.x, b.x), ae_max(a.y, b.y), ae_max(a.z, b.z), ae_max(a.w, b.w)); }
//@ ae_min
float ae_min(float a, float b) { return ae_isnan(a) ? a : ae_isnan(b) ? b : a < b ? a : b; }
vec4 ae_min(vec4 a, vec4 b) { return vec4(ae_min(a.x, b.x), ae_min(a.y, b.y), ae_min(a.z, b.z), ae_min(a.w, b.w)); }
//@ ae_argmax_before
// Whether the extreme (v, at index i) comes before (w, j): the larger value, NaN being the largest, then the first
// index. Index 0xffffffff stands for "none yet".
bool ae_argmax_before(float v, uint i, float w, uint j) {
  if (i == 0xffffffffu || j == 0xffffffffu) return i < j;
  bool v_nan = ae_isnan(v), w_nan = ae_isnan(w);
  if (v_nan != w_nan) return v_nan;
  return v_nan || v == w ? i < j : v > w;
}
bool ae_argmax_before(int v, uint i, int w, uint j) {
  return i == 0xffffffffu || j == 0xffffffffu || v == w ? i < j : v > w;
}
bool ae_argmax_before(uint v, uint i, uint w, uint j) {
  return i == 0xffffffffu || j == 0xffffffffu || v == w ? i < j : v > w;
}
//@ ae_argmin_before
bool ae_argmin_before(float v, uint i, float w, uint j) {
  if (i == 0xffffffffu || j == 0xffffffffu) return i < j;
  bool v_nan = ae_isnan(v), w_nan = ae_isnan(w);
  if (v_nan != w_nan) return w_nan;
  return v_nan || v == w ? i < j : v < w;
}
bool ae_argmin_before(int v, uint i, int w, uint j) {
  return i == 0xffffffffu || j == 0xffffffffu || v == w ? i < j : v < w;
}
bool ae_argmin_before(uint v, uint i, uint w, uint j) {
  return i == 0xffffffffu || j == 0xffffffffu || v == w ? i < j : v < w;
}

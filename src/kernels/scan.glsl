// Running sums along an axis of a dense tensor [outer, N, INNER], or the sums of its blocks.
//
// A line is one row along the axis. It is cut into SEGS segments of BLOCK positions, and each (segment, line) is one item: it
// scans its own positions (from the last one if REVERSE), starting from the item's entry of OFFSETS (HAS_OFFSETS), and writes
// the running sums to Y; or it writes the sum of all to Y (SUMS).
// A workgroup takes TX items with TY threads each, a thread V neighbouring positions at a time; COLUMNS: neighbouring threads
// are neighbouring lines (TY is 1). The order of the additions depends on the shape and the variant alone.
// Constants: TX, TY, V, COLUMNS, REVERSE, EXCLUSIVE, HAS_OFFSETS, SUMS, VEC (aligned vec4 access; INNER is 1), T (element type).
// Numbers: ITEMS, LINES, N, INNER, SEGS, BLOCK, LENGTH (positions of the longest segment).
// Hooks: X, Y, OFFSETS: buffers.

#if TY > 1
#define STEP (TY <= 4 ? 2 : TY <= 16 ? 4 : TY <= 64 ? 8 : 16)  // threads whose sums one thread adds
#define STEPS (TY / STEP)
shared T thread_sums[TX * TY];
shared T step_sums[TX * STEPS];
#endif

void main() {
  const uint group = ae_group();
  if (group >= P.groups) return;
  const uint tx = gl_LocalInvocationIndex / TY, ty = gl_LocalInvocationIndex % TY;
  const uint item = group * TX + tx;
  const bool inside = item < ITEMS;
  const uint segment = item / LINES, line = item - segment * LINES;
  const uint outer = line / INNER, column = line - outer * INNER;
  const uint base = outer * N * INNER + column;
  const uint at_item = (outer * SEGS + segment) * INNER + column;  // in OFFSETS and in sums
  const uint begin = segment * BLOCK;
  const uint end = inside ? min(begin + BLOCK, N) : 0u;

#if HAS_OFFSETS
  T carry = T(0);
  if (inside) carry = OFFSETS[at_item];
#else
  T carry = T(0);
#endif
  for (uint tile = 0u; tile < LENGTH; tile += TY * V) {
    const uint first = begin + tile + ty * V;
    T x[V];
#if VEC
    [[unroll]] for (uint k = 0u; k < V; k += 4u) {
      VEC_T quad = VEC_T(0);
      if (first + k < end) {
#if REVERSE
        quad = X[(base + begin + end - 4u - first - k) >> 2].wzyx;
#else
        quad = X[(base + first + k) >> 2];
#endif
      }
      [[unroll]] for (uint q = 0u; q < 4u; ++q) x[k + q] = quad[q];
    }
#else
    [[unroll]] for (uint k = 0u; k < V; ++k) {
      const uint p = first + k;
      x[k] = T(0);
#if REVERSE
      if (p < end) x[k] = X[base + (begin + end - 1u - p) * INNER];
#else
      if (p < end) x[k] = X[base + p * INNER];
#endif
    }
#endif
    T sum = x[0];
    [[unroll]] for (uint k = 1u; k < V; ++k) sum += x[k];
#if TY > 1
    thread_sums[tx * TY + ty] = sum;
    barrier();
    if (ty < STEPS) {
      T steps = T(0);
      for (uint j = 0u; j < STEP; ++j) steps += thread_sums[tx * TY + ty * STEP + j];
      step_sums[tx * STEPS + ty] = steps;
    }
    barrier();
    T before = carry;
    for (uint j = 0u; j < ty / STEP; ++j) before += step_sums[tx * STEPS + j];
    for (uint j = ty / STEP * STEP; j < ty; ++j) before += thread_sums[tx * TY + j];
    for (uint j = 0u; j < STEPS; ++j) carry += step_sums[tx * STEPS + j];
    barrier();
#else
    T before = carry;
    carry += sum;
#endif
#if !SUMS
    T y[V];
    [[unroll]] for (uint k = 0u; k < V; ++k) {
#if EXCLUSIVE
      y[k] = before;
      before += x[k];
#else
      before += x[k];
      y[k] = before;
#endif
    }
#if VEC
    [[unroll]] for (uint k = 0u; k < V; k += 4u) {
      if (first + k < end) {
#if REVERSE
        Y[(base + begin + end - 4u - first - k) >> 2] = VEC_T(y[k + 3u], y[k + 2u], y[k + 1u], y[k]);
#else
        Y[(base + first + k) >> 2] = VEC_T(y[k], y[k + 1u], y[k + 2u], y[k + 3u]);
#endif
      }
    }
#else
    [[unroll]] for (uint k = 0u; k < V; ++k) {
      const uint p = first + k;
#if REVERSE
      if (p < end) Y[base + (begin + end - 1u - p) * INNER] = y[k];
#else
      if (p < end) Y[base + p * INNER] = y[k];
#endif
    }
#endif
#endif
  }
#if SUMS
  if (inside && ty == 0u) Y[at_item] = carry;
#endif
}

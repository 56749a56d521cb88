// A product one of whose operands is narrow (R <= 8 rows or columns): out[batch, r, l] = epilogue(sum over k of V[r, k] * W[l, k]),
// V the narrow operand, W the long one. Memory-bound: every element of W is read once, coalesced, and used R times.
//
// A workgroup takes LONGS coordinates l. Its TL x TK threads split them TL ways and the depth TK ways; a tree in shared memory adds
// the TK sums. With SPLIT, PARTS workgroups also share the depth.
// Constants: R, TL, TK; ALONG_K 1: W's neighbours in memory are along k, and a thread keeps UL coordinates l, of each UK quads (or pairs of them)
// in a step, so that enough bytes are under way; 0: they are along l, and a thread keeps a quad of them. W_VEC, V_VEC 1: vec4 loads (V: along k).
// W_PAIR > 0: W is quantized, and the quads at k and k + W_PAIR share what has to be read; sums are taken before the scale is applied (beyond 1e36
// they may overflow where the scaled ones did not; Inf in V may give NaN instead).
// SPLIT; SWAPPED 1: W is A, the narrow operand B.
// Hooks: set_batch(batch); W_Outer W_outer(l) and W_K W_k(k), W_load_vec(W_Outer, W_K) or W_load; the same of V; epilogue(m, n, float); with pairs
// Pair W_pair(W_Outer, W_K), W_pair_words, W_pair_scale_words, W_pair_values, W_pair_scales (quant.glsl), W_UNIT_ELEMENTS, W_UNIT_WORDS, W_ONE_SCALE, W_OFFSET.
// Numbers (push words, or literals): LENGTH of l, DEPTH = K, PARTS.

#define THREADS (TL * TK)
#if ALONG_K
#define RUN (W_ONE_SCALE == 0 && UK % 2 == 0 ? 2 : 1)  // pairs side by side that share two scales; one scale is found as fast again
#define QUADS (W_PAIR > 0 ? 2 : 1)
#define UNIT (TK * UK * QUADS * 4)  // depth that a workgroup covers in one step
#define LONGS (TL * UL)
#define SUMS UL  // per thread and narrow coordinate
#define SUM_TYPE float
#define TREE_STRIDE 1
#define TOTAL(r, x) sums[((x) / TL) * R + (r)][(x) % TL * TK]
#else
#define UNIT (TK * 4)
#define LONGS (TL * 4)
#define SUMS 1
#define SUM_TYPE vec4
#define TREE_STRIDE TL
#if W_VEC
#define TOTAL(r, x) sums[r][(x) / 4][(x) % 4]
#else
#define TOTAL(r, x) sums[r][(x) % TL][(x) / TL]
#endif
#endif

shared SUM_TYPE sums[SUMS * R][THREADS];

#if ALONG_K
// Depth of component q of a step's quads: four neighbours where W is loaded as vec4, else strided so that threads read neighbours.
#if W_VEC
#define K_OF(q) (k + (q))
#else
#define K_OF(q) (k + (q) * TK)
#endif

// Depth of piece `u` of thread `tk` in a step: its quad, or the first of its two quads.
uint k_of(uint tk, uint u) {
#if W_PAIR > 0
  const uint i = u / RUN * (RUN * TK) + tk * RUN + u % RUN;
  return i / (W_PAIR / 4) * (W_PAIR * 2) + i % (W_PAIR / 4) * 4;  // a pair is whole or beyond the depth
#elif W_VEC
  return (tk + u * TK) * 4;
#else
  return tk + u * (TK * 4);
#endif
}

#if W_PAIR == 0
vec4 w_quad(uint l, uint k) {
  vec4 w = vec4(0.0);
  if (l >= LENGTH) return w;
#if W_VEC
  if (k < DEPTH) w = W_load_vec(W_outer(l), W_k(k));
#else
  [[unroll]] for (uint q = 0; q < 4; ++q) {
    if (K_OF(q) < DEPTH) w[q] = W_load(W_outer(l), W_k(K_OF(q)));
  }
#endif
  return w;
}
#endif

vec4 v_quad(uint r, uint k) {
  vec4 v = vec4(0.0);
#if V_VEC
  if (k < DEPTH) v = V_load_vec(V_outer(r), V_k(k));
#else
  [[unroll]] for (uint q = 0; q < 4; ++q) {
    if (K_OF(q) < DEPTH) v[q] = V_load(V_outer(r), V_k(K_OF(q)));
  }
#endif
  return v;
}
#else
vec4 w_quad(uint first, uint tl, uint k) {
  vec4 w = vec4(0.0);
#if W_VEC
  const uint l = first + tl * 4;
  if (l < LENGTH) w = W_load_vec(W_outer(l), W_k(k));
#else
  [[unroll]] for (uint q = 0; q < 4; ++q) {
    const uint l = first + q * TL + tl;
    if (l < LENGTH) w[q] = W_load(W_outer(l), W_k(k));
  }
#endif
  return w;
}
#endif

float dot_after(float sum, vec4 a, vec4 b) { return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum)))); }

void main() {
  const uint group = ae_group();
  if (group >= P.groups) return;
  const uint thread = gl_LocalInvocationIndex;
#if SPLIT
  const uint part = group % PARTS, tile = group / PARTS;
#else
  const uint tile = group;
#endif
  const uint tiles = (LENGTH + LONGS - 1) / LONGS;
  const uint batch = tile / tiles;
  const uint first = (tile - batch * tiles) * LONGS;
  set_batch(batch);

  uint begin = 0, end = (DEPTH + UNIT - 1) / UNIT;
#if SPLIT
  begin = end * part / PARTS;
  end = end * (part + 1) / PARTS;
#endif
  begin *= UNIT;
  end *= UNIT;

#if ALONG_K
  const uint tl = thread / TK, tk = thread % TK;
#if W_PAIR > 0
  Pair at[UK][UL];
  [[unroll]] for (uint p = 0; p < UK; ++p) {
    // Coordinates beyond the last repeat it, and are not stored.
    [[unroll]] for (uint u = 0; u < UL; ++u) at[p][u] = W_pair(W_outer(min(first + u * TL + tl, LENGTH - 1)), W_k(begin + k_of(tk, p)));
  }
  float acc[UL][R];
  [[unroll]] for (uint u = 0; u < UL; ++u) {
    [[unroll]] for (uint r = 0; r < R; ++r) acc[u][r] = 0.0;
  }
  for (uint k0 = begin; k0 < end; k0 += UNIT) {
    uvec3 words[UK][UL];
    uvec4 scale_words[UK / RUN][UL];
    [[unroll]] for (uint p = 0; p < UK; ++p) {
      [[unroll]] for (uint u = 0; u < UL; ++u) {
        const bool inside = k0 + k_of(tk, p) < DEPTH;
        words[p][u] = uvec3(0u);
        if (inside) words[p][u] = W_pair_words(at[p][u]);
        if (p % RUN == 0) {
          scale_words[p / RUN][u] = uvec4(0u);
          if (inside) scale_words[p / RUN][u] = W_pair_scale_words(at[p][u]);
        }
        at[p][u].d += UNIT / W_UNIT_ELEMENTS * W_UNIT_WORDS;
        at[p][u].q += UNIT / W_UNIT_ELEMENTS * W_UNIT_WORDS;
      }
    }
    vec4 scales[UL];
    [[unroll]] for (uint p = 0; p < UK; ++p) {
      vec4 low[UL], high[UL];
      [[unroll]] for (uint u = 0; u < UL; ++u) {
        W_pair_values(at[p][u], words[p][u], low[u], high[u]);
        if (p % RUN == 0) scales[u] = W_pair_scales(at[p][u], scale_words[p / RUN][u]);
      }
      [[unroll]] for (uint r = 0; r < R; ++r) {
        const vec4 v0 = v_quad(r, k0 + k_of(tk, p)), v1 = v_quad(r, k0 + k_of(tk, p) + W_PAIR);
#if W_OFFSET
        const vec2 v_sums = vec2((v0.x + v0.y) + (v0.z + v0.w), (v1.x + v1.y) + (v1.z + v1.w));
#endif
        [[unroll]] for (uint u = 0; u < UL; ++u) {
          float a = acc[u][r];
#if W_ONE_SCALE
          a = fma(dot_after(dot_after(0.0, low[u], v0), high[u], v1), scales[u].x, a);
#else
          a = fma(dot_after(0.0, low[u], v0), scales[u].x, a);
          a = fma(dot_after(0.0, high[u], v1), scales[u].y, a);
#endif
#if W_OFFSET && W_ONE_SCALE
          a = fma(v_sums.x + v_sums.y, scales[u].z, a);
#elif W_OFFSET
          a = fma(v_sums.x, scales[u].z, a);
          a = fma(v_sums.y, scales[u].w, a);
#endif
          acc[u][r] = a;
        }
      }
    }
  }
  [[unroll]] for (uint u = 0; u < UL; ++u) {
    [[unroll]] for (uint r = 0; r < R; ++r) sums[u * R + r][thread] = acc[u][r];
  }
#else
  vec4 acc[UL][R];  // four interleaved sums each
  [[unroll]] for (uint u = 0; u < UL; ++u) {
    [[unroll]] for (uint r = 0; r < R; ++r) acc[u][r] = vec4(0.0);
  }
  for (uint k0 = begin; k0 < end; k0 += UNIT) {
    vec4 w[UK][UL];
    [[unroll]] for (uint p = 0; p < UK; ++p) {
      [[unroll]] for (uint u = 0; u < UL; ++u) w[p][u] = w_quad(first + u * TL + tl, k0 + k_of(tk, p));
    }
    [[unroll]] for (uint p = 0; p < UK; ++p) {
      [[unroll]] for (uint r = 0; r < R; ++r) {
        const vec4 v = v_quad(r, k0 + k_of(tk, p));
        [[unroll]] for (uint u = 0; u < UL; ++u) acc[u][r] = fma(w[p][u], v, acc[u][r]);
      }
    }
  }
  [[unroll]] for (uint u = 0; u < UL; ++u) {
    [[unroll]] for (uint r = 0; r < R; ++r) {
      const vec4 a = acc[u][r];
      sums[u * R + r][thread] = (a.x + a.y) + (a.z + a.w);
    }
  }
#endif
#else
  const uint tl = thread % TL, tk = thread / TL;
  vec4 acc[R];
  [[unroll]] for (uint r = 0; r < R; ++r) acc[r] = vec4(0.0);
  for (uint k0 = begin + tk; k0 < end; k0 += UNIT) {
    vec4 w[4];
    [[unroll]] for (uint u = 0; u < 4; ++u) {
      w[u] = vec4(0.0);
      if (k0 + u * TK < DEPTH) w[u] = w_quad(first, tl, k0 + u * TK);
    }
    [[unroll]] for (uint u = 0; u < 4; ++u) {
      if (k0 + u * TK < DEPTH) {
        [[unroll]] for (uint r = 0; r < R; ++r) acc[r] = fma(vec4(V_load(V_outer(r), V_k(k0 + u * TK))), w[u], acc[r]);
      }
    }
  }
  [[unroll]] for (uint r = 0; r < R; ++r) sums[r][thread] = acc[r];
#endif

  for (uint half_width = TK / 2; half_width > 0; half_width /= 2) {
    barrier();
    if (tk < half_width) {
      [[unroll]] for (uint s = 0; s < SUMS * R; ++s) sums[s][thread] += sums[s][thread + half_width * TREE_STRIDE];
    }
  }
  barrier();

#if SPLIT
  // As in matmul.glsl: the last part adds all of them in order.
  for (uint e = thread; e < R * LONGS; e += THREADS) W[group * (R * LONGS) + e] = TOTAL(e / LONGS, e % LONGS);
  memoryBarrierBuffer();
  barrier();
  if (thread == 0) sums[0][0] = SUM_TYPE(float(atomicAdd(C[tile], 1u)));
  barrier();
  if (uint(vec4(sums[0][0]).x) != PARTS - 1) return;
  memoryBarrierBuffer();
#endif
  for (uint e = thread; e < R * LONGS; e += THREADS) {
    const uint r = e / LONGS, l = first + e % LONGS;
#if SPLIT
    float value = 0.0;
    for (uint s = 0; s < PARTS; ++s) value += W[(tile * PARTS + s) * (R * LONGS) + e];
#else
    const float value = TOTAL(r, e % LONGS);
#endif
    if (l < LENGTH) {
#if SWAPPED
      epilogue(l, r, value);
#else
      epilogue(r, l, value);
#endif
    }
  }
#if SPLIT
  if (thread == 0) C[tile] = 0u;
#endif
}

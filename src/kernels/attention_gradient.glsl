// Gradients of attention. The weights are computed anew from q, k and the saved lse: p = exp2(score - lse); the gradient of a score
// is ds = p * (dO . v - delta). A workgroup keeps BR rows (X) and walks over the other side (Y) in tiles of BC.
//
// DKV 0: rows are queries (X: Q and dO), columns keys (Y: K and V); dQ += ds K.
// DKV 1: rows are keys of one KV head (X: K and V), columns the queries of each head that shares it, head after head (Y: Q and dO);
//        dK += ds^T Q, dV += p^T dO.
// With SPLIT, PARTS workgroups share the columns; the last to arrive adds their sums in the order of the parts.
// Hooks and numbers as in attention_forward.glsl; also fetch_G, G_AT (dO as [batch, head, row]), LSE[], DELTA[], store_first and
// store_second(element, vec4 of the row, value).

#define X1 0
#define X2 (BR * D4)
#define Y1 (2 * BR * D4)
#define Y2 (Y1 + BC * D4)
#if DKV
#define SCORE_GRADIENTS (Y2 + BC * D4)
#define WEIGHTS (SCORE_GRADIENTS + BR * TC)
#define TILE_WORDS (WEIGHTS + BR * TC)
#define SUMS 2
#define OF_QUERY(x, i) x  // of a query in each column
#else
#define SCORE_GRADIENTS Y2  // V is done with when they are stored
#define TILE_WORDS (Y2 + (BC * D4 > BR * TC ? BC * D4 : BR * TC))
#define SUMS 1
#define OF_QUERY(x, i) x[i]
#endif
shared vec4 tile[TILE_WORDS];
#if SPLIT
shared uint arrived;
#endif

void main() {
  const uint group = ae_group();
  if (group >= P.groups) return;
  const uint thread = gl_LocalInvocationIndex;
  const uint tr = row_of(thread), tc = column_of(thread);
#if SPLIT
  const uint part = group % PARTS, block = group / PARTS;
#else
  const uint block = group;
#endif

#if DKV
  const uint blocks = (KEYS + BR - 1) / BR;
  const uint outer = block / blocks, row0 = (block - outer * blocks) * BR;
  const uint batch = outer / KV_HEADS, kv_head = outer - batch * KV_HEADS;
#else
  const uint blocks = (QUERIES + BR - 1) / BR;
  const uint outer = block / blocks;
#if CAUSAL
  const uint row0 = (blocks - 1 - (block - outer * blocks)) * BR;  // the longest first
#else
  const uint row0 = (block - outer * blocks) * BR;
#endif
  const uint batch = outer / HEADS, head = outer - batch * HEADS, kv_head = head / GROUP;
#endif
  const int first = first_position(batch), last = first + int(QUERIES) - 1;
  const uint k_first = K_AT(batch, kv_head, 0), v_first = V_AT(batch, kv_head, 0);
#define K_ROW(r) (k_first + (r) * K_STRIDE)
#define V_ROW(r) (v_first + (r) * V_STRIDE)
#define Q_ROW(r) (q_first + (r) * Q_STRIDE)
#define G_ROW(r) (g_first + (r) * G_STRIDE)

  // Columns [seen.x, seen.y), walked over in `count` tiles for each head.
#if DKV
  uvec2 seen = uvec2(0u, QUERIES);
#if CAUSAL && !RING
  seen.x = uint(clamp(int(row0) - first, 0, int(QUERIES)));
#if WINDOWED
  seen.y = uint(clamp(int(min(row0 + BR, KEYS)) + int(WINDOW) - 1 - first, int(seen.x), int(QUERIES)));
#endif
#endif
  LOAD_TILE(X1, BR, fetch_K, K_ROW, row0, KEYS, BY_ROW)
  LOAD_TILE(X2, BR, fetch_V, V_ROW, row0, KEYS, BY_ROW)
#else
  const int low = first + int(row0), high = first + int(min(row0 + BR, QUERIES)) - 1;
  const uvec2 seen = keys_seen(low, high, last);
  const uint q_first = Q_AT(batch, head, 0), g_first = G_AT(batch, head, 0);
  LOAD_TILE(X1, BR, fetch_Q, Q_ROW, row0, QUERIES, BY_ROW)
  LOAD_TILE(X2, BR, fetch_G, G_ROW, row0, QUERIES, BY_ROW)
  float lse[RM], delta[RM];
  [[unroll]] for (uint i = 0; i < RM; ++i) {
    const uint query = min(row0 + tr + i * TR, QUERIES - 1);
    const float natural = LSE[(batch * HEADS + head) * QUERIES + query];
    lse[i] = natural < MASKED ? -MASKED : natural * LOG2E;  // no key: every weight is exp2(MASKED) = 0
    delta[i] = DELTA[(batch * QUERIES + query) * HEADS + head];
  }
#endif
  const uint tile0 = seen.x / BC, count = seen.y > seen.x ? (seen.y + BC - 1) / BC - tile0 : 0;
  uint begin = 0, end = DKV == 1 ? count * GROUP : count;
#if SPLIT
  begin = end * part / PARTS;
  end = end * (part + 1) / PARTS;
#endif

  vec4 sum[SUMS][RM][DN];
  [[unroll]] for (uint i = 0; i < RM; ++i) {
    [[unroll]] for (uint n = 0; n < DN; ++n) {
      [[unroll]] for (uint k = 0; k < SUMS; ++k) sum[k][i][n] = vec4(0.0);
    }
  }

  for (uint step = begin; step < end; ++step) {
#if DKV
    const uint head = kv_head * GROUP + step / count, column0 = (tile0 + step % count) * BC;
    const uint q_first = Q_AT(batch, head, 0), g_first = G_AT(batch, head, 0);
    LOAD_TILE(Y1, BC, fetch_Q, Q_ROW, column0, QUERIES, BY_COLUMN)
    LOAD_TILE(Y2, BC, fetch_G, G_ROW, column0, QUERIES, BY_COLUMN)
    vec4 lse, delta;
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      const uint query = min(column0 + tc * 4 + j, QUERIES - 1);
      const float natural = LSE[(batch * HEADS + head) * QUERIES + query];
      lse[j] = natural < MASKED || column0 + tc * 4 + j >= QUERIES ? -MASKED : natural * LOG2E;
      delta[j] = DELTA[(batch * QUERIES + query) * HEADS + head];
    }
    const int low = first + int(column0), high = low + BC - 1;
    const bool whole = all_seen(low, high, row0, row0 + BR);
#else
    const uint column0 = (tile0 + step) * BC;
    LOAD_TILE(Y1, BC, fetch_K, K_ROW, column0, seen.y, BY_COLUMN)
    LOAD_TILE(Y2, BC, fetch_V, V_ROW, column0, seen.y, BY_COLUMN)
    const bool whole = all_seen(low, high, column0, column0 + BC);
#endif
    barrier();

    vec4 s[RM], t[RM];  // scores, and dO . v
    [[unroll]] for (uint i = 0; i < RM; ++i) s[i] = t[i] = vec4(0.0);
    [[dont_unroll]] for (uint d0 = 0; d0 < D4; d0 += UNROLL) {
      [[unroll]] for (uint u = 0; u < UNROLL; ++u) {
        MULTIPLY_ROWS(s, X1, Y1, d0 + u)
        MULTIPLY_ROWS(t, X2, Y2, d0 + u)
      }
    }
    [[unroll]] for (uint i = 0; i < RM; ++i) {
      const uint row = row0 + tr + i * TR;
      vec4 exponent = s[i] * SCALE2 - OF_QUERY(lse, i);
      if (MASK == 1 || !whole) {
        [[unroll]] for (uint j = 0; j < 4; ++j) {
          const uint column = column0 + tc * 4 + j;
#if DKV
          const uint query = column, key = row;
#else
          const uint query = row, key = column;
#endif
          bool seen_here = query < QUERIES && key < KEYS && sees(first + int(query), key, last);
#if MASK
          if (seen_here) {
            const float add = MASK_AT(batch, head, query, key) * LOG2E;
            seen_here = !(s[i][j] * SCALE2 + add <= MASKED);
            exponent[j] += add;
          }
#endif
          if (!seen_here) exponent[j] = MASKED;
        }
      }
      s[i] = exp2(exponent);
      t[i] = s[i] * (t[i] - OF_QUERY(delta, i));
    }
#if !DKV
    barrier();
#endif
    [[unroll]] for (uint i = 0; i < RM; ++i) {
      tile[SCORE_GRADIENTS + WEIGHT_WORD(i, tc)] = t[i];
#if DKV
      tile[WEIGHTS + WEIGHT_WORD(i, tc)] = s[i];
#endif
    }
    barrier();
    [[dont_unroll]] for (uint c = 0; c < TC; ++c) {
      MULTIPLY_WEIGHTS(sum[0], tile, SCORE_GRADIENTS, Y1, c)
#if DKV
      MULTIPLY_WEIGHTS(sum[1], tile, WEIGHTS, Y2, c)
#endif
    }
    barrier();
  }

#if SPLIT
  // As in matmul.glsl.
  const uint words = SUMS * RM * DN * THREADS;
  [[unroll]] for (uint k = 0; k < SUMS; ++k) {
    [[unroll]] for (uint i = 0; i < RM; ++i) {
      [[unroll]] for (uint n = 0; n < DN; ++n) W[group * words + ((k * RM + i) * DN + n) * THREADS + thread] = sum[k][i][n];
    }
  }
  memoryBarrierBuffer();
  barrier();
  if (thread == 0) arrived = atomicAdd(C[block], 1u);
  barrier();
  if (arrived != PARTS - 1) return;
  memoryBarrierBuffer();
  [[unroll]] for (uint k = 0; k < SUMS; ++k) {
    [[unroll]] for (uint i = 0; i < RM; ++i) {
      vec4 of_parts[DN];
      [[unroll]] for (uint n = 0; n < DN; ++n) of_parts[n] = vec4(0.0);
      for (uint p0 = 0; p0 < PARTS; p0 += 4) {
        vec4 theirs[4][DN];
        [[unroll]] for (uint p = 0; p < 4; ++p) {
          const uint at = (block * PARTS + min(p0 + p, PARTS - 1)) * words + ((k * RM + i) * DN) * THREADS + thread;
          [[unroll]] for (uint n = 0; n < DN; ++n) theirs[p][n] = W[at + n * THREADS];
        }
        [[unroll]] for (uint p = 0; p < 4; ++p) {
          if (p0 + p < PARTS) {
            [[unroll]] for (uint n = 0; n < DN; ++n) of_parts[n] += theirs[p][n];
          }
        }
      }
      [[unroll]] for (uint n = 0; n < DN; ++n) sum[k][i][n] = of_parts[n];
    }
  }
  if (thread == 0) C[block] = 0u;
#endif

  [[unroll]] for (uint i = 0; i < RM; ++i) {
    const uint row = row0 + tr + i * TR;
#if DKV
    const uint element = ((batch * KEYS + row) * KV_HEADS + kv_head) * D;
    const bool exists = row < KEYS;
#else
    const uint element = ((batch * QUERIES + row) * HEADS + head) * D;
    const bool exists = row < QUERIES;
#endif
    [[unroll]] for (uint n = 0; n < DN; ++n) {
      if (exists && OWNS(n)) {
        store_first(element, OWN(n), sum[0][i][n] * SCALE);
#if DKV
        store_second(element, OWN(n), sum[1][i][n]);
#endif
      }
    }
  }
}

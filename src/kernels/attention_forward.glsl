// Attention with an online softmax: a workgroup takes BR rows (queries) of one head and walks over the keys in tiles of BC.
// For each tile: scores = Q K^T, the running maximum and sum of each row, O = O * exp2(old maximum - new) + weights V.
//
// PACK 1: the rows are those of all heads that share a KV head, head after head: K and V are read once for all of them.
// With SPLIT, up to PARTS workgroups share the keys of a tile of rows; each leaves its sums in the workspace, and the last to arrive
// adds them in the order of the parts.
// Hooks: fetch_Q, fetch_K, fetch_V (element, vec4 of the row), Q_AT, K_AT, V_AT (batch, head, row), MASK_AT (batch, head, query, key);
// store_out(element, vec4 of the row, value); LSE[].
// Numbers: HEADS, KV_HEADS, GROUP = HEADS / KV_HEADS, QUERIES, KEYS, QUERY_OFFSET, WINDOW, PARTS.

#define Y_TILE (BR * D4)
shared vec4 tile[BR * D4 + BC * D4];  // Q, then K and V in turns
shared vec4 weights[BR * TC];
#define RED ((TC + 3) / 4)
shared vec4 of_row[BR * RED];  // one number of each thread of a row

#if PACK
#define ROWS (GROUP * QUERIES)
#define OUTER_HEADS KV_HEADS
#else
#define ROWS QUERIES
#define OUTER_HEADS HEADS
#endif

// The combination of `mine` over the threads of each row; all threads of the workgroup must call it.
#define COMBINE_ROWS(RESULT, MINE, WITH)                                                                              \
  [[unroll]] for (uint i = 0; i < RM; ++i) of_row[(tr + i * TR) * RED + tc / 4][tc % 4] = MINE[i];                    \
  barrier();                                                                                                          \
  [[unroll]] for (uint i = 0; i < RM; ++i) {                                                                          \
    [[unroll]] for (uint w = 0; w < RED; ++w) {                                                                       \
      const vec4 some = of_row[(tr + i * TR) * RED + w];                                                              \
      const float pair = TC == 1 ? some.x : WITH(some.x, some.y);                                                     \
      const float together = TC <= 2 ? pair : WITH(pair, WITH(some.z, some.w));                                       \
      RESULT[i] = w == 0 ? together : WITH(RESULT[i], together);                                                      \
    }                                                                                                                 \
  }
float plus(float a, float b) { return a + b; }

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
  const uint blocks = (ROWS + BR - 1) / BR;
  const uint outer = block / blocks;
#if CAUSAL
  const uint row0 = (blocks - 1 - (block - outer * blocks)) * BR;  // the longest first
#else
  const uint row0 = (block - outer * blocks) * BR;
#endif
  const uint batch = outer / OUTER_HEADS, outer_head = outer - batch * OUTER_HEADS;
#if PACK
  const uint kv_head = outer_head;
#define HEAD_OF(row) (kv_head * GROUP + (row) / QUERIES)
#define QUERY_OF(row) ((row) % QUERIES)
#else
  const uint kv_head = outer_head / GROUP;
#define HEAD_OF(row) outer_head
#define QUERY_OF(row) (row)
#endif

  const int first = first_position(batch), last = first + int(QUERIES) - 1;
#if PACK
  const int low = first, high = last;
#else
  const int low = first + int(row0), high = first + int(min(row0 + BR, QUERIES)) - 1;
#endif
  const uvec2 seen = keys_seen(low, high, last);
  uint begin = seen.x / BC, end = (seen.y + BC - 1) / BC;
#if SPLIT
  // Those that have a tile: while decoding, a plan for a long context meets short texts.
  const uint count = end - begin, parts = clamp(count, 1u, PARTS);
  if (part >= parts) return;
  end = begin + count * (part + 1) / parts;
  begin = begin + count * part / parts;
#endif

#define Q_ROW(r) Q_AT(batch, HEAD_OF(r), QUERY_OF(r))
#define SCALED_Q(element, d) (fetch_Q(element, d) * SCALE2)
  LOAD_TILE(0, BR, SCALED_Q, Q_ROW, row0, ROWS, BY_ROW)
  const uint k_first = K_AT(batch, kv_head, 0), v_first = V_AT(batch, kv_head, 0);
#define K_ROW(r) (k_first + (r) * K_STRIDE)
#define V_ROW(r) (v_first + (r) * V_STRIDE)

  vec4 out_rows[RM][DN];
  float most[RM], sum[RM];  // the sum over this thread's columns alone
  [[unroll]] for (uint i = 0; i < RM; ++i) {
    [[unroll]] for (uint n = 0; n < DN; ++n) out_rows[i][n] = vec4(0.0);
    most[i] = MASKED;
    sum[i] = 0.0;
  }

  for (uint step = begin; step < end; ++step) {
    const uint key0 = step * BC;
    LOAD_TILE(Y_TILE, BC, fetch_K, K_ROW, key0, seen.y, BY_COLUMN)
    barrier();
    vec4 s[RM];
    [[unroll]] for (uint i = 0; i < RM; ++i) s[i] = vec4(0.0);
    [[dont_unroll]] for (uint d0 = 0; d0 < D4; d0 += UNROLL) {
      [[unroll]] for (uint u = 0; u < UNROLL; ++u) MULTIPLY_ROWS(s, 0, Y_TILE, d0 + u)
    }
    if (MASK == 1 || !all_seen(low, high, key0, key0 + BC)) {
      [[unroll]] for (uint i = 0; i < RM; ++i) {
        const uint row = row0 + tr + i * TR, query = QUERY_OF(row);
        [[unroll]] for (uint j = 0; j < 4; ++j) {
          const uint key = key0 + tc * 4 + j;
          float score = MASKED;
          if (row < ROWS && key < KEYS && sees(first + int(query), key, last)) {
            score = s[i][j];
#if MASK
            score += MASK_AT(batch, HEAD_OF(row), query, key) * LOG2E;
            if (score <= MASKED) score = MASKED;
#endif
          }
          s[i][j] = score;
        }
      }
    }

    float new_most[RM];
    {
      float mine[RM];
      [[unroll]] for (uint i = 0; i < RM; ++i) mine[i] = max(max(s[i].x, s[i].y), max(s[i].z, s[i].w));
      COMBINE_ROWS(new_most, mine, max)
    }
    LOAD_TILE(Y_TILE, BC, fetch_V, V_ROW, key0, seen.y, BY_COLUMN)
    [[unroll]] for (uint i = 0; i < RM; ++i) {
      new_most[i] = max(new_most[i], most[i]);
      const float fade = exp2(most[i] - new_most[i]);
      const float shift = new_most[i] <= MASKED ? 0.0 : new_most[i];  // no key yet: every weight is exp2(MASKED) = 0
      const vec4 weight = exp2(s[i] - shift);
      weights[WEIGHT_WORD(i, tc)] = weight;
      sum[i] = sum[i] * fade + ((weight.x + weight.y) + (weight.z + weight.w));
      [[unroll]] for (uint n = 0; n < DN; ++n) out_rows[i][n] *= fade;
      most[i] = new_most[i];
    }
    barrier();
    [[dont_unroll]] for (uint c = 0; c < TC; ++c) MULTIPLY_WEIGHTS(out_rows, weights, 0, Y_TILE, c)
    barrier();
  }

  float total[RM];
  COMBINE_ROWS(total, sum, plus)

#if SPLIT
  const uint words = BR * (D4 + 1);
  {
    const uint mine = group * words;
    [[unroll]] for (uint i = 0; i < RM; ++i) {
      const uint r = tr + i * TR;
      [[unroll]] for (uint n = 0; n < DN; ++n) {
        if (OWNS(n)) W[mine + r * D4 + OWN(n)] = out_rows[i][n];
      }
      if (tc == 0) W[mine + BR * D4 + r] = vec4(most[i], total[i], 0.0, 0.0);
    }
  }
  memoryBarrierBuffer();
  barrier();
  if (thread == 0) of_row[0].x = float(atomicAdd(C[block], 1u));
  barrier();
  if (uint(of_row[0].x) != parts - 1) return;
  memoryBarrierBuffer();
  // TOGETHER parts are read at once, more where a thread has little of each; those beyond the last one repeat it and count nothing.
#if RM * DN <= 2
#define TOGETHER 8
#else
#define TOGETHER 4
#endif
  const uint theirs = block * PARTS * words;
  [[unroll]] for (uint i = 0; i < RM; ++i) {
    const uint at = theirs + BR * D4 + tr + i * TR;
    most[i] = MASKED;
    for (uint p0 = 0; p0 < parts; p0 += 2 * TOGETHER) {
      [[unroll]] for (uint p = 0; p < 2 * TOGETHER; ++p) most[i] = max(most[i], W[at + min(p0 + p, parts - 1) * words].x);
    }
    total[i] = 0.0;
    [[unroll]] for (uint n = 0; n < DN; ++n) out_rows[i][n] = vec4(0.0);
  }
  for (uint p0 = 0; p0 < parts; p0 += TOGETHER) {
    [[unroll]] for (uint i = 0; i < RM; ++i) {
      vec4 most_total[TOGETHER], rows[TOGETHER][DN];
      [[unroll]] for (uint p = 0; p < TOGETHER; ++p) {
        const uint at = theirs + min(p0 + p, parts - 1) * words, r = tr + i * TR;
        most_total[p] = W[at + BR * D4 + r];
        [[unroll]] for (uint n = 0; n < DN; ++n) rows[p][n] = W[at + r * D4 + OWN(n)];
      }
      [[unroll]] for (uint p = 0; p < TOGETHER; ++p) {
        const float fade = p0 + p < parts ? exp2(most_total[p].x - most[i]) : 0.0;
        total[i] += most_total[p].y * fade;
        [[unroll]] for (uint n = 0; n < DN; ++n) out_rows[i][n] += rows[p][n] * fade;
      }
    }
  }
  if (thread == 0) C[block] = 0u;
#endif

  [[unroll]] for (uint i = 0; i < RM; ++i) {
    const uint row = row0 + tr + i * TR;
    if (row < ROWS) {
      const uint head = HEAD_OF(row), query = QUERY_OF(row);
      const bool none = total[i] == 0.0;
      const uint element = ((batch * QUERIES + query) * HEADS + head) * D;
      [[unroll]] for (uint n = 0; n < DN; ++n) {
        if (OWNS(n)) store_out(element, OWN(n), none ? vec4(0.0) : out_rows[i][n] / total[i]);
      }
      if (tc == 0) LSE[(batch * HEADS + head) * QUERIES + query] = none ? -ae_infinity() : most[i] * LN2 + ae_log(total[i]);
    }
  }
}

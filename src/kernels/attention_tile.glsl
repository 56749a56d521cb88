// What the attention kernels share: tiles in shared memory, products of two tiles, and which keys a query sees.
//
// A thread (tr, tc) of TR x TC owns the rows tr + i * TR of the BR rows of its workgroup, and the columns 4 * tc + j of a tile of
// BC = 4 * TC columns: a vec4 for each row. Of a row of D elements, D4 vec4, it owns the vec4 tc + n * TC.
// Tiles hold rows as they are in memory, D4 vec4 each, zero beyond D. The vec4 of a row are swizzled by its owner's tr (or tc), so
// that threads that read the same place of different rows meet different banks.
// Constants: D, BR, TR, TC, VEC 1: operands are arrays of vec4; CAUSAL, WINDOWED, RING, MASK, POSITION, SPLIT.
// Scores are in units of log2: exp2 is what devices have. Its error, 3 + 2 |x| ulp, is at most 3 ulp of 1, since x <= 0.

#define D4 ((D + 3) / 4)
#define BC (4 * TC)
#define RM (BR / TR)
#define DN ((D4 + TC - 1) / TC)
#define THREADS (TR * TC)

#define MASKED -1e30
#define LOG2E 1.44269504
#define LN2 0.693147181

#if D4 % 8 == 0
#define SWIZZLE 7
#elif D4 % 4 == 0
#define SWIZZLE 3
#elif D4 % 2 == 0
#define SWIZZLE 1
#else
#define SWIZZLE 0
#endif
#if TC >= 8
#define WEIGHT_SWIZZLE 7
#else
#define WEIGHT_SWIZZLE (TC - 1)
#endif
// Depth per turn of the loops: text of moderate length.
#if D4 % 4 == 0
#define UNROLL 4
#elif D4 % 2 == 0
#define UNROLL 2
#else
#define UNROLL 1
#endif

// Blocks of 8 x 4 lanes as in matmul.glsl, so that pairs of lanes read the same vec4 of either side.
#define LANES_X (TC < 8 ? TC : 8)
#define LANES_Y (TR < 32 / LANES_X ? TR : 32 / LANES_X)
uint row_of(uint thread) {
  const uint block = thread / (LANES_X * LANES_Y), lane = thread % (LANES_X * LANES_Y);
  return block / (TC / LANES_X) * LANES_Y + lane / (2 * LANES_X) * 2 + lane % 2;
}
uint column_of(uint thread) {
  const uint block = thread / (LANES_X * LANES_Y), lane = thread % (LANES_X * LANES_Y);
  return block % (TC / LANES_X) * LANES_X + lane / 2 % LANES_X;
}

// A tile of N rows from row ROW0 at word FIRST; ELEMENT(r) is where row r starts; rows from LIMIT (> 0) on are zero. SWIZZLED(r):
// what row r of the tile is swizzled by. All loads of a turn are under way before the first store.
#define PER_TURN(N) ((N) * D4 < 8 * THREADS ? ((N) * D4 + THREADS - 1) / THREADS : 8)
#define EVEN_TURNS(N) ((N) * D4 % (PER_TURN(N) * THREADS) == 0)
#define LOAD_TILE(FIRST, N, FETCH, ELEMENT, ROW0, LIMIT, SWIZZLED)                                    \
  for (uint e0 = thread; e0 < (N) * D4; e0 += PER_TURN(N) * THREADS) {                                \
    vec4 item[PER_TURN(N)];                                                                           \
    [[unroll]] for (uint turn = 0; turn < PER_TURN(N); ++turn) {                                      \
      const uint word = e0 + turn * THREADS, e = EVEN_TURNS(N) ? word : min(word, (N) * D4 - 1);      \
      const uint r = (ROW0) + e / D4;                                                                 \
      const vec4 value = FETCH(ELEMENT(min(r, (LIMIT) - 1)), e % D4);                                 \
      item[turn] = r < (LIMIT) ? value : vec4(0.0);                                                   \
    }                                                                                                 \
    [[unroll]] for (uint turn = 0; turn < PER_TURN(N); ++turn) {                                      \
      const uint e = e0 + turn * THREADS, r = e / D4;                                                 \
      if (EVEN_TURNS(N) || e < (N) * D4) {                                                            \
        tile[(FIRST) + r * D4 + ((e % D4) ^ (SWIZZLED(r) & SWIZZLE))] = item[turn];                   \
      }                                                                                               \
    }                                                                                                 \
  }
#define BY_ROW(r) ((r) % TR)
#define BY_COLUMN(r) ((r) / 4)

float dot_onto(vec4 a, vec4 b, float sum) { return fma(a.x, b.x, fma(a.y, b.y, fma(a.z, b.z, fma(a.w, b.w, sum)))); }

// SUM[i][j] += row (tr, i) of the tile at X times row (column) (tc, j) of the tile at Y, at depth d.
#define MULTIPLY_ROWS(SUM, X, Y, d)                                                                          \
  {                                                                                                          \
    const uint x_word = (X) + tr * D4 + ((d) ^ (tr & SWIZZLE)), y_word = (Y) + tc * (4 * D4) + ((d) ^ (tc & SWIZZLE)); \
    vec4 y[4];                                                                                               \
    [[unroll]] for (uint j = 0; j < 4; ++j) y[j] = tile[y_word + j * D4];                                    \
    [[unroll]] for (uint i = 0; i < RM; ++i) {                                                               \
      const vec4 x = tile[x_word + i * (TR * D4)];                                                           \
      [[unroll]] for (uint j = 0; j < 4; ++j) SUM[i][j] = dot_onto(x, y[j], SUM[i][j]);                      \
    }                                                                                                        \
  }

// The n-th vec4 of a row that this thread owns; one that does not exist repeats the last and is never stored.
#if D4 % TC == 0
#define OWN(n) (tc + (n) * TC)
#define OWNS(n) true
#else
#define OWN(n) min(tc + (n) * TC, D4 - 1)
#define OWNS(n) (tc + (n) * TC < D4)
#endif

// SUM[i][n] += weights of row (tr, i) in WEIGHTS for the columns 4 * c ... 4 * c + 3, times those rows of the tile at Y.
#define WEIGHT_WORD(i, c) ((tr + (i) * TR) * TC + ((c) ^ (tr & WEIGHT_SWIZZLE)))
#define MULTIPLY_WEIGHTS(SUM, WEIGHTS, WORD, Y, c)                                                         \
  {                                                                                                        \
    vec4 weight[RM];                                                                                       \
    [[unroll]] for (uint i = 0; i < RM; ++i) weight[i] = WEIGHTS[(WORD) + WEIGHT_WORD(i, c)];              \
    [[unroll]] for (uint j = 0; j < 4; ++j) {                                                              \
      [[unroll]] for (uint n = 0; n < DN; ++n) {                                                           \
        const vec4 y = tile[(Y) + ((c) * 4 + j) * D4 + (OWN(n) ^ ((c) & SWIZZLE))];                        \
        [[unroll]] for (uint i = 0; i < RM; ++i) SUM[i][n] = fma(vec4(weight[i][j]), y, SUM[i][n]);        \
      }                                                                                                    \
    }                                                                                                      \
  }

// ---- positions. Key j is at j, or in a ring at the latest position up to `last` that is congruent to it.

int first_position(uint batch) {
#if POSITION
  return clamp(POSITIONS[batch], -1073741824, 1073741824);
#else
  return int(QUERY_OFFSET);
#endif
}

bool sees(int at, uint key, int last) {
#if CAUSAL
  int k = int(key);
#if RING
  const int slots = int(KEYS);
  int behind = (last - k) % slots;
  if (last < k) {  // the sign of % is undefined for negative operands
    behind = slots - 1 - (k - last - 1) % slots;
  }
  k = last - behind;
  if (k < 0) return false;
#endif
#if WINDOWED
  if (k <= at - int(WINDOW)) return false;
#endif
  return k <= at;
#else
  return true;
#endif
}

// Keys [x, y) that queries at positions [low, high] can see.
uvec2 keys_seen(int low, int high, int last) {
#if RING
  return uvec2(0u, uint(clamp(last + 1, 0, int(KEYS))));
#elif CAUSAL
  const int end = clamp(high + 1, 0, int(KEYS));
#if WINDOWED
  return uvec2(uint(clamp(low - int(WINDOW) + 1, 0, end)), uint(end));
#else
  return uvec2(0u, uint(end));
#endif
#else
  return uvec2(0u, KEYS);
#endif
}

// Whether every query at positions [low, high] sees every key in [begin, end).
bool all_seen(int low, int high, uint begin, uint end) {
  if (end > KEYS) return false;
#if RING
  return false;
#elif CAUSAL
  if (int(end) - 1 > low) return false;
#if WINDOWED
  if (int(begin) <= high - int(WINDOW)) return false;
#endif
#endif
  return true;
}

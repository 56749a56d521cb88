// C[batch, m, n] = epilogue(sum over k of A[batch, m, k] * B[batch, k, n]): one workgroup computes a BM x BN tile of C, or,
// with SPLIT, its share of the sum over k; one thread computes TM x TN of it.
//
// Constants: BM, BN, BK the tile; TM, TN per thread (1 or multiples of 4; TN of 4); THREADS = BM / TM * BN / TN; STAGES 1 or 2
// copies of the tile in shared memory; LANES_X x LANES_Y (even) the threads of a block that reads neighbouring quads; BAND how
// many tile rows are walked together;
// SPLIT 1: PARTS workgroups share a tile's sum; EPILOGUE_VEC 1: four columns per epilogue; EPILOGUE_STAGED 1: the epilogue
// is long, so the accumulators pass through shared memory and its code stands in a loop instead of once per accumulator.
// Hooks: set_batch(batch), the loads of matmul_operand.glsl, and epilogue_vec(m, n, vec4) or epilogue(m, n, float).
// Numbers (push words, or literals): ROWS = M, COLS = N, DEPTH = K, PARTS workgroups per tile.

#define ROW_THREADS (BM / TM)
#define COL_THREADS (BN / TN)

// Parts of a split sum that are read at once: as many as the registers of the main loop can hold.
#if TM * TN >= 64
#define TOGETHER 1
#elif TM * TN >= 32
#define TOGETHER 2
#else
#define TOGETHER 4
#endif

// A's tile (all stages), then B's, both as matmul_operand.glsl lays them out.
shared vec4 tile_memory[STAGES * BK * (BM + BN) / 4];

// Rows and columns of a thread are quads, one every ROW_THREADS (COL_THREADS) quads, so that a block's reads are contiguous; with
// more than one quad that is a multiple of 8, which the swizzle leaves alone.
#if TM == 1
#define ROW(tr, i) A_COORD((tr) / 4, (tr) % 4)
#else
#define ROW(tr, i) A_COORD((i) / 4 * ROW_THREADS + (tr), (i) % 4)
#endif

// Row m, and quad `quad` of the tile's columns from col0.
void finish(uint m, uint col0, uint quad, vec4 value) {
  if (m >= ROWS) return;
#if EPILOGUE_VEC
  if (col0 + quad * 4 < COLS) epilogue_vec(m, col0 + quad * 4, value);
#else
  [[unroll]] for (uint c = 0; c < 4; ++c) {
    const uint n = col0 + B_COORD(quad, c);
    if (n < COLS) epilogue(m, n, value[c]);
  }
#endif
}

void main() {
  const uint group = ae_group();
  if (group >= P.groups) return;
  const uint thread = gl_LocalInvocationIndex;

#if SPLIT
  const uint part = group % PARTS, tile = group / PARTS;
#else
  const uint tile = group;
#endif
  // Tiles are walked in bands of BAND rows, down each column of a band: concurrent workgroups share rows of A and columns of B
  // in cache.
  const uint tiles_m = (ROWS + BM - 1) / BM, tiles_n = (COLS + BN - 1) / BN;
  const uint batch = tile / (tiles_m * tiles_n);
  const uint tile_of_batch = tile - batch * (tiles_m * tiles_n);
  const uint first = tile_of_batch / (BAND * tiles_n) * BAND;
  const uint height = min(tiles_m - first, BAND);
  const uint tile_of_band = tile_of_batch - first * tiles_n;
  const uint row0 = (first + tile_of_band % height) * BM;
  const uint col0 = tile_of_band / height * BN;
  set_batch(batch);

  const uint block = thread / (LANES_X * LANES_Y), lane = thread % (LANES_X * LANES_Y);
  // Each lane has a neighbour that reads the same quad of A, and one that reads the same quad of B: such reads of vec4 take half
  // as long on devices that serve 16 lanes at a time.
  const uint tr = block / (COL_THREADS / LANES_X) * LANES_Y + lane / (2 * LANES_X) * 2 + lane % 2;
  const uint tc = block % (COL_THREADS / LANES_X) * LANES_X + lane / 2 % LANES_X;

  vec4 acc[TM][TN / 4];
  [[unroll]] for (uint i = 0; i < TM; ++i) {
    [[unroll]] for (uint j = 0; j < TN / 4; ++j) acc[i][j] = vec4(0.0);
  }

  uint begin = 0, end = (DEPTH + BK - 1) / BK;
#if SPLIT
  begin = end * part / PARTS;
  end = end * (part + 1) / PARTS;
#endif
  A_OUTERS(a_outers)
  B_OUTERS(b_outers)
  A_SETUP(a_outers, row0, ROWS)
  B_SETUP(b_outers, col0, COLS)
  vec4 a_items[A_PER_THREAD], b_items[B_PER_THREAD];
  if (begin < end) {
    A_PREFETCH(a_items, a_outers, row0, ROWS, begin * BK)
    B_PREFETCH(b_items, b_outers, col0, COLS, begin * BK)
    A_COMMIT(a_items, 0)
    B_COMMIT(b_items, 0)
  }
  barrier();
  for (uint step = begin; step < end; ++step) {
    const bool more = step + 1 < end;
    if (more) {  // the next tile travels while this one is computed
      A_PREFETCH(a_items, a_outers, row0, ROWS, (step + 1) * BK)
      B_PREFETCH(b_items, b_outers, col0, COLS, (step + 1) * BK)
    }
    const uint stage = (step - begin) & (STAGES - 1);
    [[unroll]] for (uint k = 0; k < BK; ++k) {
      vec4 b[TN / 4];
      [[unroll]] for (uint j = 0; j < TN / 4; ++j) b[j] = tile_memory[B_WORD(stage, k, tc) + j * COL_THREADS];
#if TM == 1
      const float a = tile_memory[A_WORD(stage, k, tr / 4)][tr % 4];
      [[unroll]] for (uint j = 0; j < TN / 4; ++j) acc[0][j] = fma(vec4(a), b[j], acc[0][j]);
#else
      vec4 a[TM / 4];
      [[unroll]] for (uint i = 0; i < TM / 4; ++i) a[i] = tile_memory[A_WORD(stage, k, tr) + i * ROW_THREADS];
      [[unroll]] for (uint i = 0; i < TM; ++i) {
        [[unroll]] for (uint j = 0; j < TN / 4; ++j) acc[i][j] = fma(vec4(a[i / 4][i % 4]), b[j], acc[i][j]);
      }
#endif
    }
#if STAGES == 1
    barrier();
#endif
    if (more) {
      const uint next = (stage + 1) & (STAGES - 1);
      A_COMMIT(a_items, next)
      B_COMMIT(b_items, next)
      barrier();
    }
  }

#if SPLIT
  // Every part leaves its sums in the workspace; the last one to arrive adds them in the order of the parts, so that the result
  // does not depend on which one that is, and returns the counter to zero for the next launch.
  const uint words = TM * (TN / 4) * THREADS;
  const uint mine = group * words + thread;
  [[unroll]] for (uint i = 0; i < TM; ++i) {
    [[unroll]] for (uint j = 0; j < TN / 4; ++j) W[mine + (i * (TN / 4) + j) * THREADS] = acc[i][j];
  }
  memoryBarrierBuffer();
  barrier();
  if (thread == 0) tile_memory[0].x = float(atomicAdd(C[tile], 1u));
  barrier();
  if (uint(tile_memory[0].x) != PARTS - 1) return;
  memoryBarrierBuffer();
  [[unroll]] for (uint i = 0; i < TM; ++i) {
    [[unroll]] for (uint j = 0; j < TN / 4; ++j) acc[i][j] = vec4(0.0);
  }
  for (uint s = 0; s < PARTS; s += TOGETHER) {
    vec4 sums[TOGETHER][TM][TN / 4];
    [[unroll]] for (uint t = 0; t < TOGETHER; ++t) {
      const uint theirs = (tile * PARTS + min(s + t, PARTS - 1)) * words + thread;
      [[unroll]] for (uint i = 0; i < TM; ++i) {
        [[unroll]] for (uint j = 0; j < TN / 4; ++j) sums[t][i][j] = W[theirs + (i * (TN / 4) + j) * THREADS];
      }
    }
    [[unroll]] for (uint t = 0; t < TOGETHER; ++t) {
      if (s + t < PARTS) {
        [[unroll]] for (uint i = 0; i < TM; ++i) {
          [[unroll]] for (uint j = 0; j < TN / 4; ++j) acc[i][j] += sums[t][i][j];
        }
      }
    }
  }
  if (thread == 0) C[tile] = 0u;
#endif

#if EPILOGUE_STAGED
  for (uint row = 0; row < TM; ++row) {  // one row of every thread at a time
    barrier();
    [[unroll]] for (uint i = 0; i < TM; ++i) {
      if (i == row) {
        [[unroll]] for (uint j = 0; j < TN / 4; ++j) tile_memory[tr * (BN / 4) + j * COL_THREADS + tc] = acc[i][j];
      }
    }
    barrier();
    for (uint e = thread; e < ROW_THREADS * (BN / 4); e += THREADS) {
      finish(row0 + ROW(e / (BN / 4), row), col0, e % (BN / 4), tile_memory[e]);
    }
  }
#else
  [[unroll]] for (uint i = 0; i < TM; ++i) {
    [[unroll]] for (uint j = 0; j < TN / 4; ++j) finish(row0 + ROW(tr, i), col0, j * COL_THREADS + tc, acc[i][j]);
  }
#endif
}

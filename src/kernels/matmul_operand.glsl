// How one operand of a matrix product gets from memory into its tile in shared memory. The generator instantiates this
// text twice, with X = A (outer coordinate: the row of C) and X = B (outer coordinate: the column of C).
//
// Constants: X_OUTER the tile's extent along the outer coordinate; X_VEC 1: four elements per load (extent, strides and offset
// allow it), 0: one; X_ALONG_K 1: neighbouring threads load neighbours along k, 0: along the outer coordinate.
// Hooks: vec4 X_load_vec(uint outer, uint k) or float X_load(uint outer, uint k); called for coordinates inside the operand only.
//
// The tile is k-major: quad q of outer coordinates at depth k is word X_WORD(stage, k, q). Operands that arrive along k are
// transposed by their stores; the swizzle spreads those stores over the banks without the padding that would cost 32 KiB devices
// a stage, and keeps quads whole so that they can be read as vec4.

#define X_QUADS (X_OUTER / 4)
#define X_FIRST X_TILE_OFFSET
#if X_ALONG_K
#define X_SWIZZLE(k) ((((k) / 4) * (32 / BK)) & (X_QUADS - 1))
#else
#define X_SWIZZLE(k) 0
#endif
#define X_WORD(stage, k, q) (X_FIRST + (stage) * (BK * X_QUADS) + (k) * X_QUADS + ((q) ^ X_SWIZZLE(k)))

// Item e of the tile: a vec4 or a scalar, at outer coordinate X_O(e) and depth X_K(e) of the tile.
#if X_VEC && X_ALONG_K
#define X_TYPE vec4
#define X_ITEMS (X_OUTER * BK / 4)
#define X_O(e) ((e) / (BK / 4))
#define X_K(e) ((e) % (BK / 4) * 4)
#define X_FETCH(o, k) X_load_vec(o, k)
#elif X_VEC
#define X_TYPE vec4
#define X_ITEMS (X_OUTER * BK / 4)
#define X_O(e) ((e) % X_QUADS * 4)
#define X_K(e) ((e) / X_QUADS)
#define X_FETCH(o, k) X_load_vec(o, k)
#else
#define X_TYPE float
#define X_ITEMS (X_OUTER * BK)
#if X_ALONG_K
#define X_O(e) ((e) / BK)
#define X_K(e) ((e) % BK)
#else
#define X_O(e) ((e) % X_OUTER)
#define X_K(e) ((e) / X_OUTER)
#endif
#define X_FETCH(o, k) X_load(o, k)
#endif
#define X_PER_THREAD ((X_ITEMS + THREADS - 1) / THREADS)
#if X_ITEMS % THREADS == 0
#define X_EXISTS(e) true
#else
#define X_EXISTS(e) ((e) < X_ITEMS)
#endif

// X_PREFETCH: the items of the tile at (outer0, k0) into registers `item`, zeros outside the operand.
#define X_PREFETCH(item, outer0, outer_extent, k0)                           \
  [[unroll]] for (uint i = 0; i < X_PER_THREAD; ++i) {                       \
    const uint e = thread + i * THREADS;                                     \
    const uint o = (outer0) + X_O(e), k = (k0) + X_K(e);                     \
    item[i] = X_TYPE(0.0);                                                   \
    if (o < (outer_extent) && X_EXISTS(e) && k < DEPTH) item[i] = X_FETCH(o, k); \
  }

// X_COMMIT: those registers into `stage` of the tile.
#if X_VEC && X_ALONG_K
#define X_COMMIT(item, stage)                                            \
  [[unroll]] for (uint i = 0; i < X_PER_THREAD; ++i) {                   \
    const uint e = thread + i * THREADS;                                 \
    if (X_EXISTS(e)) {                                                   \
      const uint o = X_O(e), k = X_K(e), word = X_WORD(stage, k, o / 4); \
      tile_memory[word][o % 4] = item[i].x;                              \
      tile_memory[word + X_QUADS][o % 4] = item[i].y;                    \
      tile_memory[word + 2 * X_QUADS][o % 4] = item[i].z;                \
      tile_memory[word + 3 * X_QUADS][o % 4] = item[i].w;                \
    }                                                                    \
  }
#elif X_VEC
#define X_COMMIT(item, stage)                                                       \
  [[unroll]] for (uint i = 0; i < X_PER_THREAD; ++i) {                              \
    const uint e = thread + i * THREADS;                                            \
    if (X_EXISTS(e)) tile_memory[X_WORD(stage, X_K(e), X_O(e) / 4)] = item[i];      \
  }
#else
#define X_COMMIT(item, stage)                                                              \
  [[unroll]] for (uint i = 0; i < X_PER_THREAD; ++i) {                                     \
    const uint e = thread + i * THREADS;                                                   \
    if (X_EXISTS(e)) tile_memory[X_WORD(stage, X_K(e), X_O(e) / 4)][X_O(e) % 4] = item[i]; \
  }
#endif

// How one operand of a matrix product gets from memory into its tile in shared memory. The generator instantiates this
// text twice, with X = A (outer coordinate: the row of C) and X = B (outer coordinate: the column of C).
//
// Constants: X_OUTER the tile's extent along the outer coordinate; X_VEC 1: four elements per load (extent, strides and offset
// allow it), 0: one; X_ALONG_K 1: neighbouring threads load neighbours along k, 0: along the outer coordinate;
// X_SPREAD 1: the four coordinates of a quad lie X_QUADS apart, 0: they are neighbours (always, where X_VEC);
// K_TAIL 1: the last tile reaches beyond DEPTH.
// Hooks: X_Outer X_outer(uint outer) and X_K X_k(uint k), what a load needs of either coordinate; vec4 X_load_vec(X_Outer, X_K) or
// float X_load(X_Outer, X_K), called for coordinates inside the operand only.
//
// The tile is k-major: quad q of outer coordinates at depth k is word X_WORD(stage, k, q). Operands that arrive along k are
// transposed by their stores; the swizzle spreads those stores over the banks without the padding that would cost 32 KiB devices
// a stage, and keeps quads whole so that they can be read as vec4. It changes the low three bits of q alone.

#define X_QUADS (X_OUTER / 4)
#define X_FIRST X_TILE_OFFSET
#if X_ALONG_K && X_VEC
#define X_SWIZZLE(k) ((((k) / 4) * (32 / BK)) & (X_QUADS - 1))
#elif X_ALONG_K
#define X_SWIZZLE(k) ((k) & 7 & (X_QUADS - 1))
#else
#define X_SWIZZLE(k) 0
#endif
#define X_WORD(stage, k, q) (X_FIRST + (stage) * (BK * X_QUADS) + (k) * X_QUADS + ((q) ^ X_SWIZZLE(k)))

// Outer coordinate, within the tile, of component c of quad q. Spread, neighbouring threads load and store neighbouring elements
// one by one and still move whole quads through shared memory.
#if X_SPREAD
#define X_COORD(q, c) ((c) * X_QUADS + (q))
#else
#define X_COORD(q, c) ((q) * 4 + (c))
#endif

// Item e of the tile, a vec4: four depths from X_K_OF(e) at outer coordinate X_O(e), or the quad X_Q(e) of outer coordinates at
// depth X_K_OF(e). Coordinates beyond the operand repeat its last ones: what they add to is never stored.
#if X_VEC && X_ALONG_K
#define X_O(e) ((e) / (BK / 4))
#define X_K_OF(e) ((e) % (BK / 4) * 4)
#elif X_ALONG_K
#define X_Q(e) ((e) / BK)
#define X_K_OF(e) ((e) % BK)
#else
#define X_Q(e) ((e) % X_QUADS)
#define X_K_OF(e) ((e) / X_QUADS)
#endif

// Outer coordinates of item e, X_LANES of them: AT(e, c).
#if X_VEC
#define X_LANES 1
#if X_ALONG_K
#define X_AT(outer0, extent, e, c) X_outer(min((outer0) + X_O(e), (extent) - 1))
#else
#define X_AT(outer0, extent, e, c) X_outer(min((outer0) + X_Q(e) * 4, (extent) - 4))
#endif
#else
#define X_LANES 4
#define X_AT(outer0, extent, e, c) X_outer(min((outer0) + X_COORD(X_Q(e), c), (extent) - 1))
#endif

// X_KEEP 1: what they are costs enough to be kept in registers, all along the depth; 0: a product and a sum, made again.
#if X_KEEP
#define X_OUTERS(name) X_Outer name[X_PER_THREAD * X_LANES];
#define X_SETUP(outers, outer0, extent)                                                          \
  [[unroll]] for (uint i = 0; i < X_PER_THREAD; ++i) {                                           \
    [[unroll]] for (uint c = 0; c < X_LANES; ++c)                                                \
      outers[i * X_LANES + c] = X_AT(outer0, extent, thread + i * THREADS, c);                   \
  }
#define X_OUTER_OF(outers, outer0, extent, i, e, c) outers[(i) * X_LANES + (c)]
#else
#define X_OUTERS(name)
#define X_SETUP(outers, outer0, extent)
#define X_OUTER_OF(outers, outer0, extent, i, e, c) X_AT(outer0, extent, e, c)
#endif

#if X_VEC
#define X_FETCH(outers, outer0, extent, i, e, k) X_load_vec(X_OUTER_OF(outers, outer0, extent, i, e, 0), k)
#else
#define X_FETCH(outers, outer0, extent, i, e, k)                          \
  vec4(X_load(X_OUTER_OF(outers, outer0, extent, i, e, 0), k),            \
       X_load(X_OUTER_OF(outers, outer0, extent, i, e, 1), k),            \
       X_load(X_OUTER_OF(outers, outer0, extent, i, e, 2), k),            \
       X_load(X_OUTER_OF(outers, outer0, extent, i, e, 3), k))
#endif

#define X_ITEMS (X_OUTER * BK / 4)
#define X_PER_THREAD ((X_ITEMS + THREADS - 1) / THREADS)
#if X_ITEMS % THREADS == 0
#define X_EXISTS(e) true
#else
#define X_EXISTS(e) ((e) < X_ITEMS)
#endif
#if K_TAIL
#define X_INSIDE(k) ((k) < DEPTH)
#else
#define X_INSIDE(k) true
#endif

// X_PREFETCH: the items of the tile at depth k0 into registers `item`, zeros beyond DEPTH.
#define X_PREFETCH(item, outers, outer0, extent, k0)                                             \
  [[unroll]] for (uint i = 0; i < X_PER_THREAD; ++i) {                                           \
    const uint e = thread + i * THREADS, depth = (k0) + X_K_OF(e);                               \
    item[i] = vec4(0.0);                                                                         \
    if (X_EXISTS(e) && X_INSIDE(depth)) {                                                        \
      const X_K k = X_k(depth);                                                                  \
      item[i] = X_FETCH(outers, outer0, extent, i, e, k);                                        \
    }                                                                                            \
  }

// X_COMMIT: those registers into `stage` of the tile.
#if X_VEC && X_ALONG_K
#define X_COMMIT(item, stage)                                            \
  [[unroll]] for (uint i = 0; i < X_PER_THREAD; ++i) {                   \
    const uint e = thread + i * THREADS;                                 \
    if (X_EXISTS(e)) {                                                   \
      const uint o = X_O(e), word = X_WORD(stage, X_K_OF(e), o / 4);        \
      tile_memory[word][o % 4] = item[i].x;                              \
      tile_memory[word + X_QUADS][o % 4] = item[i].y;                    \
      tile_memory[word + 2 * X_QUADS][o % 4] = item[i].z;                \
      tile_memory[word + 3 * X_QUADS][o % 4] = item[i].w;                \
    }                                                                    \
  }
#else
#define X_COMMIT(item, stage)                                                            \
  [[unroll]] for (uint i = 0; i < X_PER_THREAD; ++i) {                                   \
    const uint e = thread + i * THREADS;                                                 \
    if (X_EXISTS(e)) tile_memory[X_WORD(stage, X_K_OF(e), X_Q(e))] = item[i];               \
  }
#endif

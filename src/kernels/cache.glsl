// Rows of a cache [BATCH, HEADS, CAPACITY, D] at positions that are data: WRITE copies `new` rows into it, else rows are read (0
// where they lie outside). One thread takes WIDTH neighbours along D.
// Constants: THREADS, WRITE, WIDTH (4: vec4 views), RING, SCALAR (one position for all sequences). T: type of WIDTH elements.
// Numbers: POINTS, HEADS, ROWS, CAPACITY, QUADS (D / WIDTH). Hooks: CACHE, ROW_DATA, POSITION: buffers; uint row_at(b, h, s, d).

void main() {
  const uint group = ae_group();
  if (group >= P.groups) return;
  const uint point = group * THREADS + gl_LocalInvocationIndex;
  if (point >= POINTS) return;
  const uint line = point / QUADS, d = (point - line * QUADS) * WIDTH;
  const uint sequence = line / ROWS, s = line - sequence * ROWS;
  const uint b = sequence / HEADS, h = sequence - b * HEADS;
  const int start = POSITION[SCALAR == 1 ? 0u : b];
  uint slot = uint(start) + s;
#if RING
  slot %= CAPACITY;
#endif
  const bool inside = start >= 0 && slot < CAPACITY;
  const uint at = (sequence * CAPACITY + slot) * (QUADS * WIDTH) + d;
#if WRITE
  if (inside) CACHE[at / WIDTH] = ROW_DATA[row_at(b, h, s, d) / WIDTH];
#else
  T value = T(0);
  if (inside) value = CACHE[at / WIDTH];
  ROW_DATA[point] = value;
#endif
}

// Runs of equal keys in sorted order: ADD 1: each run is added to its row of TARGET; ADD 0: its last update replaces the row.
// The order is cut into chunks. An invocation takes one column of the run, or the part of a run in a chunk, that begins at its
// slot, and adds in ascending order. Runs within one chunk are done here; the others leave the sums of their parts in
// PARTS [OUTER, CHUNKS, 2, COLUMNS]: of the run that comes into a chunk, and of the one that begins in it and leaves it.
// Hook: T update(outer, item, column). Buffers: PLACES, SORTED, TARGET [OUTER, ROWS, COLUMNS], PARTS (where PARTIAL).
// Numbers: ITEMS, OUTER, COLUMNS, ROWS, CHUNK, CHUNKS.
void main() {
  const uint group = ae_group();
  if (group >= P.groups) return;
  const uint point = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  const uint column = point % COLUMNS, rest = point / COLUMNS;
  const uint slot = rest % ITEMS, outer = rest / ITEMS;
  if (outer >= OUTER) return;
  const int key = SORTED[slot];
  const bool inside = uint(key) < ROWS;
#if ADD
  const uint chunk = slot / CHUNK, begin = chunk * CHUNK;
  const bool continues = slot > 0u && SORTED[max(slot, 1u) - 1u] == key;
  if (continues && slot != begin) return;
  const uint limit = min(begin + CHUNK, ITEMS);
  uint end = slot + 1u;
  while (end < limit && SORTED[min(end, ITEMS - 1u)] == key) ++end;
  T sum = T(0);
  if (inside) {
    uint at = slot;
    for (; at + 4u <= end; at += 4u) {  // four loads at a time
      const T u0 = update(outer, uint(PLACES[at]), column), u1 = update(outer, uint(PLACES[at + 1u]), column);
      const T u2 = update(outer, uint(PLACES[at + 2u]), column), u3 = update(outer, uint(PLACES[at + 3u]), column);
      sum += u0;
      sum += u1;
      sum += u2;
      sum += u3;
    }
    for (; at < end; ++at) sum += update(outer, uint(PLACES[at]), column);
  }
  const bool goes_on = end < ITEMS && SORTED[min(end, ITEMS - 1u)] == key;
  if (inside && !continues && !goes_on) TARGET[(outer * ROWS + uint(key)) * COLUMNS + column] += sum;
#if PARTIAL
  const uint part = (outer * CHUNKS + chunk) * 2u;
  if (slot == begin) PARTS[part * COLUMNS + column] = continues ? sum : T(0);
  if (end == limit) PARTS[(part + 1u) * COLUMNS + column] = !continues && goes_on ? sum : T(0);
#endif
#else
  if (!inside || (slot + 1u < ITEMS && SORTED[min(slot + 1u, ITEMS - 1u)] == key)) return;
  TARGET[(outer * ROWS + uint(key)) * COLUMNS + column] = update(outer, uint(PLACES[slot]), column);
#endif
}

// Runs longer than a chunk (scatter_runs): the chunk in which one begins adds the sums of its parts, in ascending order.
// Buffers: PARTS [OUTER, CHUNKS, 2, COLUMNS], SORTED, TARGET [OUTER, ROWS, COLUMNS].
// Numbers: ITEMS, OUTER, COLUMNS, ROWS, CHUNK, CHUNKS.
void main() {
  const uint group = ae_group();
  if (group >= P.groups) return;
  const uint point = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  const uint column = point % COLUMNS, rest = point / COLUMNS;
  const uint chunk = rest % CHUNKS, outer = rest / CHUNKS;
  if (outer >= OUTER) return;
  const uint first = chunk * CHUNK, next = first + CHUNK;
  if (next >= ITEMS) return;
  const int key = SORTED[next - 1u];
  if (uint(key) >= ROWS || SORTED[next] != key) return;                      // nothing leaves this chunk
  if (first > 0u && SORTED[max(first, 1u) - 1u] == key) return;              // it came in: an earlier chunk's
  uint low = next, high = ITEMS;                                             // the run's end is in (low, high]
  while (high - low > 1u) {
    const uint middle = low + (high - low) / 2u;
    if (SORTED[middle] == key) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const uint last = low / CHUNK;
  T sum = PARTS[((outer * CHUNKS + chunk) * 2u + 1u) * COLUMNS + column];
  uint at = chunk + 1u;
  for (; at + 4u <= last + 1u; at += 4u) {
    const uint part = ((outer * CHUNKS + at) * 2u) * COLUMNS + column;
    const T p0 = PARTS[part], p1 = PARTS[part + 2u * COLUMNS], p2 = PARTS[part + 4u * COLUMNS], p3 = PARTS[part + 6u * COLUMNS];
    sum += p0;
    sum += p1;
    sum += p2;
    sum += p3;
  }
  for (; at <= last; ++at) sum += PARTS[((outer * CHUNKS + at) * 2u) * COLUMNS + column];
  TARGET[(outer * ROWS + uint(key)) * COLUMNS + column] += sum;
}

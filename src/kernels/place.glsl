// Rows of K elements at their indices of rows of N elements, 0 elsewhere; the indices of a row are distinct.
// FULL (K = N, a permutation): one thread writes one element. Else a workgroup makes SEGMENT elements of a row in shared memory.
// Constants: THREADS, SEGMENT, FULL. Numbers: POINTS, K, N, SEGMENTS (per row). T: element type. Hooks: X, INDICES, Y: buffers.

#if FULL
void main() {
  const uint group = ae_group();
  if (group >= P.groups) return;
  const uint point = group * THREADS + gl_LocalInvocationIndex;
  if (point >= POINTS) return;
  const uint index = uint(INDICES[point]);
  if (index < N) Y[point / K * N + index] = X[point];
}
#else
shared T values[SEGMENT];

void main() {
  const uint group = ae_group();
  if (group >= P.groups) return;
  const uint thread = gl_LocalInvocationIndex;
  const uint row = group / SEGMENTS, first = (group - row * SEGMENTS) * SEGMENT;
  for (uint i = thread; i < SEGMENT; i += THREADS) values[i] = T(0);
  barrier();
  for (uint k = thread; k < K; k += THREADS) {
    const uint at = uint(INDICES[row * K + k]) - first;  // below: wraps to a large number
    if (at < SEGMENT) values[at] = X[row * K + k];
  }
  barrier();
  for (uint i = thread; i < SEGMENT && first + i < N; i += THREADS) Y[row * N + first + i] = values[i];
}
#endif

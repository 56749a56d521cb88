// First pass of a radix sort by one digit of 4 bits: each workgroup counts the digits of its block of THREADS * EACH keys; the last
// to arrive turns the counts, digits first, into first places. Counts are integers: their order does not matter.
// Buffers: KEYS, OFFSETS [16 * BLOCKS]. Constants: THREADS, EACH. Numbers: ITEMS, BLOCKS, SHIFT.
shared uint counts[16 * 16];  // 16 copies of each counter, against collisions
shared uint sums[THREADS];
shared uint arrived;

void main() {
  const uint group = ae_group();
  if (group >= P.groups) return;
  const uint thread = gl_LocalInvocationIndex;
  for (uint i = thread; i < 256u; i += THREADS) counts[i] = 0u;
  barrier();
  for (uint i = 0u; i < EACH; ++i) {
    const uint item = group * (THREADS * EACH) + i * THREADS + thread;
    if (item < ITEMS) atomicAdd(counts[((uint(KEYS[item]) >> SHIFT) & 15u) * 16u + (thread & 15u)], 1u);
  }
  barrier();
  for (uint digit = thread; digit < 16u; digit += THREADS) {
    uint count = 0u;
    for (uint i = 0u; i < 16u; ++i) count += counts[digit * 16u + i];
    W[digit * BLOCKS + group] = count;
  }
  memoryBarrierBuffer();
  barrier();
  if (thread == 0u) arrived = atomicAdd(C[0], 1u);
  barrier();
  if (arrived != P.groups - 1u) return;
  memoryBarrierBuffer();

  // Each thread a stretch of the counts.
  const uint total = 16u * BLOCKS, share = (total + THREADS - 1u) / THREADS;
  const uint begin = min(thread * share, total), end = min(begin + share, total);
  uint sum = 0u;
  for (uint i = begin; i < end; ++i) sum += W[i];
  sums[thread] = sum;
  for (uint step = 1u; step < THREADS; step *= 2u) {
    barrier();
    const uint other = thread >= step ? sums[thread - step] : 0u;
    barrier();
    sums[thread] += other;
  }
  uint place = sums[thread] - sum;
  for (uint i = begin; i < end; ++i) {
    OFFSETS[i] = int(place);
    place += W[i];
  }
  if (thread == 0u) C[0] = 0u;  // ready for the next launch
}

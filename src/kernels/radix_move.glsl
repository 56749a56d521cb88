// Second pass of a radix sort by one digit of 4 bits: each workgroup moves its block of THREADS * EACH keys, with a value each, to
// their places, in stable order: a thread has EACH neighbouring keys and counts its digits alone.
// Buffers: KEYS, VALUES, OFFSETS, MOVED_KEYS, MOVED_VALUES. Constants: THREADS, EACH. Numbers: ITEMS, BLOCKS, SHIFT.
shared uint counts[8 * THREADS];  // [digit % 8][thread]: digits 0 to 7 in the low half of a word, 8 to 15 in the high one
shared uint sums[THREADS];
shared uint base[16];             // place of the block's first key of a digit, minus its rank in the block

void main() {
  const uint group = ae_group();
  if (group >= P.groups) return;
  const uint thread = gl_LocalInvocationIndex;
  const uint first = group * (THREADS * EACH) + thread * EACH;
  for (uint row = 0u; row < 8u; ++row) counts[row * THREADS + thread] = 0u;
  for (uint i = 0u; i < EACH; ++i) {
    if (first + i >= ITEMS) break;
    const uint digit = (uint(KEYS[first + i]) >> SHIFT) & 15u;
    counts[(digit & 7u) * THREADS + thread] += digit < 8u ? 1u : 0x10000u;
  }
  barrier();

  // Exclusive sums over digits, then threads; both halves at once. Each thread has 8 neighbouring words.
  uint sum = 0u;
  for (uint i = 0u; i < 8u; ++i) sum += counts[thread * 8u + i];
  sums[thread] = sum;
  for (uint step = 1u; step < THREADS; step *= 2u) {
    barrier();
    const uint other = thread >= step ? sums[thread - step] : 0u;
    barrier();
    sums[thread] += other;
  }
  barrier();
  uint before = sums[thread] - sum + (sums[THREADS - 1u] << 16);  // the high digits come behind all low ones
  for (uint i = 0u; i < 8u; ++i) {
    const uint count = counts[thread * 8u + i];
    counts[thread * 8u + i] = before;
    before += count;
  }
  barrier();
  for (uint digit = thread; digit < 16u; digit += THREADS) {
    const uint word = counts[(digit & 7u) * THREADS];
    base[digit] = uint(OFFSETS[digit * BLOCKS + group]) - (digit < 8u ? word & 0xffffu : word >> 16);
  }
  barrier();

  for (uint i = 0u; i < EACH; ++i) {
    if (first + i >= ITEMS) break;
    const uint key = uint(KEYS[first + i]), digit = (key >> SHIFT) & 15u;
    const uint at = (digit & 7u) * THREADS + thread, word = counts[at];
    const uint place = base[digit] + (digit < 8u ? word & 0xffffu : word >> 16);
    counts[at] = word + (digit < 8u ? 1u : 0x10000u);
    MOVED_KEYS[place] = int(key);
    MOVED_VALUES[place] = VALUES[first + i];
  }
}

// Sorts chunks of rows [ROWS, N] by (key, position) in shared memory and writes the first KEEP of each chunk, with their
// indices: from INDICES_IN (CARRIED), or their position in the row.
//
// A workgroup takes ITEMS_PER_GROUP chunks, each in CAPACITY slots (a power of two); slots beyond the chunk sort last. The network
// is the bitonic one whose first step of each round mirrors, so that every comparison goes the same way.
// Constants: CAPACITY, ITEMS_PER_GROUP, THREADS, DESCENDING, CARRIED. Numbers: ITEMS, CHUNKS (per row), N, CHUNK, KEEP, OUT_N.
// Hooks: X, INDICES_IN, VALUES, INDICES: buffers.

#define SLOTS (CAPACITY * ITEMS_PER_GROUP)
shared uint keys[SLOTS];
shared uint places[SLOTS];  // position in the chunk

void order(uint a, uint b) {  // a < b: the smaller one to a
  const uint key_a = keys[a], key_b = keys[b], place_a = places[a], place_b = places[b];
  if (key_a < key_b || (key_a == key_b && place_a < place_b)) return;
  keys[a] = key_b;
  keys[b] = key_a;
  places[a] = place_b;
  places[b] = place_a;
}

void main() {
  const uint group = ae_group();
  if (group >= P.groups) return;
  const uint thread = gl_LocalInvocationIndex;
  for (uint slot = thread; slot < SLOTS; slot += THREADS) {
    const uint item = group * ITEMS_PER_GROUP + slot / CAPACITY, place = slot % CAPACITY;
    const uint row = item / CHUNKS, first = (item - row * CHUNKS) * CHUNK;
    const bool inside = item < ITEMS && place < CHUNK && first + place < N;
    uint key = 0xffffffffu;
    if (inside) key = sort_key(X[row * N + first + place]);
    keys[slot] = key;
    places[slot] = place;
  }
  barrier();
  for (uint size = 2u; size <= CAPACITY; size *= 2u) {
    for (uint pair = thread; pair < SLOTS / 2u; pair += THREADS) {
      const uint in_half = pair & (size / 2u - 1u), start = (pair - in_half) * 2u;
      order(start + in_half, start + size - 1u - in_half);
    }
    barrier();
    for (uint distance = size / 4u; distance > 0u; distance /= 2u) {
      for (uint pair = thread; pair < SLOTS / 2u; pair += THREADS) {
        const uint low = pair * 2u - (pair & (distance - 1u));
        order(low, low + distance);
      }
      barrier();
    }
  }
  for (uint slot = thread; slot < SLOTS; slot += THREADS) {
    const uint item = group * ITEMS_PER_GROUP + slot / CAPACITY, rank = slot % CAPACITY;
    const uint row = item / CHUNKS, chunk = item - row * CHUNKS, first = chunk * CHUNK;
    if (item >= ITEMS || rank >= KEEP || rank >= CHUNK || first + rank >= N) continue;
    const uint from = first + places[slot], to = row * OUT_N + chunk * KEEP + rank;
    VALUES[to] = X[row * N + from];
#if CARRIED
    INDICES[to] = INDICES_IN[row * N + from];
#else
    INDICES[to] = int(from);
#endif
  }
}

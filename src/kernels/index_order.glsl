// Stable ascending order of ITEMS keys by counting, for each key, the keys that come before it: quadratic, one kernel, no scan.
// A workgroup places THREADS / SPLIT keys; SPLIT threads share the counting for one.
// Buffers: KEYS, ORDER, SORTED. Constants: THREADS, SPLIT, TILE. Numbers: ITEMS.
#define OWN (THREADS / SPLIT)

shared uvec4 tile[TILE / 4];
shared uint counts[THREADS];

void main() {
  const uint group = ae_group();
  if (group >= P.groups) return;
  const uint thread = gl_LocalInvocationIndex;
  const uint part = thread / OWN, item = group * OWN + thread % OWN;
  const uint key = item < ITEMS ? uint(KEYS[item]) : 0u;
  uint count = 0u;
  for (uint first = 0u; first < ITEMS; first += TILE) {
    barrier();
    for (uint i = thread; i < TILE; i += THREADS) {
      tile[i >> 2][i & 3u] = first + i < ITEMS ? uint(KEYS[first + i]) : 0xffffffffu;
    }
    barrier();
    for (uint i = part * (TILE / 4 / SPLIT); i < (part + 1u) * (TILE / 4 / SPLIT); ++i) {
      // Before it: a smaller key, or an equal one further in front.
      const uvec4 place = uvec4(first + i * 4u) + uvec4(0u, 1u, 2u, 3u);
      const uvec4 limit = uvec4(key) + uvec4(lessThan(place, uvec4(item)));
      const uvec4 before = uvec4(lessThan(tile[i], limit));
      count += before.x + before.y + before.z + before.w;
    }
  }
  counts[thread] = count;
  barrier();
  if (part == 0u && item < ITEMS) {
    uint place = 0u;
    for (uint i = 0u; i < SPLIT; ++i) place += counts[i * OWN + thread];
    ORDER[place] = int(item);
    SORTED[place] = int(key);
  }
}

// Merges neighbouring sorted runs of RUN elements in rows [ROWS, N] into runs of 2 RUN; equal keys: the left run's first.
//
// A workgroup makes TILE consecutive elements of one pair of runs (2 RUN is a multiple of TILE). Where its part begins and ends in the
// two runs is found by bisection along the diagonals of the merge matrix (merge path, Odeh et al. 2012); the part is then merged in
// shared memory, each thread again from its own diagonal.
// Constants: TILE, THREADS, PER_THREAD (TILE / THREADS), DESCENDING. Numbers: TILES (per row), N, RUN.
// Hooks: X, INDICES_IN, VALUES, INDICES: buffers.

shared uint keys[TILE];    // the left part, then the right one
shared uint places[TILE];  // of each merged element: its slot in keys
shared uint bounds[2];     // elements of the left run before the tile, and before the next one

void main() {
  const uint group = ae_group();
  if (group >= P.groups) return;
  const uint thread = gl_LocalInvocationIndex;
  const uint row = group / TILES, start = (group - row * TILES) * TILE;  // of the tile, in the row
  const uint pair = start / RUN / 2u * 2u * RUN;                         // start of the left run
  const uint left_count = min(RUN, N - pair);
  const uint right_count = min(RUN, N - pair - left_count);
  const uint left = row * N + pair, right = left + left_count;
  const uint count = min(TILE, N - start);

  if (thread < 2u) {
    const uint diagonal = start - pair + thread * count;
    uint low = diagonal > right_count ? diagonal - right_count : 0u, high = min(diagonal, left_count);
    while (low < high) {
      const uint middle = (low + high) / 2u;
      if (sort_key(X[left + middle]) <= sort_key(X[right + diagonal - 1u - middle])) {
        low = middle + 1u;
      } else {
        high = middle;
      }
    }
    bounds[thread] = low;
  }
  barrier();
  const uint left_first = bounds[0], lefts = bounds[1] - left_first;
  const uint right_first = start - pair - left_first, rights = count - lefts;
  for (uint slot = thread; slot < count; slot += THREADS) {
    keys[slot] = sort_key(X[slot < lefts ? left + left_first + slot : right + right_first + slot - lefts]);
  }
  barrier();
  {
    const uint diagonal = min(thread * PER_THREAD, count);
    uint low = diagonal > rights ? diagonal - rights : 0u, high = min(diagonal, lefts);
    while (low < high) {
      const uint middle = (low + high) / 2u;
      if (keys[middle] <= keys[lefts + diagonal - 1u - middle]) {
        low = middle + 1u;
      } else {
        high = middle;
      }
    }
    uint i = low, j = diagonal - low;
    for (uint k = 0u; k < PER_THREAD && diagonal + k < count; ++k) {
      const bool from_left = j >= rights || (i < lefts && keys[i] <= keys[lefts + j]);
      places[diagonal + k] = from_left ? i++ : lefts + j++;
    }
  }
  barrier();
  for (uint slot = thread; slot < count; slot += THREADS) {
    const uint place = places[slot];
    const uint from = place < lefts ? left + left_first + place : right + right_first + place - lefts;
    VALUES[row * N + start + slot] = X[from];
    INDICES[row * N + start + slot] = INDICES_IN[from];
  }
}

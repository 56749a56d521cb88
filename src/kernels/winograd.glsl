// Winograd's transforms of tiles: one thread for each tile of a channel. TO_PLANES: from windows of IN x IN elements of an image
// [batch, CHANNELS, H, W], zero outside, to 16 planes of POINTS elements; else from planes to OUT x OUT squares of an image. Windows
// and squares lie two elements apart.
// Constants: THREADS, IN, OUT, TO_PLANES. Numbers: POINTS, COUNT (tiles of a channel), TILES (of an image), TILES_X, PER_GROUP
// (channels), CHANNELS (of all groups), H, W; TO_PLANES: BEFORE_Y, BEFORE_X, STEP_Y, STEP_X (strides of x). Hooks: X, Y: buffers;
// void along(a[IN], b[OUT]): the map of one line of a square; TO_PLANES: uint image_at(n, g, c).

void main() {
  const uint group = ae_group();
  if (group >= P.groups) return;
  const uint point = group * THREADS + gl_LocalInvocationIndex;
  if (point >= POINTS) return;
  const uint channel = point / COUNT, t = point - channel * COUNT;
  const uint n = t / TILES, tile = t - n * TILES;
  const uint tile_y = tile / TILES_X, tile_x = tile - tile_y * TILES_X;
  float square[IN][IN];
#if TO_PLANES
  const uint g = channel / PER_GROUP;
  const uint image = image_at(n, g, channel - g * PER_GROUP);
  // Below zero wraps to a large number: outside, too.
  const uint top = tile_y * 2u - BEFORE_Y, left = tile_x * 2u - BEFORE_X;
  [[unroll]] for (uint i = 0u; i < IN; ++i) {
    [[unroll]] for (uint j = 0u; j < IN; ++j) {
      const uint y = top + i, x = left + j;
      square[i][j] = 0.0;
      if (y < H && x < W) square[i][j] = X[image + y * STEP_Y + x * STEP_X];
    }
  }
#else
  const uint image = (n * CHANNELS + channel) * H * W;
  [[unroll]] for (uint i = 0u; i < IN; ++i) {
    [[unroll]] for (uint j = 0u; j < IN; ++j) square[i][j] = X[(i * IN + j) * POINTS + point];
  }
#endif
  float rows[IN][OUT], column[IN], result[OUT];
  [[unroll]] for (uint i = 0u; i < IN; ++i) along(square[i], rows[i]);
  [[unroll]] for (uint j = 0u; j < OUT; ++j) {
    [[unroll]] for (uint i = 0u; i < IN; ++i) column[i] = rows[i][j];
    along(column, result);
    [[unroll]] for (uint i = 0u; i < OUT; ++i) {
#if TO_PLANES
      Y[(i * OUT + j) * POINTS + point] = result[i];
#else
      const uint y = tile_y * 2u + i, x = tile_x * 2u + j;
      if (y < H && x < W) Y[image + y * W + x] = result[i];
#endif
    }
  }
}

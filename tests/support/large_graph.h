#pragma once
// A tensor of 4.80 GB, beyond one descriptor and, on a GPU whose buffers end just below 4 GiB, in two buffers: what the acceptance
// test runs and what its plan is checked with.
#include <cstdint>

#include "aeshna/ops.h"

namespace aeshna::test {

inline constexpr std::int64_t kLargeRows = 1201, kLargeColumns = 1'000'003;

/// State "x" [kLargeRows, kLargeColumns] assigned (7 row + column) mod 13, small integers so that every sum is exact; input "rows"
/// i32[3]; of the old x: "row_sums", "largest", "total" (divided by 4096) and "picked", the last 5 columns of rows[1].
inline void build_large_graph(Graph& g) {
  const Value x = g.state("x", {kLargeRows, kLargeColumns});
  const Value fresh =
      cast(mod(iota(g, {kLargeRows, kLargeColumns}, 0) * 7 + iota(g, {kLargeRows, kLargeColumns}, 1), 13), DType::f32);
  g.assign(x, fresh + x * 0.0);
  const Value rows = g.input("rows", {3}, DType::i32);
  g.output("row_sums", sum(x, {1}));
  g.output("largest", reduce_max(x));
  g.output("total", sum(x * (1.0 / 4096)));
  g.output("picked", slice(gather(x, rows, 0), {1}, {kLargeColumns - 5}, {kLargeColumns}));
}

}  // namespace aeshna::test

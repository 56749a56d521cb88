// Scans and orders.
#include <algorithm>

#include "base/checked.h"
#include "base/fail.h"
#include "base/format.h"
#include "codegen/families.h"
#include "ir/device_types.h"
#include "ir/op.h"

namespace aeshna {
namespace {

std::int64_t attr(const TemplateCall& call, std::string_view name) { return call.attrs.get<std::int64_t>(name); }

/// What the two sorting kernels share: [rows, n] values, and indices if `carried`.
void define_sort(KernelWriter& writer, bool carried) {
  const TemplateCall& call = writer.fused().call;
  writer.define_constants();
  writer.define("DESCENDING", call.attrs.get<bool>("descending") ? 1 : 0);
  writer.define("N", writer.number(call.inputs[0].shape[1]));
  writer.define("X", writer.input(0));
  if (carried) writer.define("INDICES_IN", writer.input(1));
  writer.define("VALUES", writer.result(0));
  writer.define("INDICES", writer.result(1));
  writer.add(kernel_text("sort_key"));
}

}  // namespace

KernelSource generate_scan(KernelWriter& writer) {
  const TemplateCall& call = writer.fused().call;
  const KernelSpec& spec = writer.spec();
  const DType dtype = compute_dtype(call.inputs[0].dtype);
  const Shape& shape = call.inputs[0].shape;
  const auto axis = static_cast<int>(attr(call, "axis"));
  std::int64_t outer = 1, inner = 1;
  for (int d = 0; d < shape.rank(); ++d) (d < axis ? outer : inner) *= d == axis ? 1 : shape[d];
  const std::int64_t extent = shape[axis], block = attr(call, "block");
  const std::int64_t length = block == 0 ? extent : std::min(block, extent);
  const std::int64_t segments = block == 0 ? 1 : (extent + block - 1) / block;

  writer.define_constants();
  const bool offsets = call.inputs.size() > 1, vec = spec.constant("VEC") != 0;
  writer.define("REVERSE", call.attrs.get_or("reverse", false) ? 1 : 0);
  writer.define("HAS_OFFSETS", offsets ? 1 : 0);
  writer.define("T", glsl_type(dtype));
  writer.define("VEC_T", glsl_type(dtype, 4));
  writer.define("ITEMS", writer.number(outer * inner * segments));
  writer.define("LINES", writer.number(outer * inner));
  writer.define("N", writer.number(extent));
  writer.define("INNER", writer.number(inner));
  writer.define("SEGS", writer.number(segments));
  writer.define("BLOCK", writer.number(block == 0 ? extent : block));
  writer.define("LENGTH", writer.number(length));
  writer.define("X", writer.input(0));
  writer.define("Y", writer.result(0));
  if (offsets) writer.define("OFFSETS", writer.input(1));
  if (vec) {
    writer.set_vector_view(call.input_operands[0]);
    if (spec.constant("SUMS") == 0) writer.set_vector_view(call.result_operands[0]);
  }
  return writer.finish("scan");
}

KernelSource generate_sort_chunks(KernelWriter& writer) {
  const TemplateCall& call = writer.fused().call;
  const Shape& shape = call.inputs[0].shape;
  const bool carried = call.inputs.size() > 1;
  define_sort(writer, carried);
  const std::int64_t chunks = ceil_div(shape[1], attr(call, "chunk"));
  writer.define("CARRIED", carried ? 1 : 0);
  writer.define("ITEMS", writer.number(shape[0] * chunks));
  writer.define("CHUNKS", writer.number(chunks));
  writer.define("CHUNK", writer.number(attr(call, "chunk")));
  writer.define("KEEP", writer.number(attr(call, "keep")));
  writer.define("OUT_N", writer.number(call.results[0].shape[1]));
  return writer.finish("sort_chunks");
}

KernelSource generate_place(KernelWriter& writer) {
  const TemplateCall& call = writer.fused().call;
  const std::int64_t n = call.results[0].shape[1];
  writer.define_constants();
  writer.define("T", glsl_type(compute_dtype(call.inputs[0].dtype)));
  writer.define("POINTS", writer.number(call.inputs[0].shape.elements()));
  writer.define("K", writer.number(call.inputs[0].shape[1]));
  writer.define("N", writer.number(n));
  writer.define("SEGMENTS", writer.number(ceil_div(n, writer.spec().constant("SEGMENT"))));
  writer.define("X", writer.input(0));
  writer.define("INDICES", writer.input(1));
  writer.define("Y", writer.result(0));
  return writer.finish("place");
}

KernelSource generate_cache(KernelWriter& writer) {
  const TemplateCall& call = writer.fused().call;
  const bool write = writer.spec().constant("WRITE") != 0;
  const std::int64_t width = writer.spec().constant("WIDTH");
  const std::size_t position = write ? 2 : 1;
  const Shape& cache = call.inputs[0].shape;
  const Shape& rows = write ? call.inputs[1].shape : call.results[0].shape;
  const std::uint32_t cache_operand = write ? call.result_operands[0] : call.input_operands[0];
  const std::uint32_t row_operand = write ? call.input_operands[1] : call.result_operands[0];
  writer.define_constants();
  writer.define("RING", call.attrs.get<bool>("ring") ? 1 : 0);
  writer.define("SCALAR", call.inputs[position].shape.rank() == 0 ? 1 : 0);
  writer.define("T", glsl_type(compute_dtype(call.inputs[0].dtype), static_cast<int>(width)));
  writer.define("POINTS", writer.number(rows.elements() / width));
  writer.define("HEADS", writer.number(rows[1]));
  writer.define("ROWS", writer.number(rows[2]));
  writer.define("CAPACITY", writer.number(cache[2]));
  writer.define("QUADS", writer.number(rows[3] / width));
  writer.define("CACHE", formatted("B{}", cache_operand));
  writer.define("ROW_DATA", formatted("B{}", row_operand));
  writer.define("POSITION", writer.input(position));
  if (width == 4) {
    writer.set_vector_view(cache_operand);
    writer.set_vector_view(row_operand);
  }
  if (write) {
    const std::string coords[] = {"b", "h", "s", "d"};
    writer.add(formatted("uint row_at(uint b, uint h, uint s, uint d) {{ return {}; }}\n",
                         writer.offset(call.views[1], coords)));
  }
  return writer.finish("cache");
}

KernelSource generate_sort_merge(KernelWriter& writer) {
  const TemplateCall& call = writer.fused().call;
  define_sort(writer, true);
  writer.define("TILES", writer.number(ceil_div(call.inputs[0].shape[1], writer.spec().constant("TILE"))));
  writer.define("RUN", writer.number(attr(call, "run")));
  return writer.finish("sort_merge");
}

}  // namespace aeshna

// Scans and orders.
#include <algorithm>
#include <format>

#include "base/checked.h"
#include "base/fail.h"
#include "codegen/embedded_kernels.h"
#include "codegen/families.h"
#include "ir/device_types.h"
#include "ir/op.h"

namespace aeshna {
namespace {

/// "B0" of an input or a result.
std::string input_buffer(const TemplateCall& call, std::size_t i) { return std::format("B{}", call.input_operands.at(i)); }
std::string result_buffer(const TemplateCall& call, std::size_t i) { return std::format("B{}", call.result_operands.at(i)); }

void define_constants(KernelWriter& writer) {
  for (const auto& [name, value] : writer.spec().constants) writer.define(name, value);
}

std::int64_t attr(const TemplateCall& call, std::string_view name) { return call.attrs.get<std::int64_t>(name); }

/// The functions of another kernel file, before the template.
void include(KernelWriter& writer, std::string_view name) {
  const auto found = std::ranges::find(embedded_kernels(), name, &EmbeddedKernel::name);
  if (found == embedded_kernels().end()) fail(ErrorCode::Internal, "no kernel template named '{}' is embedded", name);
  writer.add(found->text);
}

/// What the two sorting kernels share: [rows, n] values, and indices if `carried`.
void define_sort(KernelWriter& writer, bool carried) {
  const TemplateCall& call = writer.fused().call;
  define_constants(writer);
  writer.define("DESCENDING", call.attrs.get<bool>("descending") ? 1 : 0);
  writer.define("N", writer.number(call.inputs[0].shape[1]));
  writer.define("X", input_buffer(call, 0));
  if (carried) writer.define("INDICES_IN", input_buffer(call, 1));
  writer.define("VALUES", result_buffer(call, 0));
  writer.define("INDICES", result_buffer(call, 1));
  include(writer, "sort_key");
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

  define_constants(writer);
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
  writer.define("X", input_buffer(call, 0));
  writer.define("Y", result_buffer(call, 0));
  if (offsets) writer.define("OFFSETS", input_buffer(call, 1));
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
  define_constants(writer);
  writer.define("T", glsl_type(compute_dtype(call.inputs[0].dtype)));
  writer.define("POINTS", writer.number(call.inputs[0].shape.elements()));
  writer.define("K", writer.number(call.inputs[0].shape[1]));
  writer.define("N", writer.number(n));
  writer.define("SEGMENTS", writer.number(ceil_div(n, writer.spec().constant("SEGMENT"))));
  writer.define("X", input_buffer(call, 0));
  writer.define("INDICES", input_buffer(call, 1));
  writer.define("Y", result_buffer(call, 0));
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
  define_constants(writer);
  writer.define("RING", call.attrs.get<bool>("ring") ? 1 : 0);
  writer.define("SCALAR", call.inputs[position].shape.rank() == 0 ? 1 : 0);
  writer.define("T", glsl_type(compute_dtype(call.inputs[0].dtype), static_cast<int>(width)));
  writer.define("POINTS", writer.number(rows.elements() / width));
  writer.define("HEADS", writer.number(rows[1]));
  writer.define("ROWS", writer.number(rows[2]));
  writer.define("CAPACITY", writer.number(cache[2]));
  writer.define("QUADS", writer.number(rows[3] / width));
  writer.define("CACHE", std::format("B{}", cache_operand));
  writer.define("ROW_DATA", std::format("B{}", row_operand));
  writer.define("POSITION", input_buffer(call, position));
  if (width == 4) {
    writer.set_vector_view(cache_operand);
    writer.set_vector_view(row_operand);
  }
  if (write) {
    const std::string coords[] = {"b", "h", "s", "d"};
    writer.add(std::format("uint row_at(uint b, uint h, uint s, uint d) {{ return {}; }}\n", writer.offset(call.views[1], coords)));
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

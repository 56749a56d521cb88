// Kernels behind scatter: sorting keys, and adding runs of equal keys to their destinations.

#include "base/checked.h"
#include "base/format.h"
#include "codegen/families.h"
#include "ir/device_types.h"

namespace aeshna {
namespace {

void radix(KernelWriter& writer) {
  writer.define_constants();
  const std::int64_t items = writer.fused().call.inputs[0].shape[0];
  writer.define("ITEMS", writer.number(items));
  writer.define("BLOCKS",
                writer.number(ceil_div(items, writer.spec().constant("THREADS") * writer.spec().constant("EACH"))));
  writer.define("SHIFT", writer.number(writer.fused().call.attrs.get<std::int64_t>("shift")));
  writer.define("KEYS", writer.input(0));
}

/// What runs and joins share: the numbers of the chunks, and vectors of columns.
void chunks(KernelWriter& writer, std::int64_t items) {
  const TemplateCall& call = writer.fused().call;
  const Shape& x = call.results[0].shape;
  const std::int64_t width = writer.spec().constant("WIDTH"), chunk = writer.spec().constant("CHUNK");
  writer.define_constants("CHUNK");
  writer.define("T", buffer_type(compute_dtype(call.results[0].dtype), static_cast<int>(width)));
  if (width == 4) {
    writer.set_vector_view(call.input_operands[1]);
    for (const std::uint32_t operand : call.result_operands) writer.set_vector_view(operand);
  }
  writer.define("ITEMS", writer.number(items));
  writer.define("OUTER", writer.number(x[0]));
  writer.define("COLUMNS", writer.number(x[3] / width));
  writer.define("ROWS", writer.number(x[1] * x[2]));
  writer.define("CHUNK", writer.number(chunk));
  writer.define("CHUNKS", writer.number(ceil_div(items, chunk)));
  writer.define("TARGET", writer.result(0));
}

}  // namespace

KernelSource generate_index_order(KernelWriter& writer) {
  writer.define_constants();
  writer.define("ITEMS", writer.number(writer.fused().call.inputs[0].shape[0]));
  writer.define("KEYS", writer.input(0));
  writer.define("ORDER", writer.result(0));
  writer.define("SORTED", writer.result(1));
  return writer.finish("index_order");
}

KernelSource generate_radix_offsets(KernelWriter& writer) {
  radix(writer);
  writer.define("OFFSETS", writer.result(0));
  writer.set_workspace_type("uint");
  return writer.finish("radix_offsets");
}

KernelSource generate_radix_move(KernelWriter& writer) {
  radix(writer);
  writer.define("VALUES", writer.input(1));
  writer.define("OFFSETS", writer.input(2));
  writer.define("MOVED_KEYS", writer.result(0));
  writer.define("MOVED_VALUES", writer.result(1));
  return writer.finish("radix_move");
}

KernelSource generate_scatter_runs(KernelWriter& writer) {
  const TemplateCall& call = writer.fused().call;
  const Shape& u = call.inputs[1].shape;
  const std::int64_t width = writer.spec().constant("WIDTH");
  chunks(writer, call.inputs[3].shape[0]);
  writer.define("PLACES", writer.input(2));
  writer.define("SORTED", writer.input(3));
  writer.define("PARTIAL", call.results.size() > 1 ? 1 : 0);
  if (call.results.size() > 1) writer.define("PARTS", writer.result(1));

  // Where update (outer, item, column) lies: a lane and a place in it, or one number where the view is regular.
  const Access& view = call.views[1];
  const auto scaled = [&](std::string_view what, std::int64_t stride) {
    return formatted("{} * {}", what, writer.number(stride));
  };
  std::string index = writer.number(view.offset / width);
  if (u[0] > 1) index += " + " + scaled("outer", view.strides[0] / width);
  if (u[1] == 1 || view.strides[1] == view.strides[2] * u[2]) {
    index += " + " + scaled("item", view.strides[2] / width);
  } else {
    const std::string count = writer.number(u[2]);
    index += formatted(" + {} + {}", scaled(formatted("(item / {})", count), view.strides[1] / width),
                       scaled(formatted("(item % {})", count), view.strides[2] / width));
  }
  index += " + " + (width == 4 ? std::string("column") : scaled("column", view.strides[3]));
  writer.add(formatted("T update(uint outer, uint item, uint column) {{ return {}[{}]; }}\n", writer.input(1), index));
  return writer.finish("scatter_runs");
}

KernelSource generate_scatter_joins(KernelWriter& writer) {
  chunks(writer, writer.fused().call.inputs[2].shape[0]);
  writer.define("PARTS", writer.input(1));
  writer.define("SORTED", writer.input(2));
  return writer.finish("scatter_joins");
}

}  // namespace aeshna

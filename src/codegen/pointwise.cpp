// Pointwise kernels: the body at every point of the space, or at every fourth with 4-vectors.
#include <numeric>

#include "base/format.h"
#include "codegen/families.h"
#include "ir/op.h"

namespace aeshna {

KernelSource generate_pointwise(KernelWriter& writer) {
  const FusedKernel& kernel = writer.fused();
  const int width = static_cast<int>(writer.spec().constant("WIDTH"));
  const std::int64_t runs = writer.spec().constant("RUNS");
  std::vector<std::int64_t> extents = kernel.space;
  if (width == 4) extents.back() /= 4;

  Site site{
      .coords = {}, .width = width, .vector_dim = static_cast<std::uint32_t>(extents.empty() ? 0 : extents.size() - 1)};
  for (std::size_t d = 0; d < extents.size(); ++d) site.coords.push_back(formatted("c{}", d));
  std::string text = "void compute(uint point) {\n";
  if (width == 4) {
    writer.use_vector_views(kernel.body, site.vector_dim);
    std::vector<std::string> names = site.coords;
    names.back() = "quad";
    text += writer.split_index("point", extents, names, site.indent);
    text += formatted("{}uint {} = quad * 4u;\n", site.indent, site.coords.back());
  } else {
    text += writer.split_index("point", extents, site.coords, site.indent);
  }
  std::vector<std::uint32_t> all(kernel.body.stores.size());
  std::iota(all.begin(), all.end(), 0u);
  text += writer.stores(kernel.body, site, all);
  writer.add(text + "}\n");

  writer.define("POINTS", writer.number(points_of(extents)));
  // Heavy bodies would only take long to compile.
  int cost = 0;
  for (const Instr& instr : kernel.body.instrs) {
    if (instr.kind == Instr::Kind::Op) cost += instr.op->pointwise.cost;
  }
  writer.define("UNROLL", cost < 8 ? "unroll" : "dont_unroll");
  writer.define("RUNS", runs <= 4 ? formatted("{}u", runs) : writer.number(runs));
  return writer.finish("pointwise");
}

}  // namespace aeshna

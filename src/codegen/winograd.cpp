// Winograd's transforms.
#include <cmath>

#include "base/format.h"
#include "codegen/families.h"
#include "ir/winograd.h"

namespace aeshna {

KernelSource generate_winograd(KernelWriter& writer) {
  using Ints = std::vector<std::int64_t>;
  const TemplateCall& call = writer.fused().call;
  const WinogradTransform& t = *find_winograd_transform(call.attrs.get<std::string>("transform"));
  const Shape& image = t.to_planes ? call.inputs[0].shape : call.results[0].shape;
  const Shape& planes = t.to_planes ? call.results[0].shape : call.inputs[0].shape;
  const Ints& tiles = call.attrs.get<Ints>("tiles");
  writer.define_constants();
  writer.define("POINTS", writer.number(planes.elements() / planes[0]));
  writer.define("COUNT", writer.number(planes[3]));
  writer.define("TILES", writer.number(tiles[0] * tiles[1]));
  writer.define("TILES_X", writer.number(tiles[1]));
  writer.define("PER_GROUP", writer.number(image[2]));
  writer.define("CHANNELS", writer.number(image[1] * image[2]));
  writer.define("H", writer.number(image[3]));
  writer.define("W", writer.number(image[4]));
  if (t.to_planes) {
    const Ints& before = call.attrs.get<Ints>("before");
    writer.define("BEFORE_Y", writer.number(before[0]));
    writer.define("BEFORE_X", writer.number(before[1]));
    Access first = call.views[0];
    writer.define("STEP_Y", writer.number(first.strides[3]));
    writer.define("STEP_X", writer.number(first.strides[4]));
    first.strides[3] = first.strides[4] = 0;
    const std::string coords[] = {"n", "g", "c", "0u", "0u"};
    writer.add(formatted("uint image_at(uint n, uint g, uint c) {{ return {}; }}\n", writer.offset(first, coords)));
  }
  writer.define("X", writer.input(0));
  writer.define("Y", writer.result(0));
  std::string text = "void along(const float a[IN], out float b[OUT]) {\n";
  for (int i = 0; i < t.out; ++i) {
    std::string sum;
    for (int j = 0; j < t.in; ++j) {
      const double factor = t.matrix[i][j];
      if (factor == 0) continue;
      sum += factor < 0 ? " - " : sum.empty() ? "" : " + ";
      if (factor != 1 && factor != -1) sum += glsl_literal(DType::f32, std::abs(factor)) + " * ";
      sum += formatted("a[{}]", j);
    }
    text += formatted("  b[{}] = {};\n", i, sum);
  }
  writer.add(text + "}\n");
  return writer.finish("winograd");
}

}  // namespace aeshna

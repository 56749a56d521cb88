// Winograd's tiles. A 3x3 convolution becomes 16 matrix products, one for each place of a 4x4 tile: transforms of the image's
// windows and of the weight (winograd_planes), the products, and the transform of their results (winograd_image). The weight
// gradient is the transpose of it all.
#include "ops/winograd.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>

#include "base/checked.h"
#include "base/fail.h"
#include "base/format.h"
#include "ir/winograd.h"
#include "ops/families.h"
#include "ops/lower.h"

namespace aeshna {

namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kPlanes = 16;  ///< places of a 4x4 tile
constexpr std::int64_t kTile = 2;     ///< results of a tile along an axis: windows start this far apart
/// Of attrs: twice as much still fits the kernel's 32-bit arithmetic.
constexpr std::int64_t kLargestAttr = 1 << 29;

/// The transform of a node whose record maps in this direction; the operand must be f32.
const WinogradTransform& checked_transform(const InferContext& ctx, bool to_planes) {
  const std::string& name = ctx.attrs.get<std::string>("transform");
  const WinogradTransform* transform = find_winograd_transform(name);
  if (transform == nullptr || transform->to_planes != to_planes)
    ctx.fail(ErrorCode::InvalidArgument, formatted("has no transform '{}'", name));
  if (ctx.inputs[0].dtype != DType::f32)
    ctx.fail(ErrorCode::DTypeMismatch, formatted("is defined for f32, not for {}", dtype_name(ctx.inputs[0].dtype)));
  return *transform;
}

/// An attr of two numbers that a 32-bit index can be computed from; `lowest` 0 if none may be negative.
Ints two(const InferContext& ctx, std::string_view attr, std::int64_t lowest = 0) {
  const Ints& values = ctx.attrs.get<Ints>(attr);
  if (values.size() != 2 || std::ranges::any_of(values, [&](std::int64_t v) { return v < lowest || v > kLargestAttr; }))
    ctx.fail(ErrorCode::InvalidArgument, formatted("{} must be two numbers from {} to {}", attr, lowest, kLargestAttr));
  return values;
}

std::int64_t tile_count(const InferContext& ctx, std::int64_t images, const Ints& tiles) {
  return guarded(ctx, [&] {
    return checked_mul(checked_mul(images, tiles[0], "the number of tiles"), tiles[1], "the number of tiles");
  });
}

using Square = std::array<double, kPlanes>;  ///< row-major, of 2 x 2 to 4 x 4 elements

/// M s M^T for the matrix M of `t`.
Square transformed(const WinogradTransform& t, const Square& s) {
  Square rows{}, result{};
  for (int i = 0; i < t.out; ++i) {
    for (int j = 0; j < t.in; ++j) {
      for (int k = 0; k < t.in; ++k) rows[i * t.in + j] += t.matrix[i][k] * s[k * t.in + j];
    }
  }
  for (int i = 0; i < t.out; ++i) {
    for (int j = 0; j < t.out; ++j) {
      for (int k = 0; k < t.in; ++k) result[i * t.out + j] += t.matrix[j][k] * rows[i * t.in + k];
    }
  }
  return result;
}

/// f(channel, image, top, left, element of a plane) for every tile of [N, G, C, H, W]; channel counts those of all groups.
template <class F>
void for_each_tile(const Shape& image, const Ints& tiles, F f) {
  std::size_t point = 0;
  for (std::int64_t c = 0; c < image[1] * image[2]; ++c) {
    for (std::int64_t n = 0; n < image[0]; ++n) {
      for (std::int64_t y = 0; y < tiles[0]; ++y) {
        for (std::int64_t x = 0; x < tiles[1]; ++x) f(c, n, y * kTile, x * kTile, point++);
      }
    }
  }
}

/// The element of [N, G, C, H, W]; empty: outside.
std::optional<std::size_t> element(const Shape& image, std::int64_t channel, std::int64_t n, std::int64_t y,
                                   std::int64_t x) {
  if (y < 0 || y >= image[3] || x < 0 || x >= image[4]) return {};
  return static_cast<std::size_t>(((n * image[1] * image[2] + channel) * image[3] + y) * image[4] + x);
}

/// One thread for each tile of a channel.
std::vector<Candidate> lower_winograd(const FusedKernel& kernel, const Caps& caps) {
  AESHNA_CHECK(kernel.kind == FusedKernel::Kind::Template);
  const TemplateCall& call = kernel.call;
  const std::string& name = call.attrs.get<std::string>("transform");
  const WinogradTransform& t = *find_winograd_transform(name);
  const Shape& planes = t.to_planes ? call.results[0].shape : call.inputs[0].shape;
  const std::uint32_t threads = workgroup_threads(caps, 128);
  Candidate candidate;
  KernelSpec& spec = candidate.spec;
  spec.family = "winograd";
  spec.variant = name;
  spec.constants = {{"THREADS", threads}, {"IN", t.in}, {"OUT", t.out}, {"TO_PLANES", t.to_planes ? 1 : 0}};
  spec.local = {threads, 1, 1};
  spec.workgroups = ceil_div(static_cast<std::uint64_t>(planes.elements() / kPlanes), std::uint64_t{threads});
  spec.fused = std::make_shared<const FusedKernel>(kernel);
  spec.bytes = 4.0 * static_cast<double>(call.inputs[0].shape.elements() + call.results[0].shape.elements());
  candidate.rejected = template_obstacle(spec, caps);
  return {candidate};
}

OpDef record(std::string name, std::string doc) {
  OpDef op;
  op.name = std::move(name);
  op.doc = std::move(doc);
  op.kind = OpKind::Kernel;
  op.gradient = GradientKind::NotDifferentiable;  // expansions are made after differentiation
  op.lower = lower_winograd;
  return op;
}

OpDef winograd_planes_op() {
  OpDef op = record(
      "winograd_planes",
      "Windows of x [N, G, C, H, W], one every two elements from -before, transformed (attr transform: input, weight, "
      "output_gradient): [16, G, C, N * attr tiles].");
  op.recomputed = true;
  op.accepts_view = [](std::size_t, const Access&) { return true; };
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    checked_transform(ctx, true);
    const Shape& x = ctx.inputs[0].shape;
    two(ctx, "before", -kLargestAttr);
    const Ints tiles = two(ctx, "tiles");
    if (x.rank() != 5)
      ctx.fail(ErrorCode::ShapeMismatch, formatted("needs [N, G, C, H, W], not {}", ctx.inputs[0].to_string()));
    return {{DType::f32, Shape{kPlanes, x[1], x[2], tile_count(ctx, x[0], tiles)}}};
  };
  op.eval = [](const EvalContext& ctx) {
    const Attrs& attrs = ctx.node.attrs;
    const WinogradTransform& t = *find_winograd_transform(attrs.get<std::string>("transform"));
    const Ints& before = attrs.get<Ints>("before");
    const HostTensor& image = *ctx.inputs[0];
    auto& planes = ctx.results[0].data;
    for_each_tile(image.type.shape, attrs.get<Ints>("tiles"),
                  [&](std::int64_t c, std::int64_t n, std::int64_t top, std::int64_t left, std::size_t point) {
                    Square window{};
                    for (int i = 0; i < t.in * t.in; ++i) {
                      const auto at =
                          element(image.type.shape, c, n, top - before[0] + i / t.in, left - before[1] + i % t.in);
                      if (at) window[i] = image.data[*at];
                    }
                    const Square result = transformed(t, window);
                    for (std::size_t i = 0; i < kPlanes; ++i) planes[i * planes.size() / kPlanes + point] = result[i];
                  });
  };
  op.cases = [] {
    const auto one = [](Shape x, const char* transform, Ints before, Ints tiles) {
      return OpCase{.inputs = {f32_type(x)},
                    .attrs = {{"transform", std::string(transform)}, {"before", before}, {"tiles", tiles}},
                    .ranges = {},
                    .values = {},
                    .gradient = false};
    };
    return std::vector<OpCase>{one({2, 1, 3, 7, 5}, "input", {1, 1}, {4, 3}),
                               one({1, 2, 3, 4, 4}, "input", {0, 2}, {1, 3}),
                               one({3, 1, 2, 6, 6}, "input", {-1, 0}, {2, 2}),
                               one({1, 2, 35, 3, 3}, "weight", {0, 0}, {1, 1}),
                               one({2, 2, 3, 7, 5}, "output_gradient", {0, 0}, {4, 3}),
                               one({0, 1, 3, 7, 5}, "input", {1, 1}, {4, 3}),
                               one({1, 1, 300, 2, 2}, "output_gradient", {0, 0}, {1, 1})};
  };
  return op;
}

OpDef winograd_image_op() {
  OpDef op =
      record("winograd_image",
             "Planes [16, G, C, N * tiles], transformed (attr transform: output, weight_gradient), as squares side by "
             "side in [N, G, C, attr extents], what sticks out cut off; attrs batch (N), tiles.");
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    const WinogradTransform& t = checked_transform(ctx, false);
    const Shape& planes = ctx.inputs[0].shape;
    const Ints tiles = two(ctx, "tiles"), extents = two(ctx, "extents");
    const std::int64_t batch = ctx.attrs.get<std::int64_t>("batch");
    if (batch < 0) ctx.fail(ErrorCode::InvalidArgument, formatted("a batch of {}", batch));
    const std::int64_t count = tile_count(ctx, batch, tiles);
    if (planes.rank() != 4 || planes[0] != kPlanes || planes[3] != count)
      ctx.fail(ErrorCode::ShapeMismatch, formatted("needs [16, G, C, {}], not {}", count, ctx.inputs[0].to_string()));
    for (std::size_t i = 0; i < 2; ++i) {  // every element in exactly one square
      const std::int64_t most = (tiles[i] - 1) * kTile + t.out;
      if (extents[i] > most || extents[i] <= most - t.out || (t.out != kTile && tiles[i] != 1))
        ctx.fail(ErrorCode::ShapeMismatch, formatted("{} tiles do not make {} elements", tiles[i], extents[i]));
    }
    return {{DType::f32, Shape{batch, planes[1], planes[2], extents[0], extents[1]}}};
  };
  op.eval = [](const EvalContext& ctx) {
    const Attrs& attrs = ctx.node.attrs;
    const WinogradTransform& t = *find_winograd_transform(attrs.get<std::string>("transform"));
    const auto& planes = ctx.inputs[0]->data;
    HostTensor& image = ctx.results[0];
    for_each_tile(image.type.shape, attrs.get<Ints>("tiles"),
                  [&](std::int64_t c, std::int64_t n, std::int64_t top, std::int64_t left, std::size_t point) {
                    Square square{};
                    for (std::size_t i = 0; i < kPlanes; ++i) square[i] = planes[i * planes.size() / kPlanes + point];
                    const Square result = transformed(t, square);
                    for (int i = 0; i < t.out * t.out; ++i) {
                      const auto at = element(image.type.shape, c, n, top + i / t.out, left + i % t.out);
                      if (at) image.data[*at] = result[i];
                    }
                  });
  };
  op.cases = [] {
    const auto one = [](std::int64_t groups, std::int64_t channels, const char* transform, std::int64_t batch,
                        Ints tiles, Ints extents) {
      OpCase c{
          .inputs = {f32_type({kPlanes, groups, channels, batch * tiles[0] * tiles[1]})},
          .attrs = {{"transform", std::string(transform)}, {"batch", batch}, {"tiles", tiles}, {"extents", extents}},
          .ranges = {},
          .values = {},
          .gradient = false};
      c.atol *= 4;
      return c;
    };
    return std::vector<OpCase>{one(1, 3, "output", 2, {4, 3}, {7, 5}), one(2, 3, "output", 1, {2, 2}, {4, 4}),
                               one(2, 35, "weight_gradient", 1, {1, 1}, {3, 3}), one(1, 3, "output", 0, {4, 3}, {8, 6}),
                               one(1, 300, "output", 1, {1, 1}, {1, 2})};
  };
  return op;
}

Expr planes_of(const Expr& image, std::string_view transform, const Ints& before, const Ints& tiles) {
  return apply("winograd_planes", {image},
               {{"transform", std::string(transform)}, {"before", before}, {"tiles", tiles}});
}

Expr image_of(const Expr& planes, std::string_view transform, std::int64_t batch, const Ints& tiles,
              const Ints& extents) {
  return apply("winograd_image", {planes},
               {{"transform", std::string(transform)}, {"batch", batch}, {"tiles", tiles}, {"extents", extents}});
}

/// The products of a convolution: N images, of each G groups of Co x Ci channels, at these positions of y.
struct Work {
  std::int64_t images, groups, outputs, inputs;
  Ints positions;

  Ints tiles() const { return {ceil_div(positions[0], kTile), ceil_div(positions[1], kTile)}; }

  /// Whether the tiles are faster than the definition: they take fewer multiplications, but write and read the planes, and are three
  /// kernels more; bias and activation, which the definition's product has in its epilogue, are a fourth. In multiply-adds, fitted to
  /// the times in docs/performance.md, where the convolution is bare.
  bool pays() const {
    constexpr double kProducts = 0.7;  // plain products run at a higher rate than implicit ones
    constexpr double kElement = 12;    // written to or read from memory
    constexpr double kKernels = 8e7;
    // Elements of one tensor: 128 MiB, what every device binds. The definition can be split by rows, kernels of their own cannot.
    constexpr double kLargest = 1 << 25;
    const auto number = [](std::int64_t v) { return static_cast<double>(v); };
    const double points = number(images) * number(tiles()[0]) * number(tiles()[1]);
    const double places = number(images) * number(positions[0]) * number(positions[1]);
    const double in = number(groups * inputs), out = number(groups * outputs),
                 pairs = number(groups) * number(inputs) * number(outputs);
    const double elements = kPlanes * (2 * points * (in + out) + pairs) + 9 * pairs + 2 * places * out;
    return kPlanes * std::max(points * std::max(in, out), pairs) <= kLargest &&
           kProducts * kPlanes * points * pairs + kElement * elements + kKernels < 9 * places * pairs;
  }
};

}  // namespace

std::optional<Expr> winograd_product(const Expr& w, const Expr& x, const Ints& before, const Ints& out) {
  const Shape ws = w.shape(), xs = x.shape();
  if (x.value.dtype() != DType::f32 || ws.rank() != 5 || ws[3] != 3 || ws[4] != 3) return {};
  const Work work{xs[0], ws[0], ws[1], ws[2], out};
  if (!work.pays()) return {};
  // Input channels take the place of the batch; so a flipped or transposed weight is read as it lies.
  const Expr u = planes_of(apply("permute", {w}, {{"axes", Ints{2, 0, 1, 3, 4}}}), "weight", {0, 0}, {1, 1});
  const Expr v = planes_of(x, "input", before, work.tiles());
  const Expr m = apply("matmul", {u, v}, {{"transpose_a", false}, {"transpose_b", false}});
  return image_of(m, "output", xs[0], work.tiles(), out);
}

std::optional<Expr> winograd_weight_product(const Expr& dy, const Expr& x, const Ints& before, const Ints& kernel) {
  const Shape ys = dy.shape(), xs = x.shape();
  if (x.value.dtype() != DType::f32 || kernel != Ints{3, 3}) return {};
  const Work work{ys[0], ys[1], ys[2], xs[2], {ys[3], ys[4]}};
  if (!work.pays()) return {};
  const Expr m = apply(
      "matmul", {planes_of(dy, "output_gradient", {0, 0}, work.tiles()), planes_of(x, "input", before, work.tiles())},
      {{"transpose_a", false}, {"transpose_b", true}});
  const Expr w = image_of(reshape_to(m, Shape{kPlanes, ys[1], ys[2] * xs[2], 1}), "weight_gradient", 1, {1, 1}, {3, 3});
  return reshape_to(w, Shape{ys[1], ys[2], xs[2], 3, 3});
}

std::vector<OpDef> winograd_ops() { return {winograd_planes_op(), winograd_image_op()}; }

}  // namespace aeshna

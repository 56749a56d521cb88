// Winograd's tiles. A 3x3 convolution becomes 16 matrix products, one for each place of a 4x4 tile: transforms of the image's
// windows and of the weight (winograd_planes), the products, and the transform of their results (winograd_image). The weight gradient
// is the transpose of it all.
#include "ops/winograd.h"

#include <algorithm>
#include <memory>
#include <string>

#include "base/checked.h"
#include "base/fail.h"
#include "base/format.h"
#include "ir/winograd.h"
#include "ops/families.h"
#include "ops/order.h"

namespace aeshna {

namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kPlanes = 16;  ///< places of a 4x4 tile
constexpr std::int64_t kMost = 1 << 29;
constexpr std::int64_t kTile = 2;  ///< results of a tile along an axis: windows start this far apart

/// The transform of a node whose record maps in this direction.
const WinogradTransform& transform_of(const InferContext& ctx, bool to_planes) {
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
  if (values.size() != 2 || std::ranges::any_of(values, [&](std::int64_t v) { return v < lowest || v > kMost; }))
    ctx.fail(ErrorCode::InvalidArgument, formatted("{} must be two numbers from {} to {}", attr, lowest, kMost));
  return values;
}

std::int64_t tile_count(const InferContext& ctx, std::int64_t images, const Ints& tiles) {
  return guarded(ctx, [&] {
    return checked_mul(checked_mul(images, tiles[0], "the number of tiles"), tiles[1], "the number of tiles");
  });
}

/// squares[i] of `in` x `in` -> `out` x `out`.
std::array<double, kPlanes> transformed(const WinogradTransform& t, const std::array<double, kPlanes>& square) {
  std::array<double, kPlanes> rows{}, result{};
  for (int i = 0; i < t.out; ++i) {
    for (int j = 0; j < t.in; ++j) {
      for (int k = 0; k < t.in; ++k) rows[i * t.in + j] += t.matrix[i][k] * square[k * t.in + j];
    }
  }
  for (int i = 0; i < t.out; ++i) {
    for (int j = 0; j < t.out; ++j) {
      for (int k = 0; k < t.in; ++k) result[i * t.out + j] += t.matrix[j][k] * rows[i * t.in + k];
    }
  }
  return result;
}

/// f(element of the image or -1 outside, place in the square, element of plane 0) for every tile. `image` is [N, G, C, H, W].
template <class F>
void for_each_place(const Shape& image, const Ints& tiles, const Ints& first, int side, F f) {
  const std::int64_t lines = image[1] * image[2], count = image[0] * tiles[0] * tiles[1];
  for (std::int64_t line = 0; line < lines; ++line) {
    for (std::int64_t t = 0; t < count; ++t) {
      const std::int64_t n = t / (tiles[0] * tiles[1]), h = t / tiles[1] % tiles[0] * kTile + first[0],
                         w = t % tiles[1] * kTile + first[1];
      for (int i = 0; i < side * side; ++i) {
        const std::int64_t y = h + i / side, x = w + i % side;
        const bool inside = y >= 0 && y < image[3] && x >= 0 && x < image[4];
        f(inside ? ((n * lines + line) * image[3] + y) * image[4] + x : -1, i, line * count + t);
      }
    }
  }
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
  op.enlarges = true;
  op.accepts_view = [](std::size_t, const Access&) { return true; };
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    transform_of(ctx, true);
    const Shape& x = ctx.inputs[0].shape;
    two(ctx, "before", -kMost);
    const Ints tiles = two(ctx, "tiles");
    if (x.rank() != 5)
      ctx.fail(ErrorCode::ShapeMismatch, formatted("needs [N, G, C, H, W], not {}", ctx.inputs[0].to_string()));
    return {{DType::f32, Shape{kPlanes, x[1], x[2], tile_count(ctx, x[0], tiles)}}};
  };
  op.eval = [](const EvalContext& ctx) {
    const Attrs& attrs = ctx.node.attrs;
    const WinogradTransform& t = *find_winograd_transform(attrs.get<std::string>("transform"));
    Ints first = attrs.get<Ints>("before");
    for (std::int64_t& f : first) f = -f;
    const std::size_t plane = ctx.results[0].data.size() / kPlanes;
    std::array<double, kPlanes> square{};
    for_each_place(ctx.inputs[0]->type.shape, attrs.get<Ints>("tiles"), first, t.in,
                   [&](std::int64_t at, int place, std::int64_t point) {
                     square[place] = at < 0 ? 0 : ctx.inputs[0]->data[static_cast<std::size_t>(at)];
                     if (place + 1 < t.in * t.in) return;
                     const auto planes = transformed(t, square);
                     for (std::size_t i = 0; i < kPlanes; ++i)
                       ctx.results[0].data[i * plane + static_cast<std::size_t>(point)] = planes[i];
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
  OpDef op = record("winograd_image",
                    "The inverse direction: planes [16, G, C, N * tiles], transformed (attr transform: output, "
                    "weight_gradient), as squares "
                    "side by side in [N, G, C, attr extents], what sticks out cut off; attrs batch (N), tiles.");
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    const WinogradTransform& t = transform_of(ctx, false);
    const Shape& planes = ctx.inputs[0].shape;
    const Ints tiles = two(ctx, "tiles"), extents = two(ctx, "extents");
    const std::int64_t batch = ctx.attrs.get<std::int64_t>("batch");
    if (batch < 0) ctx.fail(ErrorCode::InvalidArgument, formatted("a batch of {}", batch));
    const std::int64_t count = tile_count(ctx, batch, tiles);
    if (planes.rank() != 4 || planes[0] != kPlanes || planes[3] != count)
      ctx.fail(ErrorCode::ShapeMismatch, formatted("needs [16, G, C, {}], not {}", count, ctx.inputs[0].to_string()));
    for (int i = 0; i < 2; ++i) {  // every element in exactly one square
      const std::int64_t most = t.out == kTile ? kTile * tiles[i] : tiles[i] == 1 ? t.out : 0;
      if (extents[i] > most || extents[i] <= most - t.out)
        ctx.fail(ErrorCode::ShapeMismatch, formatted("{} tiles do not make {} elements", tiles[i], extents[i]));
    }
    return {{DType::f32, Shape{batch, planes[1], planes[2], extents[0], extents[1]}}};
  };
  op.eval = [](const EvalContext& ctx) {
    const Attrs& attrs = ctx.node.attrs;
    const WinogradTransform& t = *find_winograd_transform(attrs.get<std::string>("transform"));
    const std::size_t plane = ctx.inputs[0]->data.size() / kPlanes;
    std::array<double, kPlanes> square{}, result{};
    for_each_place(ctx.results[0].type.shape, attrs.get<Ints>("tiles"), {0, 0}, t.out,
                   [&](std::int64_t at, int place, std::int64_t point) {
                     if (place == 0) {
                       for (std::size_t i = 0; i < kPlanes; ++i)
                         square[i] = ctx.inputs[0]->data[i * plane + static_cast<std::size_t>(point)];
                       result = transformed(t, square);
                     }
                     if (at >= 0)
                       ctx.results[0].data[static_cast<std::size_t>(at)] = result[static_cast<std::size_t>(place)];
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
};

/// Whether the tiles are faster than the definition: fewer multiplications, but the planes go through memory and three launches
/// more. In multiply-adds, fitted to the times of docs/performance.md ("Winograd").
bool pays(const Work& work) {
  constexpr double kProducts = 0.7;  ///< plain products run at a higher rate than implicit ones
  constexpr double kElement = 12;    ///< per element written to or read from memory
  constexpr double kLaunches = 6e7;
  constexpr double kLargest =
      1 << 28;  ///< elements of a tensor of planes: it must not be what decides how much memory is needed
  const Ints tiles = work.tiles();
  const double channels = static_cast<double>(work.groups) * static_cast<double>(work.outputs + work.inputs);
  const double pairs =
      static_cast<double>(work.groups) * static_cast<double>(work.outputs) * static_cast<double>(work.inputs);
  const double count = static_cast<double>(work.images) * static_cast<double>(tiles[0]) * static_cast<double>(tiles[1]);
  const double positions = static_cast<double>(work.images) * static_cast<double>(work.positions[0]) *
                           static_cast<double>(work.positions[1]);
  const double planes = kPlanes * channels * count, weights = (kPlanes + 9) * pairs;
  return planes < kLargest &&
         kProducts * kPlanes * pairs * count + kElement * (2 * planes + weights) + kLaunches < 9 * pairs * positions;
}

}  // namespace

std::optional<Expr> winograd_product(const Expr& w, const Expr& x, const Ints& before, const Ints& out) {
  const Shape ws = w.shape(), xs = x.shape();
  if (x.value.dtype() != DType::f32 || ws.rank() != 5 || ws[3] != 3 || ws[4] != 3) return {};
  const Work work{xs[0], ws[0], ws[1], ws[2], out};
  if (!pays(work)) return {};
  // Rows and columns of the weight stay apart, so that a flipped or transposed one is read as it lies.
  const Expr u = reshape_to(planes_of(reshape_to(w, Shape{1, ws[0] * ws[1], ws[2], 3, 3}), "weight", {0, 0}, {1, 1}),
                            Shape{kPlanes, ws[0], ws[1], ws[2]});
  const Expr v = planes_of(x, "input", before, work.tiles());
  const Expr m = apply("matmul", {u, v}, {{"transpose_a", false}, {"transpose_b", false}});
  return image_of(m, "output", xs[0], work.tiles(), out);
}

std::optional<Expr> winograd_weight_product(const Expr& dy, const Expr& x, const Ints& before, const Ints& kernel) {
  const Shape ys = dy.shape(), xs = x.shape();
  if (x.value.dtype() != DType::f32 || kernel != Ints{3, 3}) return {};
  const Work work{ys[0], ys[1], ys[2], xs[2], {ys[3], ys[4]}};
  if (!pays(work)) return {};
  const Expr m = apply(
      "matmul", {planes_of(dy, "output_gradient", {0, 0}, work.tiles()), planes_of(x, "input", before, work.tiles())},
      {{"transpose_a", false}, {"transpose_b", true}});
  const Expr w = image_of(reshape_to(m, Shape{kPlanes, ys[1], ys[2] * xs[2], 1}), "weight_gradient", 1, {1, 1}, {3, 3});
  return reshape_to(w, Shape{ys[1], ys[2], xs[2], 3, 3});
}

std::vector<OpDef> winograd_ops() { return {winograd_planes_op(), winograd_image_op()}; }

}  // namespace aeshna

// Rotary position embedding: pairs of a row's elements turned by an angle that grows with the row's position (arXiv 2104.09864).
// y = x cos + swapped(x) (-sin, sin), with tables from double arithmetic, so that distant positions are as exact as near ones.
#include "ops/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/format.h"
#include "ir/device_types.h"
#include "ops/build.h"
#include "ops/families.h"

namespace aeshna {

namespace {

using Ints = std::vector<std::int64_t>;
constexpr std::int64_t kMaxPosition = std::int64_t{1} << 30;

/// What the node says.
struct Rotation {
  const std::vector<double>& frequencies;
  double magnitude;
  bool interleaved;
  std::int64_t offset, max_positions;

  explicit Rotation(const Attrs& attrs)
      : frequencies(attrs.get<std::vector<double>>("frequencies")),
        magnitude(attrs.get<double>("magnitude")),
        interleaved(attrs.get<bool>("interleaved")),
        offset(attrs.get<std::int64_t>("offset")),
        max_positions(attrs.get<std::int64_t>("max_positions")) {}

  std::int64_t pairs() const { return std::ssize(frequencies); }
  /// As the tables hold it.
  double cosine(std::int64_t position, std::int64_t pair) const {
    return static_cast<float>(magnitude * std::cos(angle(position, pair)));
  }
  double sine(std::int64_t position, std::int64_t pair) const {
    return static_cast<float>(magnitude * std::sin(angle(position, pair)));
  }
  double angle(std::int64_t position, std::int64_t pair) const {
    return static_cast<double>(position) * frequencies[static_cast<std::size_t>(pair)];
  }
};

std::vector<TensorType> infer(const InferContext& ctx) {
  const TensorType& x = ctx.inputs[0];
  const int rank = x.shape.rank();
  if (x.dtype != DType::f32 && !is_half(x.dtype))
    ctx.fail(ErrorCode::DTypeMismatch, formatted("is not defined for {}", dtype_name(x.dtype)));
  if (rank < 2 || rank >= Shape::kMaxRank)
    ctx.fail(ErrorCode::ShapeMismatch,
             formatted("needs rows along the last two of 2 to {} axes: {}", Shape::kMaxRank - 1, x.to_string()));
  const Rotation r(ctx.attrs);
  if (r.pairs() < 1 || 2 * r.pairs() > x.shape[rank - 1]) {
    ctx.fail(ErrorCode::ShapeMismatch,
             formatted("{} rotated elements do not fit rows of {}", 2 * r.pairs(), x.shape[rank - 1]));
  }
  if (!std::isfinite(r.magnitude) || !std::ranges::all_of(r.frequencies, [](double f) { return std::isfinite(f); }))
    ctx.fail(ErrorCode::InvalidArgument, "attrs frequencies and magnitude must be finite");
  if (ctx.inputs.size() == 1) {
    if (r.max_positions != 0) ctx.fail(ErrorCode::InvalidArgument, "attr max_positions needs positions");
    if (std::abs(r.offset) >= kMaxPosition)
      ctx.fail(ErrorCode::InvalidArgument, formatted("attr offset is {}", r.offset));
    return {x};
  }
  const TensorType& positions = ctx.inputs[1];
  if (positions.dtype != DType::i32)
    ctx.fail(ErrorCode::DTypeMismatch, formatted("positions must be i32, not {}", dtype_name(positions.dtype)));
  const std::int64_t rows = x.shape[rank - 2];
  const bool batched = rank >= 3 && positions.shape == Shape{x.shape[0], rows};
  if (!batched && positions.shape != Shape{rows}) {
    ctx.fail(ErrorCode::ShapeMismatch,
             formatted("positions of {} must be [{}], or with the first axis [{}, {}], not {}", x.to_string(), rows,
                       x.shape[0], rows, positions.shape.to_string()));
  }
  if (r.max_positions < 1 || r.max_positions >= kMaxPosition)
    ctx.fail(ErrorCode::InvalidArgument,
             formatted("attr max_positions is {}; positions need a table", r.max_positions));
  if (r.offset != 0) ctx.fail(ErrorCode::InvalidArgument, "attr offset does not go with positions");
  return {x};
}

void eval(const EvalContext& ctx) {
  const Rotation r(ctx.node.attrs);
  const Shape& shape = ctx.inputs[0]->type.shape;
  const std::int64_t rows = shape[shape.rank() - 2], width = shape[shape.rank() - 1];
  auto& y = ctx.results[0].data;
  y = ctx.inputs[0]->data;
  for (std::int64_t row = 0; row < shape.elements() / width; ++row) {
    std::int64_t position = r.offset + row % rows;
    if (ctx.inputs.size() == 2) {
      const HostTensor& positions = *ctx.inputs[1];
      const std::int64_t batch = positions.type.shape.rank() == 2 ? row / (shape.elements() / width / shape[0]) : 0;
      position = static_cast<std::int64_t>(positions.data[static_cast<std::size_t>(batch * rows + row % rows)]);
      position = std::clamp<std::int64_t>(position, 0, r.max_positions - 1);
    }
    for (std::int64_t i = 0; i < r.pairs(); ++i) {
      double& a = y[static_cast<std::size_t>(row * width + (r.interleaved ? 2 * i : i))];
      double& b = y[static_cast<std::size_t>(row * width + (r.interleaved ? 2 * i + 1 : i + r.pairs()))];
      const double c = r.cosine(position, i), s = r.sine(position, i), first = a;
      a = first * c - b * s;
      b = b * c + first * s;
    }
  }
}

/// Constant tables [positions, pairs] of cosines (twice side by side, if asked for) and [positions, rotated elements] of sines
/// with the sign of their element.
std::pair<Expr, Expr> tables(const BuildContext& c, const Rotation& r, std::int64_t first, std::int64_t count, bool twice) {
  const std::int64_t pairs = r.pairs(), width = twice ? 2 * pairs : pairs;
  std::vector<double> cosines(static_cast<std::size_t>(count * width)), sines(static_cast<std::size_t>(count * pairs * 2));
  for (std::int64_t p = 0; p < count; ++p) {
    for (std::int64_t i = 0; i < pairs; ++i) {
      cosines[static_cast<std::size_t>(p * width + i)] = r.cosine(first + p, i);
      if (twice) cosines[static_cast<std::size_t>(p * width + pairs + i)] = r.cosine(first + p, i);
      const double s = r.sine(first + p, i);
      sines[static_cast<std::size_t>(p * 2 * pairs + (r.interleaved ? 2 * i : i))] = -s;
      sines[static_cast<std::size_t>(p * 2 * pairs + (r.interleaved ? 2 * i + 1 : i + pairs))] = s;
    }
  }
  const auto constant = [&](std::int64_t columns, const std::vector<double>& values) {
    return Expr(c, c.add("constant", {}, {{"value", Literal::from_doubles(f32_type({count, columns}), values)}}));
  };
  return {constant(width, cosines), constant(2 * pairs, sines)};
}

std::vector<Value> expand_rope(const BuildContext& c, std::span<const Value> in) {
  const Rotation r(c.like.attrs);
  const Expr x(c, in[0]);
  const Shape shape = x.shape();
  const int rank = shape.rank();
  const std::int64_t rows = shape[rank - 2], width = shape[rank - 1], pairs = r.pairs(), rotated = 2 * pairs;
  if (shape.elements() == 0) return {in[0]};

  const bool part = rotated < width;
  auto [cosine, sine] = tables(c, r, in.size() == 2 ? 0 : r.offset, in.size() == 2 ? r.max_positions : rows, part && !r.interleaved);
  Ints lead(static_cast<std::size_t>(rank - 2), 1);  // the tables' outer axes
  if (in.size() == 2) {
    const Expr positions(c, in[1]);
    cosine = apply("gather", {cosine, positions}, {{"axis", std::int64_t{0}}});
    sine = apply("gather", {sine, positions}, {{"axis", std::int64_t{0}}});
    if (in[1].shape().rank() == 2) lead[0] = shape[0];
  }
  const auto last = static_cast<std::size_t>(rank - 1);
  const auto joined = [&](const Expr& a, const Expr& b) { return apply("concat", {a, b}, {{"axis", std::int64_t{rank - 1}}}); };

  if (part && !r.interleaved) {  // no reshapes: one index map for each operand
    Ints dims = lead;
    dims.insert(dims.end(), {rows, rotated});
    const Expr first = slice_axis(x, last, 0, pairs), second = slice_axis(x, last, pairs, rotated);
    const Expr turned = slice_axis(x, last, 0, rotated) * reshape_to(cosine, Shape(dims)) + joined(second, first) * reshape_to(sine, Shape(dims));
    return {joined(turned, slice_axis(x, last, rotated, width)).value};
  }

  // An axis of pairs, along which a flip swaps.
  const auto over_pairs = [&](Ints dims, std::int64_t in_pair) {
    dims.push_back(rows);
    dims.push_back(r.interleaved ? pairs : in_pair);
    dims.push_back(r.interleaved ? in_pair : pairs);
    return Shape(dims);
  };
  const Ints outer(shape.begin(), shape.begin() + (rank - 2));
  const Expr pair_wise = reshape_to(part ? slice_axis(x, last, 0, rotated) : x, over_pairs(outer, 2));
  const Expr swapped = apply("flip", {pair_wise}, {{"axes", Ints{r.interleaved ? rank : rank - 1}}});
  const Expr turned = reshape_to(pair_wise * reshape_to(cosine, over_pairs(lead, 1)) + swapped * reshape_to(sine, over_pairs(lead, 2)),
                                 shape.with(rank - 1, rotated));
  return {(part ? joined(turned, slice_axis(x, last, rotated, width)) : turned).value};
}

/// The rotation by the opposite angles.
std::vector<Value> vjp(const BuildContext& c, std::span<const Value> in, std::span<const Value>, std::span<const Value> dys) {
  Attrs attrs = c.like.attrs;
  std::vector<double> frequencies = attrs.get<std::vector<double>>("frequencies");
  for (double& f : frequencies) f = -f;
  attrs.set("frequencies", std::move(frequencies));
  std::vector<Value> operands(in.begin(), in.end());
  operands[0] = dys[0];
  std::vector<Value> gradients(in.size());
  gradients[0] = c.add("rope", operands, attrs);
  return gradients;
}

std::vector<OpCase> cases() {
  const auto one = [](Shape shape, std::int64_t pairs, bool interleaved, std::int64_t offset = 0, double magnitude = 1) {
    std::vector<double> frequencies;
    for (std::int64_t i = 0; i < pairs; ++i)
      frequencies.push_back(std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(pairs)));
    return OpCase{.inputs = {f32_type(shape)},
                  .attrs = {{"frequencies", frequencies},
                            {"magnitude", magnitude},
                            {"interleaved", interleaved},
                            {"offset", offset},
                            {"max_positions", std::int64_t{0}}},
                  .ranges = {},
                  .values = {}};
  };
  std::vector<OpCase> cases = {one({2, 3, 5, 8}, 4, false),      one({2, 3, 5, 8}, 4, true), one({7, 10}, 5, false, 1000),
                               one({3, 4, 7}, 2, false, 3, 1.5), one({3, 4, 7}, 2, true),    one({1, 2}, 1, true, -4),
                               one({0, 4, 8}, 4, false),      one({2, 5, 12}, 4, false)};
  const auto at = [&](OpCase c, Shape shape, std::vector<double> positions) {
    c.inputs.push_back({DType::i32, shape});
    c.attrs.set("max_positions", std::int64_t{40});
    c.values = {{}, std::move(positions)};
    return c;
  };
  cases.push_back(at(one({2, 3, 4, 8}, 4, false), {4}, {0, 39, 7, 2}));
  cases.push_back(at(one({3, 2, 4, 8}, 3, true), {3, 4}, {0, 39, 7, 2, 5, 5, 11, 1, 38, 0}));
  return cases;
}

}  // namespace

std::vector<OpDef> rope_ops() {
  OpDef op;
  op.name = "rope";
  op.doc =
      "Rotary position embedding of x [..., S, D]: pair i of a row at position p turns by p * frequencies[i]; operand positions "
      "i32 [S] or [B, S]; attrs frequencies, magnitude, interleaved, offset, max_positions.";
  op.kind = OpKind::Composite;
  op.max_inputs = 2;
  op.gradient = GradientKind::Rule;
  op.infer = infer;
  op.eval = eval;
  op.expand = expand_rope;
  op.vjp = vjp;
  op.cases = cases;
  return {op};
}

// ---- scaling variants, as transformers' modeling_rope_utils.py computes them

namespace {

constexpr double kTurn = 2 * std::numbers::pi;

/// Llama 3: long waves are stretched by the factor, short ones kept, and those between blended.
double llama3(double frequency, const RopeScaling& s) {
  const double wave = kTurn / frequency;
  if (wave > s.original_length / s.low_freq_factor) return frequency / s.factor;
  if (wave < s.original_length / s.high_freq_factor) return frequency;
  const double smooth = (s.original_length / wave - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - smooth) * frequency / s.factor + smooth * frequency;
}

/// YaRN (arXiv 2309.00071): pairs that turn often over the original length are kept, those that hardly turn are stretched.
void yarn(RopeFrequencies& result, double base, const RopeScaling& s) {
  const double dim = 2 * static_cast<double>(result.frequencies.size());
  const auto pair_of = [&](double turns) { return dim * std::log(s.original_length / (turns * kTurn)) / (2 * std::log(base)); };
  const double low = std::max(std::floor(pair_of(s.beta_fast)), 0.0);
  double high = std::min(std::ceil(pair_of(s.beta_slow)), dim - 1);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < result.frequencies.size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    result.frequencies[i] *= stretched / s.factor + (1 - stretched);
  }
  result.magnitude = s.attention_factor.value_or(s.factor <= 1 ? 1 : 0.1 * std::log(s.factor) + 1);
}

}  // namespace

RopeFrequencies rope_frequencies(std::int64_t rotary_dim, const RopeOptions& options, const std::source_location& line) {
  const RopeScaling& s = options.scaling;
  using enum RopeScaling::Kind;
  const auto refuse = [&](std::string message) { op_error(ErrorCode::InvalidArgument, "rope", std::move(message), line); };
  if (rotary_dim < 2 || rotary_dim % 2 != 0)
    refuse(formatted("rotary_dim must be even and positive, not {}", rotary_dim));
  if (!(options.base > 1) || !std::isfinite(options.base))
    refuse(formatted("base must be greater than 1, not {}", options.base));
  if (s.kind != None && !(s.factor > 0 && std::isfinite(s.factor)))
    refuse(formatted("scaling.factor must be positive, not {}", s.factor));
  if ((s.kind == Llama3 || s.kind == Yarn) && !(s.original_length > 0))
    refuse(formatted("scaling.original_length must be positive, not {}", s.original_length));
  if (s.kind == Llama3 && !(s.low_freq_factor > 0 && s.high_freq_factor > s.low_freq_factor))
    refuse(formatted("scaling needs 0 < low_freq_factor < high_freq_factor, not {} and {}", s.low_freq_factor,
                     s.high_freq_factor));
  if (s.kind == Yarn && !(s.beta_slow > 0 && s.beta_fast >= s.beta_slow))
    refuse(formatted("scaling needs 0 < beta_slow <= beta_fast, not {} and {}", s.beta_slow, s.beta_fast));
  if (s.kind == Ntk && rotary_dim < 4) refuse("scaling Ntk needs a rotary_dim of 4 or more");

  const auto dim = static_cast<double>(rotary_dim);
  const double base = s.kind == Ntk ? options.base * std::pow(s.factor, dim / (dim - 2)) : options.base;
  RopeFrequencies result;
  for (std::int64_t i = 0; i < rotary_dim / 2; ++i) {
    const double frequency = std::pow(base, -2 * static_cast<double>(i) / dim);
    result.frequencies.push_back(s.kind == Linear ? frequency / s.factor : s.kind == Llama3 ? llama3(frequency, s) : frequency);
  }
  if (s.kind == Yarn) yarn(result, base, s);
  return result;
}

Value rope(Operand x, const RopeOptions& options) {
  const Loc& line = x.line();
  const Value value = resolve_value("rope", x);
  const Shape shape = value.shape();
  const std::int64_t width = shape.rank() > 0 ? shape[shape.rank() - 1] : 0;
  RopeFrequencies f = rope_frequencies(options.rotary_dim == 0 ? width : options.rotary_dim, options, line);
  std::vector<Value> operands = {value};
  if (options.positions) operands.push_back(*options.positions);
  const Value y = value.graph().add("rope", operands,
                                    {{"frequencies", std::move(f.frequencies)},
                                     {"magnitude", f.magnitude},
                                     {"interleaved", options.interleaved},
                                     {"offset", options.offset},
                                     {"max_positions", options.max_positions}},
                                    line);
  if (!options.positions) return y;
  // A bad position never reaches memory, but it must not pass unseen.
  const auto at = [&](Value v) { return Operand(v, line); };
  const Operand position = at(*options.positions);
  const Value outside = logical_or(at(less(position, Operand(0, line))), at(greater_equal(position, Operand(options.max_positions, line))));
  const Value any = greater(at(sum(at(cast(at(outside), DType::i32)))), Operand(0, line));
  value.graph().add("check", {&any, 1}, {{"code", std::string("out_of_range")}, {"what", std::string("a position of rope")}}, line);
  return y;
}

}  // namespace aeshna

#pragma once
// What the op families share: arithmetic on nodes for vjp and expand, operands of the public functions, strided walks.
#include <array>
#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/ops.h"
#include "ir/op.h"

namespace aeshna {

// ---- vjp and expand: values that append nodes like the one being treated

/// A value inside a vjp or an expand. Numbers take the other operand's dtype.
struct Expr {
  const BuildContext* context = nullptr;
  Value value;

  Expr() = default;
  Expr(const BuildContext& c, Value v) : context(&c), value(v) {}
  Shape shape() const { return value.shape(); }  // a copy: appending nodes moves the graph's own
  Expr number(double v) const { return {*context, context->scalar(v, value.dtype())}; }
};

Expr apply(std::string_view op, std::initializer_list<Expr> operands, Attrs attrs = {});

inline Expr operator+(const Expr& a, const Expr& b) { return apply("add", {a, b}); }
inline Expr operator-(const Expr& a, const Expr& b) { return apply("sub", {a, b}); }
inline Expr operator*(const Expr& a, const Expr& b) { return apply("mul", {a, b}); }
inline Expr operator/(const Expr& a, const Expr& b) { return apply("div", {a, b}); }
inline Expr operator-(const Expr& a) { return apply("neg", {a}); }
inline Expr operator+(const Expr& a, double b) { return a + a.number(b); }
inline Expr operator-(const Expr& a, double b) { return a - a.number(b); }
inline Expr operator*(const Expr& a, double b) { return a * a.number(b); }
inline Expr operator+(double a, const Expr& b) { return b.number(a) + b; }
inline Expr operator-(double a, const Expr& b) { return b.number(a) - b; }
inline Expr operator*(double a, const Expr& b) { return b.number(a) * b; }
inline Expr where(const Expr& condition, const Expr& a, const Expr& b) { return apply("select", {condition, a, b}); }
inline Expr where(const Expr& condition, const Expr& a, double b) { return where(condition, a, a.number(b)); }
inline Expr where(const Expr& condition, double a, const Expr& b) { return where(condition, b.number(a), b); }
Expr cast_to(const Expr& x, DType dtype);
Expr reshape_to(const Expr& x, Shape shape);
Expr expand_to(const Expr& x, Shape shape);
/// Positions low, low + step, ... below high of one axis; the others are whole. All of an axis is x itself.
Expr slice_axis(const Expr& x, std::size_t axis, std::int64_t low, std::int64_t high, std::int64_t step = 1);
/// An axis of extent 1 before `axis`; axes `axis` and axis + 1 as one.
Expr insert_axis(const Expr& x, std::size_t axis);
Expr merge_axes(const Expr& x, std::size_t axis);
/// Zeros between the elements of an axis: [.., n, ..] -> [.., (n - 1) * step + 1, ..]; of no elements: none.
Expr spread(const Expr& x, std::size_t axis, std::int64_t step);
/// Element q of parts[r] at position parts.size() * q + r of `axis`, up to `extent`.
Expr interleaved(const BuildContext& context, std::span<const Expr> parts, std::size_t axis, std::int64_t extent);
/// op: sum, max, ...
Expr reduce(std::string_view op, const Expr& x, std::vector<std::int64_t> axes, bool keepdims);
/// The gradient of a broadcast operand: dy summed over the axes that broadcasting added or stretched.
Expr sum_to(const Expr& dy, Shape shape);

// ---- records

/// What the records of movement ops share. (shape.cpp)
OpDef movement_record(std::string name, std::string doc, MovementKind kind);

// ---- the public functions

/// Error "[op] message" with the caller's line as context.
[[noreturn]] void op_error(ErrorCode code, std::string_view op, std::string message, const std::source_location& line);

/// The operands as values of one graph; numbers become scalar constants of `dtype`, or of the first value's dtype if unset.
/// An integer dtype refuses a number that is not an integer. Errors name `op`.
std::vector<Value> resolve(std::string_view op, std::initializer_list<Operand> operands,
                           std::optional<DType> dtype = {});

/// One value: a number alone has no graph, which is an error.
Value resolve_value(std::string_view op, const Operand& operand);

/// Appends op(operands...) at the line of the first operand.
Value build(std::string_view op, std::initializer_list<Operand> operands, Attrs attrs = {});

/// Sorted non-negative axes; an empty list means all. Out-of-range and repeated axes are errors naming `op`.
std::vector<std::int64_t> resolve_axes(std::string_view op, const Axes& axes, int rank,
                                       const std::source_location& line);

// ---- infer

/// f(), whose Error becomes the op's: "[op] message" with operands and line.
template <class F>
auto guarded(const InferContext& ctx, F f) {
  try {
    return f();
  } catch (const Error& e) {
    ctx.fail(e.code(), e.message());
  }
}

/// Number of windows along an axis: 1 + floor((before + extent + after - dilation * (kernel - 1) - 1) / stride). Impossible geometry
/// is an error. (windows.cpp)
std::int64_t window_count(const InferContext& ctx, int axis, std::int64_t extent, std::int64_t kernel, std::int64_t stride,
                          std::int64_t dilation, std::int64_t before, std::int64_t after);

// ---- eval

using Strides = std::array<std::int64_t, Shape::kMaxRank>;

/// Strides with which a tensor of shape `operand` is read at the coordinates of `space` (NumPy broadcasting: 0 where stretched).
Strides broadcast_strides(const Shape& operand, const Shape& space);

/// Calls f(offsets) for every coordinate of `space` in row-major order; offsets[i] = start[i] + coordinate . strides[i].
template <std::size_t N, class F>
void walk(const Shape& space, const std::array<Strides, N>& strides, F&& f, std::array<std::int64_t, N> offsets = {}) {
  if (space.elements() == 0) return;
  std::array<std::int64_t, Shape::kMaxRank> coordinate{};
  for (;;) {
    f(offsets);
    int d = space.rank() - 1;
    for (; d >= 0; --d) {
      const auto i = static_cast<std::size_t>(d);
      if (++coordinate[i] < space[d]) {
        for (std::size_t n = 0; n < N; ++n) offsets[n] += strides[n][i];
        break;
      }
      for (std::size_t n = 0; n < N; ++n) offsets[n] -= strides[n][i] * (space[d] - 1);
      coordinate[i] = 0;
    }
    if (d < 0) return;
  }
}

/// Integers wrapped to the dtype's range; other dtypes as they are.
double wrap_integer(DType dtype, double value);

// ---- cases

inline TensorType f32_type(Shape shape) { return {DType::f32, shape}; }

}  // namespace aeshna

#include "ops/build.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "base/format.h"

namespace aeshna {

Expr apply(std::string_view op, std::initializer_list<Expr> operands, Attrs attrs) {
  std::vector<Value> values;
  const BuildContext* context = nullptr;
  for (const Expr& operand : operands) {
    values.push_back(operand.value);
    context = operand.context;
  }
  return {*context, context->add(op, std::move(values), std::move(attrs))};
}

Expr cast_to(const Expr& x, DType dtype) {
  return x.value.dtype() == dtype ? x : apply("cast", {x}, {{"dtype", dtype}});
}

Expr reshape_to(const Expr& x, Shape shape) {
  if (x.shape() == shape) return x;
  return apply("reshape", {x}, {{"dims", std::vector<std::int64_t>(shape.begin(), shape.end())}});
}

Expr expand_to(const Expr& x, Shape shape) {
  if (x.shape() == shape) return x;
  return apply("expand", {x}, {{"dims", std::vector<std::int64_t>(shape.begin(), shape.end())}});
}

Expr slice_axis(const Expr& x, std::size_t axis, std::int64_t low, std::int64_t high, std::int64_t step) {
  const Shape shape = x.shape();
  if (low == 0 && high == shape[static_cast<int>(axis)] && step == 1) return x;
  std::vector<std::int64_t> axes, starts, ends(shape.begin(), shape.end()), steps;
  for (std::size_t d = 0; d < ends.size(); ++d) {
    axes.push_back(static_cast<std::int64_t>(d));
    starts.push_back(d == axis ? low : 0);
    steps.push_back(d == axis ? step : 1);
  }
  ends[axis] = high;
  return apply("slice", {x}, {{"axes", std::move(axes)}, {"starts", std::move(starts)}, {"ends", std::move(ends)}, {"steps", std::move(steps)}});
}

Expr insert_axis(const Expr& x, std::size_t axis) {
  const Shape shape = x.shape();
  std::vector<std::int64_t> dims;
  for (std::size_t d = 0; d <= static_cast<std::size_t>(shape.rank()); ++d)
    dims.push_back(d == axis ? 1 : shape[static_cast<int>(d < axis ? d : d - 1)]);
  return reshape_to(x, Shape(dims));
}

Expr merge_axes(const Expr& x, std::size_t axis) {
  const Shape shape = x.shape();
  std::vector<std::int64_t> dims(shape.begin(), shape.end());
  dims[axis] *= dims[axis + 1];
  dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(axis) + 1);
  return reshape_to(x, Shape(dims));
}

Expr spread(const Expr& x, std::size_t axis, std::int64_t step) {
  const std::int64_t n = x.shape()[static_cast<int>(axis)];
  const Expr split = insert_axis(x, axis + 1);
  std::vector<std::int64_t> before(static_cast<std::size_t>(split.shape().rank()), 0), after = before;
  after[axis + 1] = step - 1;
  const Expr padded = apply("pad", {split}, {{"before", std::move(before)}, {"after", std::move(after)}, {"value", 0.0}});
  return slice_axis(merge_axes(padded, axis), axis, 0, n == 0 ? 0 : (n - 1) * step + 1);
}

Expr interleaved(const BuildContext& context, std::span<const Expr> parts, std::size_t axis, std::int64_t extent) {
  std::vector<Value> columns;
  for (const Expr& part : parts) columns.push_back(insert_axis(part, axis + 1).value);
  const Expr all(context, columns.size() == 1 ? columns[0] : context.add("concat", columns, {{"axis", static_cast<std::int64_t>(axis) + 1}}));
  return slice_axis(merge_axes(all, axis), axis, 0, extent);
}

Expr reduce(std::string_view op, const Expr& x, std::vector<std::int64_t> axes, bool keepdims) {
  return apply(op, {x}, {{"axes", std::move(axes)}, {"keepdims", keepdims}});
}

Expr sum_to(const Expr& dy, Shape shape) {
  const Shape from = dy.shape();
  if (from == shape) return dy;
  const int added = from.rank() - shape.rank();
  std::vector<std::int64_t> axes;
  for (int d = 0; d < from.rank(); ++d) {
    if (d < added || (shape[d - added] == 1 && from[d] != 1)) axes.push_back(d);
  }
  return reshape_to(axes.empty() ? dy : reduce("sum", dy, std::move(axes), false), shape);
}

void op_error(ErrorCode code, std::string_view op, std::string message, const std::source_location& line) {
  throw Error(code, formatted("[{}] {}", op, message)).context("the call at " + SourceLine(line).to_string());
}

std::vector<Value> resolve(std::string_view op, std::initializer_list<Operand> operands, std::optional<DType> dtype) {
  Graph* graph = nullptr;
  for (const Operand& operand : operands) {
    if (operand.is_number()) continue;
    if (graph != nullptr && graph != &operand.value().graph()) {
      op_error(ErrorCode::InvalidArgument, op, "the operands belong to different graphs", operand.line());
    }
    if (graph == nullptr && !dtype) dtype = operand.value().dtype();
    graph = &operand.value().graph();
  }
  if (graph == nullptr) {
    op_error(ErrorCode::InvalidArgument, op, "needs at least one Value: numbers alone have no graph",
             operands.begin()->line());
  }
  std::vector<Value> values;
  for (const Operand& operand : operands) {
    if (!operand.is_number()) {
      values.push_back(operand.value());
      continue;
    }
    const double number = operand.number();
    if (is_integer(*dtype) && number != std::trunc(number)) {
      op_error(ErrorCode::InvalidArgument, op, formatted("the number {} is no {} value", number, dtype_name(*dtype)),
               operand.line());
    }
    try {
      values.push_back(graph->constant(Literal::scalar(number, *dtype), operand.line()));
    } catch (Error& e) {
      op_error(e.code(), op, e.message(), operand.line());
    }
  }
  return values;
}

Value resolve_value(std::string_view op, const Operand& operand) { return resolve(op, {operand}).front(); }

Value build(std::string_view op, std::initializer_list<Operand> operands, Attrs attrs) {
  const std::vector<Value> values = resolve(op, operands);
  return values.front().graph().add(op, values, std::move(attrs), operands.begin()->line());
}

std::vector<std::int64_t> resolve_axes(std::string_view op, const Axes& axes, int rank,
                                       const std::source_location& line) {
  std::vector<std::int64_t> sorted;
  if (axes.empty()) {
    for (int d = 0; d < rank; ++d) sorted.push_back(d);
  }
  for (const std::int64_t axis : axes) {
    if (axis < -rank || axis >= rank) {
      op_error(ErrorCode::InvalidArgument, op, formatted("axis {} is out of range for rank {}", axis, rank), line);
    }
    sorted.push_back(axis < 0 ? axis + rank : axis);
  }
  std::ranges::sort(sorted);
  const auto twin = std::ranges::adjacent_find(sorted);
  if (twin != sorted.end()) op_error(ErrorCode::InvalidArgument, op, formatted("axis {} is listed twice", *twin), line);
  return sorted;
}

Strides broadcast_strides(const Shape& operand, const Shape& space) {
  const Strides dense = dense_strides(operand);
  const int added = space.rank() - operand.rank();
  Strides strides{};
  for (int d = added; d < space.rank(); ++d) {
    if (operand[d - added] != 1) strides[static_cast<std::size_t>(d)] = dense[static_cast<std::size_t>(d - added)];
  }
  return strides;
}

double wrap_integer(DType dtype, double value) {
  const auto modulo = [&](double bits, bool is_signed) {
    const double range = std::exp2(bits), low = is_signed ? -range / 2 : 0;
    if (value >= low && value < low + range) return value;  // -1 + 2^64 is no double
    double wrapped = std::fmod(value, range);
    if (wrapped < 0) wrapped += range;
    return is_signed && wrapped >= range / 2 ? wrapped - range : wrapped;
  };
  switch (dtype) {
    case DType::i4:
      return modulo(4, true);
    case DType::u4:
      return modulo(4, false);
    case DType::i8:
      return modulo(8, true);
    case DType::u8:
      return modulo(8, false);
    case DType::i16:
      return modulo(16, true);
    case DType::u16:
      return modulo(16, false);
    case DType::i32:
      return modulo(32, true);
    case DType::u32:
      return modulo(32, false);
    case DType::i64:
      return modulo(64, true);
    case DType::u64:
      return modulo(64, false);
    default:
      return value;
  }
}

}  // namespace aeshna

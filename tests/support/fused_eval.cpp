#include "support/fused_eval.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/fail.h"
#include "base/half.h"
#include "base/philox.h"
#include "ir/access.h"
#include "ir/op.h"

namespace aeshna::test {
namespace {

using Coordinate = std::vector<std::int64_t>;

/// Calls f(coordinate) for every point of `space` in row-major order.
template <class F>
void for_each_point(const std::vector<std::int64_t>& space, F&& f) {
  for (std::int64_t extent : space) {
    if (extent == 0) return;
  }
  Coordinate at(space.size(), 0);
  for (;;) {
    f(at);
    std::size_t d = space.size();
    for (; d > 0; --d) {
      if (++at[d - 1] < space[d - 1]) break;
      at[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

double wrap(DType dtype, double value) {
  if (dtype != DType::i32 && dtype != DType::u32) return value;
  double wrapped = std::fmod(value, 4294967296.0);
  if (wrapped < 0) wrapped += 4294967296.0;
  return dtype == DType::i32 && wrapped >= 2147483648.0 ? wrapped - 4294967296.0 : wrapped;
}

double convert(DType from, DType to, double value) {
  if (to == DType::boolean) return value != 0;
  if (to == DType::f32 || from == DType::boolean) return value;
  if (from != DType::f32) return wrap(to, value);
  if (std::isnan(value)) return 0;
  const double low = to == DType::i32 ? -2147483648.0 : 0, high = to == DType::i32 ? 2147483647.0 : 4294967295.0;
  return std::clamp(std::trunc(value), low, high);
}

std::int64_t index_of(const Access& access, const Coordinate& at) {
  std::int64_t index = access.offset;
  for (std::size_t d = 0; d < access.strides.size(); ++d) index += access.strides[d] * at[d];
  return index;
}

/// One body over one space.
struct Evaluator {
  const Body& body;
  const std::vector<std::int64_t>& space;
  std::uint32_t outer_rank = 0;
  const OperandData& data;
  double product = 0;
  /// Finished reductions of the current outer index.
  std::vector<std::optional<double>> reduced{};

  double load(const Instr& instr, const Coordinate& at) {
    for (const Access::Guard& guard : instr.access.guards) {
      std::int64_t sum = 0;
      for (const auto& [dim, coefficient] : guard.terms) sum += coefficient * at[dim];
      if (sum < guard.low || sum >= guard.high) return instr.access.fill;
    }
    std::int64_t element = index_of(instr.access, at);
    for (std::size_t i = 0; i < instr.args.size(); ++i) {
      const auto& [stride, extent] = instr.access.dynamic.at(i);
      const double index = value(instr.args[i], at);
      if (index < 0 || index >= static_cast<double>(extent)) return instr.access.fill;
      element += stride * static_cast<std::int64_t>(index);
    }
    return data.at(instr.operand).at(static_cast<std::size_t>(element));
  }

  double apply(const Instr& instr, const std::vector<double>& args) const {
    const DType from = body.instrs[instr.args.back()].dtype;
    const auto rounded = [&](double v) { return instr.rounding == DType::f32 ? v : round_to_float(instr.rounding, v); };
    if (instr.op->name == "cast") return rounded(convert(from, instr.dtype, args[0]));
    const PointwiseDef& row = instr.op->pointwise;
    const bool integer = from != DType::f32;
    const auto f = integer && row.eval_int != nullptr ? row.eval_int : row.eval;
    const double value = f(args[0], args.size() > 1 ? args[1] : 0, args.size() > 2 ? args[2] : 0);
    return row.boolean_result ? value : rounded(wrap(from, value));
  }

  static double accumulate(const Instr& sum_or_product, double value, double next) {
    const DType dtype = sum_or_product.dtype;
    if (sum_or_product.reduce == ReduceKind::Sum) return wrap(dtype, value + next);
    return dtype == DType::f32 ? value * next : wrap(dtype, find_op("mul").pointwise.eval_int(value, next, 0));
  }

  double reduce(const Instr& instr, const Coordinate& outer) {
    const std::vector<std::int64_t> inner(space.begin() + outer_rank, space.end());
    const std::uint32_t arg = instr.args[0];
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const bool is_max = instr.reduce == ReduceKind::Max || instr.reduce == ReduceKind::ArgMax;
    const bool is_arg = instr.reduce == ReduceKind::ArgMax || instr.reduce == ReduceKind::ArgMin;
    const bool is_extreme = is_arg || is_max || instr.reduce == ReduceKind::Min;
    double value = instr.reduce == ReduceKind::Prod ? 1 : is_extreme ? (is_max ? -kInfinity : kInfinity) : 0;
    double best = 0, linear = 0;
    bool first = true;
    for_each_point(inner, [&](const Coordinate& at) {
      Coordinate full = outer;
      full.insert(full.end(), at.begin(), at.end());
      const double v = this->value(arg, full);
      // For the index NaN is the largest; for the value it always wins.
      const auto above = [](double a, double b) { return !std::isnan(b) && (std::isnan(a) || a > b); };
      if (is_arg) {
        if (first || (is_max ? above(v, value) : above(value, v))) value = v, best = linear;
      } else if (is_extreme) {
        if (first || std::isnan(v) || (!std::isnan(value) && (is_max ? v > value : v < value))) value = v;
      } else {
        value = accumulate(instr, value, v);
      }
      first = false;
      ++linear;
    });
    return is_arg ? best : value;
  }

  double value(std::uint32_t index, const Coordinate& at) {
    const Instr& instr = body.instrs.at(index);
    switch (instr.kind) {
      case Instr::Kind::Load:
        return load(instr, at);
      case Instr::Kind::Literal:
        return instr.dtype == DType::f32 ? static_cast<double>(static_cast<float>(instr.literal)) : instr.literal;
      case Instr::Kind::Index:
        return wrap(instr.dtype, static_cast<double>(at[instr.dim] * instr.access.strides.at(0) + instr.access.offset));
      case Instr::Kind::Product:
        return product;
      case Instr::Kind::Reduce:
        if (!reduced[index]) reduced[index] = reduce(instr, Coordinate(at.begin(), at.begin() + outer_rank));
        return *reduced[index];
      case Instr::Kind::Op: {
        std::vector<double> args;
        for (std::uint32_t arg : instr.args) args.push_back(value(arg, at));
        return apply(instr, args);
      }
      case Instr::Kind::Random: {
        const auto word = [&](std::size_t i) {
          return static_cast<std::uint32_t>(static_cast<std::int64_t>(value(instr.args.at(i), at)));
        };
        const auto element = static_cast<std::uint32_t>(index_of(instr.access, at));
        return philox4x32_10({element / 4, word(2), static_cast<std::uint32_t>(instr.literal), 0},
                             {word(0), word(1)})[element % 4];
      }
    }
    fail(ErrorCode::Internal, "unknown instruction kind");
  }
};

void store(const Store& store, double value, const Coordinate& at, OperandData& data) {
  data.at(store.operand).at(static_cast<std::size_t>(index_of(store.access, at))) = value;
}

void evaluate_matmul(const FusedKernel& kernel, const OperandData& data, OperandData& result) {
  const std::vector<std::int64_t> a_space = body_space(kernel, kernel.a), b_space = body_space(kernel, kernel.b);
  const auto all_values = [&](const Body& body, const std::vector<std::int64_t>& space) {
    Evaluator evaluator{.body = body, .space = space, .data = data};
    std::vector<double> values;
    const auto last = static_cast<std::uint32_t>(body.instrs.size() - 1);
    for_each_point(space, [&](const Coordinate& at) { values.push_back(evaluator.value(last, at)); });
    return values;
  };
  const std::vector<double> a = all_values(kernel.a, a_space), b = all_values(kernel.b, b_space);
  Evaluator evaluator{.body = kernel.body, .space = kernel.space, .data = data};
  const std::span space(kernel.space);
  const std::size_t first_row = batch_rank(kernel);
  const std::int64_t rows = points_of(space.subspan(first_row, kernel.row_rank));
  const std::int64_t columns = points_of(space.last(kernel.column_rank));
  std::int64_t point = 0;
  for_each_point(kernel.space, [&](const Coordinate& at) {
    const std::int64_t batch = point / (rows * columns), m = point / columns % rows, n = point % columns;
    ++point;
    evaluator.product = 0;
    for (std::int64_t k = 0; k < kernel.k; ++k) {
      evaluator.product += a[static_cast<std::size_t>((batch * rows + m) * kernel.k + k)] *
                           b[static_cast<std::size_t>((batch * kernel.k + k) * columns + n)];
    }
    for (const Store& s : kernel.body.stores) store(s, evaluator.value(s.value, at), at, result);
  });
}

}  // namespace

OperandData evaluate(const FusedKernel& kernel, OperandData data) {
  OperandData result = data;
  if (kernel.kind == FusedKernel::Kind::Matmul) {
    evaluate_matmul(kernel, data, result);
    return result;
  }
  const std::vector<std::int64_t> outer(kernel.space.begin(), kernel.space.begin() + kernel.outer_rank);
  const std::vector<std::int64_t> inner(kernel.space.begin() + kernel.outer_rank, kernel.space.end());
  Evaluator evaluator{.body = kernel.body, .space = kernel.space, .outer_rank = kernel.outer_rank, .data = data};
  for_each_point(outer, [&](const Coordinate& row) {
    evaluator.reduced.assign(kernel.body.instrs.size(), std::nullopt);
    for (const Store& s : kernel.body.stores) {
      if (s.outer) {
        // Outer values do not depend on the inner coordinates: any will do.
        Coordinate at = row;
        at.resize(kernel.space.size(), 0);
        store(s, evaluator.value(s.value, at), at, result);
        continue;
      }
      for_each_point(inner, [&](const Coordinate& rest) {
        Coordinate at = row;
        at.insert(at.end(), rest.begin(), rest.end());
        store(s, evaluator.value(s.value, at), at, result);
      });
    }
  });
  return result;
}

}  // namespace aeshna::test

#include "ir/access.h"

#include <algorithm>

#include "base/checked.h"
#include "base/fail.h"
#include "ir/device_types.h"
#include "ir/op.h"

namespace aeshna {

bool vector_access(const Access& access, std::size_t dim) {
  if (dim >= access.strides.size() || access.strides[dim] != 1 || access.offset % 4 != 0) return false;
  for (std::size_t d = 0; d < access.strides.size(); ++d) {
    if (d != dim && access.strides[d] % 4 != 0) return false;
  }
  return std::ranges::none_of(access.guards, [&](const Access::Guard& guard) { return guard.coefficient(dim) != 0; });
}

bool uniform_access(const Access& access, std::size_t dim) {
  return (dim >= access.strides.size() || access.strides[dim] == 0) &&
         std::ranges::none_of(access.guards, [&](const Access::Guard& guard) { return guard.coefficient(dim) != 0; });
}

std::int64_t Access::Guard::coefficient(std::size_t dim) const {
  for (const Term& term : terms) {
    if (term.dim == dim) return term.coefficient;
  }
  return 0;
}

std::size_t batch_rank(const FusedKernel& kernel) {
  AESHNA_CHECK(kernel.kind == FusedKernel::Kind::Matmul && kernel.row_rank > 0 && kernel.column_rank > 0 &&
               kernel.space.size() >= kernel.row_rank + kernel.column_rank);
  return kernel.space.size() - kernel.row_rank - kernel.column_rank;
}

std::size_t product_vector_dim(const FusedKernel& kernel, bool is_a, bool along_k) {
  const std::size_t batch = batch_rank(kernel);
  const std::size_t k = std::max<std::size_t>((is_a ? kernel.a : kernel.b).k.size(), 1);
  if (is_a) return batch + kernel.row_rank + (along_k ? k : 0) - 1;
  return batch + k + (along_k ? 0 : kernel.column_rank) - 1;
}

std::vector<std::int64_t> body_space(const FusedKernel& kernel, const Body& body) {
  if (&body == &kernel.body || kernel.kind != FusedKernel::Kind::Matmul) return kernel.space;
  const auto rows = kernel.space.begin() + static_cast<std::ptrdiff_t>(batch_rank(kernel));
  const auto columns = rows + kernel.row_rank;
  const std::vector<std::int64_t> k = body.k.empty() ? std::vector{kernel.k} : body.k;
  std::vector<std::int64_t> space(kernel.space.begin(), &body == &kernel.a ? columns : rows);
  space.insert(space.end(), k.begin(), k.end());
  if (&body == &kernel.b) space.insert(space.end(), columns, kernel.space.end());
  return space;
}

std::optional<Reach> reach(const Access& access, std::span<const std::int64_t> space) {
  AESHNA_CHECK(access.strides.size() <= space.size());
  constexpr const char* kWhat = "offset of an operand";
  struct Range {
    std::int64_t first, last;
  };
  std::vector<Range> at;
  for (std::size_t d = 0; d < access.strides.size(); ++d) at.push_back({0, space[d] - 1});
  const auto narrow = [](Range& range, std::int64_t first, std::int64_t last) {
    range = {std::max(range.first, first), std::min(range.last, last)};
  };
  for (const Access::Guard& guard : access.guards) {
    if (guard.terms.size() == 1 && guard.terms[0].coefficient == 1 && guard.terms[0].dim < at.size())
      narrow(at[guard.terms[0].dim], guard.low, guard.high - 1);
  }
  // A sum within bounds bounds each of its terms, given the least and the most of the others.
  for (const Access::Guard& guard : access.guards) {
    if (!std::ranges::all_of(guard.terms, [&](const auto& term) { return term.coefficient != 0 && term.dim < at.size(); })) continue;
    for (const auto& term : guard.terms) {
      std::int64_t least = 0, most = 0;
      for (const auto& other : guard.terms) {
        if (&other == &term) continue;
        const std::int64_t first = at[other.dim].first * other.coefficient, last = at[other.dim].last * other.coefficient;
        least += std::min(first, last);
        most += std::max(first, last);
      }
      // low <= coefficient * x + others < high for some others: coefficient * x in [from, to]
      const std::int64_t from = guard.low - most, to = guard.high - 1 - least, c = term.coefficient;
      const auto floor_div = [](std::int64_t a, std::int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); };
      const auto ceil_of = [&](std::int64_t a, std::int64_t b) { return -floor_div(-a, b); };
      if (c > 0) {
        narrow(at[term.dim], ceil_of(from, c), floor_div(to, c));
      } else {
        narrow(at[term.dim], ceil_of(to, c), floor_div(from, c));
      }
      if (at[term.dim].first > at[term.dim].last) return std::nullopt;
    }
  }
  if (std::ranges::any_of(at, [](const Range& range) { return range.first > range.last; })) return std::nullopt;

  Reach result{access.offset, access.offset};
  const auto add = [&](std::int64_t stride, const Range& range) {
    const std::int64_t first = checked_mul(range.first, stride, kWhat), last = checked_mul(range.last, stride, kWhat);
    result.low = checked_add(result.low, std::min(first, last), kWhat);
    result.high = checked_add(result.high, std::max(first, last), kWhat);
  };
  std::vector<bool> counted(at.size(), false);
  for (const Access::Guard& guard : access.guards) {
    if (guard.terms.size() < 2 && (guard.terms.empty() || guard.terms[0].coefficient == 1)) continue;
    // Its sum times one stride is a part of the address: then that part lies within the guard.
    Range sum{0, 0};
    std::optional<std::int64_t> stride;
    bool part = true;
    for (const auto& [dim, coefficient] : guard.terms) {
      part = part && dim < at.size() && !counted[dim] && access.strides[dim] % coefficient == 0 &&
             stride.value_or(access.strides[dim] / coefficient) == access.strides[dim] / coefficient;
      if (!part) break;
      stride = access.strides[dim] / coefficient;
      const std::int64_t first = at[dim].first * coefficient, last = at[dim].last * coefficient;
      sum = {sum.first + std::min(first, last), sum.last + std::max(first, last)};
    }
    if (!part) continue;
    for (const Access::Guard& same : access.guards) {  // windows of windows bound one sum several times
      if (same.terms == guard.terms) narrow(sum, same.low, same.high - 1);
    }
    if (sum.first > sum.last) return std::nullopt;
    for (const auto& term : guard.terms) counted[term.dim] = true;
    add(*stride, sum);
  }
  for (std::size_t d = 0; d < at.size(); ++d) {
    if (!counted[d]) add(access.strides[d], at[d]);
  }
  for (const Access::Dynamic& dynamic : access.dynamic) {
    if (dynamic.extent <= 0) return std::nullopt;
    add(dynamic.stride, {0, dynamic.extent - 1});
  }
  return result;
}

namespace {

/// Whether the values of all of `wanted` are the same along `dim`.
bool uniform_values(const Body& body, std::span<const std::uint32_t> wanted, std::size_t dim) {
  if (wanted.empty()) return true;
  const std::uint32_t end = *std::ranges::max_element(wanted) + 1;
  std::vector<bool> uniform(end);
  for (std::uint32_t i = 0; i < end; ++i) {
    const Instr& instr = body.instrs[i];
    bool same = std::ranges::all_of(instr.args, [&](std::uint32_t arg) { return uniform[arg]; });
    switch (instr.kind) {
      case Instr::Kind::Load:
      case Instr::Kind::Random:
        same = same && uniform_access(instr.access, dim);
        break;
      case Instr::Kind::Index:
        same = instr.dim != dim;
        break;
      case Instr::Kind::Reduce:  // over every inner dimension
        same = true;
        break;
      case Instr::Kind::Product:
        same = false;
        break;
      default:
        break;
    }
    uniform[i] = same;
  }
  return std::ranges::all_of(wanted, [&](std::uint32_t i) { return uniform[i]; });
}

}  // namespace

bool vector_load(const Body& body, const Instr& load, std::size_t dim) {
  return vector_access(load.access, dim) &&
         std::ranges::all_of(load.access.dynamic, [](const Access::Dynamic& d) { return d.stride % 4 == 0; }) &&
         uniform_values(body, load.args, dim);
}

bool uniform_load(const Body& body, const Instr& load, std::size_t dim) {
  return uniform_access(load.access, dim) && uniform_values(body, load.args, dim);
}

ReductionLevels reduction_levels(const FusedKernel& kernel) {
  const auto& instrs = kernel.body.instrs;
  ReductionLevels result;
  result.outer.resize(instrs.size());
  result.level.resize(instrs.size());
  for (std::size_t i = 0; i < instrs.size(); ++i) {
    const Instr& instr = instrs[i];
    bool outer = true;
    for (std::uint32_t arg : instr.args) {
      AESHNA_CHECK(arg < i);
      outer = outer && result.outer[arg];
      result.level[i] = std::max(result.level[i], result.level[arg]);
    }
    switch (instr.kind) {
      case Instr::Kind::Load:
      case Instr::Kind::Random:
        for (std::size_t d = kernel.outer_rank; d < kernel.space.size(); ++d)
          outer = outer && uniform_access(instr.access, d);
        break;
      case Instr::Kind::Index:
        outer = instr.dim < kernel.outer_rank;
        break;
      case Instr::Kind::Reduce:
        outer = true;
        result.levels = std::max(result.levels, ++result.level[i]);
        break;
      default:
        break;
    }
    result.outer[i] = outer;
  }
  return result;
}

std::int64_t points_of(std::span<const std::int64_t> extents) {
  std::int64_t points = 1;
  for (std::int64_t extent : extents) points = checked_mul(points, extent, "elements of an iteration space");
  return points;
}

void estimate(KernelSpec& spec) {
  const FusedKernel& kernel = *spec.fused;
  const auto points = static_cast<double>(points_of(kernel.space));
  for (const KernelOperand& operand : kernel.operands)
    spec.bytes += bytes_per_element(operand.dtype) * std::min(points, static_cast<double>(operand.elements));
  for (const Instr& instr : kernel.body.instrs) {
    if (instr.kind == Instr::Kind::Op) spec.flops += points * instr.op->pointwise.cost;
    if (instr.kind == Instr::Kind::Reduce) spec.flops += points;
    if (instr.kind == Instr::Kind::Random) spec.flops += points * 60;
  }
}

}  // namespace aeshna

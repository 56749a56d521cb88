#include "io/nnef/operation.h"

#include <algorithm>
#include <array>

namespace aeshna::nnef {

const Any& Call::any(std::string_view name) const {
  const auto& parameters = invocation.declaration.parameters;
  const auto found = std::ranges::find(parameters, name, &Parameter::name);
  return invocation.arguments[static_cast<std::size_t>(found - parameters.begin())];
}

Value Call::made(const Any& value) {
  if (const Tensor* tensor = value.get<Tensor>()) {
    if (tensor->positions) refuse("positions in windows (of argmax_pool) are read by sample and desample alone");
    return tensor->value;
  }
  if (const bool* truth = value.get<bool>()) return graph.constant(*truth ? 1 : 0, DType::boolean);
  if (const std::int64_t* whole = value.get<std::int64_t>())
    return graph.constant(static_cast<double>(*whole), DType::i32);
  return graph.constant(*value.get<double>());
}

Value Call::tensor(std::string_view name) { return made(any(name)); }

std::vector<Value> Call::tensors(std::string_view name) {
  std::vector<Value> values;
  for (const Any& item : *any(name).get<List>()->items) values.push_back(made(item));
  return values;
}

std::optional<double> Call::known(std::string_view name) const {
  const double* value = any(name).get<double>();
  return value != nullptr ? std::optional(*value) : std::nullopt;
}

namespace {
std::int64_t small(std::int64_t value, std::string_view name) {
  if (value < -INT32_MAX || value > INT32_MAX)
    throw Violation{formatted("'{}' is {}, which is no size of anything", name, value)};
  return value;
}
}  // namespace

std::int64_t Call::integer(std::string_view name) const { return small(*any(name).get<std::int64_t>(), name); }
double Call::number(std::string_view name) const { return *any(name).get<double>(); }
bool Call::flag(std::string_view name) const { return *any(name).get<bool>(); }
const std::string& Call::text(std::string_view name) const { return *any(name).get<std::string>(); }

Ints Call::ints(std::string_view name) const {
  Ints values;
  for (const Any& item : *any(name).get<List>()->items) values.push_back(small(*item.get<std::int64_t>(), name));
  return values;
}

Pairs Call::pairs(std::string_view name) const {
  Pairs values;
  for (const Any& item : *any(name).get<List>()->items) {
    const std::vector<Any>& pair = *item.get<List>()->items;
    values.emplace_back(small(*pair[0].get<std::int64_t>(), name), small(*pair[1].get<std::int64_t>(), name));
  }
  return values;
}

std::int64_t Call::axis(std::string_view name, int rank) const {
  const std::int64_t axis = integer(name);
  if (axis < 0 || axis >= rank) wrong(formatted("'{}' is {}, which is no axis of rank {}", name, axis, rank));
  return axis;
}

Ints Call::axes(std::string_view name, int rank) const {
  Ints axes = ints(name);
  for (const std::int64_t axis : axes) {
    if (axis < 0 || axis >= rank) wrong(formatted("'{}' holds {}, which is no axis of rank {}", name, axis, rank));
  }
  std::ranges::sort(axes);
  if (std::ranges::adjacent_find(axes) != axes.end()) wrong(formatted("'{}' holds an axis twice", name));
  return axes;
}

Value left_aligned(Value x, int rank) {
  if (x.shape().rank() == 0 || x.shape().rank() >= rank) return x;
  Ints dims = dims_of(x.shape());
  dims.resize(static_cast<std::size_t>(rank), 1);
  return reshape(x, dims);
}

void align(Value& a, Value& b) {
  const int rank = std::max(a.shape().rank(), b.shape().rank());
  a = left_aligned(a, rank);
  b = left_aligned(b, rank);
}

Ints dims_of(const Shape& shape) { return {shape.begin(), shape.end()}; }

Value round_half_away(Value x) {
  const Value size = abs(x), whole = floor(size);
  return mul(sign(x), select(less(size - whole, 0.5), whole, add(whole, 1.0)));
}

std::span<const Operation* const> all_operations() {
  static const std::vector<const Operation*> all = [] {
    std::vector<const Operation*> list;
    for (const auto& family :
         {leaf_operations(), pointwise_operations(), shape_operations(), product_operations(), window_operations(),
          resample_operations(), reduce_operations(), norm_operations(), region_operations()}) {
      for (const Operation& op : family) list.push_back(&op);
    }
    return list;
  }();
  return all;
}

}  // namespace aeshna::nnef

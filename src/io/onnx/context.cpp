#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/format.h"
#include "io/onnx/translate.h"

namespace aeshna::onnx {

Symbol& Context::symbol(std::size_t i) {
  if (!has(i)) refuse(formatted("input {} is missing", i));
  return *inputs_[i];
}

Value Context::in(std::size_t i) { return target_.value(symbol(i)); }

const TensorType& Context::type(std::size_t i) { return symbol(i).type; }

const Literal* Context::if_known(std::size_t i) { return has(i) && inputs_[i]->known ? &*inputs_[i]->known : nullptr; }

const Literal& Context::known(std::size_t i, std::string_view what) {
  const Symbol& s = symbol(i);
  if (!s.known) throw Refusal{formatted("{} ('{}') must be known when the model is loaded", what, node.inputs[i]), i};
  return *s.known;
}

Ints to_ints(const Literal& literal) {
  const std::int64_t n = literal.type().shape.elements();
  Ints values(static_cast<std::size_t>(n));
  if (literal.type().dtype == DType::i64) {  // exact beyond 2^53
    if (n > 0) std::memcpy(values.data(), literal.bytes().data(), values.size() * 8);
    return values;
  }
  for (std::int64_t i = 0; i < n; ++i) values[static_cast<std::size_t>(i)] = static_cast<std::int64_t>(literal.at(i));
  return values;
}

Ints Context::ints(std::size_t i, std::string_view what) {
  const Literal& literal = known(i, what);
  if (!is_integer(literal.type().dtype))
    refuse(formatted("{} is {}, integers are expected", what, literal.type().to_string()));
  if (literal.type().shape.rank() > 1) refuse(formatted("{} has rank {}", what, literal.type().shape.rank()));
  return to_ints(literal);
}

std::int64_t Context::integer(std::size_t i, std::string_view what) {
  const Ints values = ints(i, what);
  if (values.size() != 1) refuse(formatted("{} has {} elements, one is expected", what, values.size()));
  return values[0];
}

double Context::number(std::size_t i, std::string_view what) {
  const Literal& literal = known(i, what);
  if (literal.type().shape.elements() != 1)
    refuse(formatted("{} is {}, one element is expected", what, literal.type().to_string()));
  return literal.at(0);
}

const Attribute* Context::find(std::string_view name) const {
  for (const Attribute& a : node.attributes) {
    if (a.name == name) return &a;
  }
  return nullptr;
}

const Attribute* Context::read(std::string_view name, Attribute::Kind kind) {
  read_.emplace(name);
  const Attribute* a = find(name);
  if (a != nullptr && a->kind != kind) refuse(formatted("attribute '{}' has another type than it should", name));
  return a;
}

std::int64_t Context::integer(std::string_view name, std::optional<std::int64_t> fallback) {
  if (const Attribute* a = read(name, Attribute::Kind::Int)) return a->i;
  if (!fallback) refuse(formatted("attribute '{}' is missing", name));
  return *fallback;
}

double Context::number(std::string_view name, std::optional<double> fallback) {
  if (const Attribute* a = read(name, Attribute::Kind::Float)) return static_cast<double>(a->f);
  if (!fallback) refuse(formatted("attribute '{}' is missing", name));
  return *fallback;
}

std::string Context::text(std::string_view name, std::string_view fallback) {
  const Attribute* a = read(name, Attribute::Kind::String);
  return a != nullptr ? a->s : std::string(fallback);
}

Ints Context::ints(std::string_view name, Ints fallback) {
  const Attribute* a = read(name, Attribute::Kind::Ints);
  return a != nullptr ? a->ints : std::move(fallback);
}

std::vector<double> Context::numbers(std::string_view name, std::vector<double> fallback) {
  const Attribute* a = read(name, Attribute::Kind::Floats);
  return a != nullptr ? std::vector<double>(a->floats.begin(), a->floats.end()) : std::move(fallback);
}

std::vector<std::string> Context::texts(std::string_view name) {
  const Attribute* a = read(name, Attribute::Kind::Strings);
  return a != nullptr ? a->strings : std::vector<std::string>();
}

const Attribute& Context::attribute(std::string_view name) {
  read_.emplace(name);
  const Attribute* a = find(name);
  if (a == nullptr) refuse(formatted("attribute '{}' is missing", name));
  return *a;
}

void Context::only(std::string_view name, std::int64_t value) {
  const std::int64_t found = integer(name, value);
  if (found != value) refuse(formatted("attribute '{}' is {}; {} alone is supported", name, found, value));
}

void Context::refuse_unread() const {
  for (const Attribute& a : node.attributes) {
    if (!read_.contains(a.name)) refuse(formatted("attribute '{}' is not supported", a.name));
  }
}

Ints Context::ints_since(std::int64_t since, std::string_view name, std::size_t i, Ints fallback) {
  if (opset < since) return ints(name, std::move(fallback));
  return has(i) ? ints(i, name) : std::move(fallback);
}

int Context::axis(std::int64_t axis, int rank) const {
  if (axis < -rank || axis >= rank) refuse(formatted("axis {} of a tensor of rank {}", axis, rank));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Ints Context::axes(const Ints& axes, int rank) const {
  Ints result;
  for (const std::int64_t a : axes) result.push_back(axis(a, rank));
  std::ranges::sort(result);
  if (std::ranges::adjacent_find(result) != result.end()) refuse("an axis is listed twice");
  return result;
}

DType Context::element(std::int64_t number) {
  const ElementType type = element_type(number);
  if (!type.dtype) refuse("tensors of " + type.name + " are not supported");
  result_bits = type.bits;
  return f64_as_f32_ && *type.dtype == DType::f64 ? DType::f32 : *type.dtype;
}

DType Context::element(std::string_view name, std::optional<DType> fallback) {
  if (fallback && !has_attribute(name)) return *fallback;
  return element(integer(name));
}

Value Context::filled(const Shape& shape, double value, DType dtype) {
  return expand(constant(value, dtype), dims_of(shape));
}

// ---- shared

Value widen(Value x) {
  switch (x.dtype()) {
    case DType::i8:
    case DType::u8:
    case DType::i16:
    case DType::u16:
      return cast(x, DType::i32);
    default:
      return x;
  }
}

Ints dims_of(const Shape& shape) { return {shape.begin(), shape.end()}; }

Value reshaped(Value x, const Ints& dims) { return dims_of(x.shape()) == dims ? x : reshape(x, dims); }

Value counted(Context& c, std::int64_t n, DType dtype) {
  const Value i = iota(c.graph, {n}, 0);
  return dtype == DType::i32 ? i : cast(i, dtype);
}

Value from_start(Value indices, std::int64_t extent) {
  if (indices.dtype() != DType::i32 && indices.dtype() != DType::i64) indices = cast(indices, DType::i32);
  return select(less(indices, 0), add(indices, extent), indices);
}

Value second_operand(Context& c) {
  Value b = c.in(1);
  if (c.opset >= 7) return b;
  c.ignore("consumed_inputs");
  const bool broadcast = c.flag("broadcast", false);
  const std::int64_t axis = c.integer("axis", c.rank(0) - b.shape().rank());
  if (!broadcast) return b;
  Ints dims = dims_of(b.shape());
  const std::int64_t missing = c.rank(0) - c.axis(axis, c.rank(0) + 1) - b.shape().rank();
  if (missing < 0) c.refuse(formatted("axis {} for operands of rank {} and {}", axis, c.rank(0), b.shape().rank()));
  dims.resize(dims.size() + static_cast<std::size_t>(missing), 1);
  return reshaped(b, dims);
}

// ---- the table

namespace {

std::vector<const Op*> table() {
  std::vector<const Op*> ops;
  for (const auto family :
       {math_ops(), logic_ops(), shape_ops(), index_ops(), reduce_ops(), product_ops(), window_ops(), norm_ops(),
        loss_ops(), resize_ops(), quantize_ops(), recurrent_ops(), signal_ops()}) {
    for (const Op& op : family) ops.push_back(&op);
  }
  std::ranges::sort(ops, {}, [](const Op* op) { return std::string_view(op->name); });
  return ops;
}

}  // namespace

std::span<const Op* const> all_ops() {
  static const std::vector<const Op*> ops = table();
  return ops;
}

const Op* find_op(std::string_view domain, std::string_view name) {
  const auto found =
      std::ranges::equal_range(all_ops(), name, {}, [](const Op* op) { return std::string_view(op->name); });
  const auto op = std::ranges::find(found, domain, [](const Op* o) { return std::string_view(o->domain); });
  return op == found.end() ? nullptr : *op;
}

}  // namespace aeshna::onnx

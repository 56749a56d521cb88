// Inputs, weights and outputs of a model.
#include <algorithm>

#include "base/fail.h"
#include "base/names.h"
#include "io/onnx/importer_impl.h"

namespace aeshna::onnx {

bool on_device(DType dtype) { return dtype != DType::f64 && dtype != DType::f8e4m3 && dtype != DType::f8e5m2; }

std::string off_device(DType dtype) {
  return dtype == DType::f64 ? "computes with f64, which no device does (f64_as_f32, --f64-as-f32, rounds to f32)"
                             : formatted("computes with {}, which no device does", dtype_name(dtype));
}

Literal converted(const Literal& literal, DType dtype) {
  if (literal.type().dtype == dtype) return literal;
  return Literal::from_doubles({dtype, literal.type().shape}, literal.to_doubles());
}

void Importer::find_statistics(std::span<const Node> nodes) {
  for (const Node& node : nodes) {
    if (node.op == "BatchNormalization" && node.inputs.size() == 5)
      statistics_.insert({node.inputs[3], node.inputs[4]});
    for (const Attribute& a : node.attributes) {
      if (a.graph) find_statistics(a.graph->nodes);
    }
  }
}

void Importer::declare(Scope& scope, const std::string& name, Symbol* s) const {
  if (!scope.names.emplace(name, s).second)
    fail(ErrorCode::CorruptFile, "{}: the name '{}' is used twice", model_.file, name);
}

void Importer::declare_initializers(const Graph& from, Scope& scope) {
  for (const Tensor& t : from.initializers) {
    if (!t.unsupported.empty()) {
      refuse({t.name, "initializer", t.unsupported, {}});
      declare(scope, t.name, nullptr);
    } else {
      declare(scope, t.name, constant(t.value, t.name));
    }
  }
}

void Importer::declare_inputs(Scope& scope) {
  std::vector<std::string> open;
  std::set<std::string> names;
  for (const ValueInfo& info : model_.graph.inputs) {
    if (scope.names.contains(info.name)) continue;  // old files list the weights here too
    names.insert(info.name);
    if (!info.unsupported.empty()) {
      refuse({info.name, "input", "is " + info.unsupported, {}});
      declare(scope, info.name, nullptr);
      continue;
    }
    DType dtype = *info.element.dtype;
    if (options_.f64_as_f32 && dtype == DType::f64) dtype = DType::f32;
    if (const auto bound = options_.binds.find(info.name); bound != options_.binds.end()) {
      declare(scope, info.name, constant(bound_value(info, bound->second, dtype), {}, info.element.bits));
      continue;
    }
    const std::optional<Shape> shape = input_shape(info, open);
    if (!shape) {
      declare(scope, info.name, nullptr);
      continue;
    }
    Symbol s{.type = {dtype, *shape}, .bits = info.element.bits, .inputs = {info.name}};
    if (on_device(dtype)) s.value = graph.input(info.name, *shape, dtype);
    outcome_.model.inputs.push_back(info.name);
    if (info.element.bits == 4)
      outcome_.model.ranges[info.name] = dtype == DType::i8 ? std::pair(-8.0, 7.0) : std::pair(0.0, 15.0);
    declare(scope, info.name, symbol(std::move(s)));
  }
  const auto check = [&](const auto& given, const char* what) {
    for (const auto& [name, value] : given) {
      if (!names.contains(name)) {
        fail(ErrorCode::InvalidArgument, "{}: a {} is given for '{}', which is no input{}", model_.file, what, name,
             suggest_names(name, std::vector<std::string>(names.begin(), names.end())));
      }
    }
  };
  check(options_.shapes, "shape");
  check(options_.binds, "value");
  if (open.empty()) return;
  std::string list;
  for (const std::string& line : open) list += "\n  " + line;
  fail(ErrorCode::InvalidArgument, "{}: inputs with open dimensions need a shape (--shape NAME=D,D,...):{}",
       model_.file, list);
}

std::optional<Shape> Importer::input_shape(const ValueInfo& info, std::vector<std::string>& open) const {
  const auto given = options_.shapes.find(info.name);
  if (given != options_.shapes.end()) {
    const Shape& shape = given->second;
    bool fits = !info.dims || static_cast<int>(info.dims->size()) == shape.rank();
    for (int i = 0; fits && info.dims && i < shape.rank(); ++i) {
      const Dimension& d = (*info.dims)[static_cast<std::size_t>(i)];
      fits = d.value < 0 || d.value == shape[i];
    }
    if (!fits) {
      fail(ErrorCode::ShapeMismatch, "{}: input '{}' is {}, the shape given {}", model_.file, info.name,
           info.type_text(), shape.to_string());
    }
    return shape;
  }
  Ints dims;
  if (info.dims) {
    for (const Dimension& d : *info.dims) dims.push_back(d.value);
  }
  if (!info.dims || std::ranges::any_of(dims, [](std::int64_t d) { return d < 0; })) {
    open.push_back(formatted("'{}' is {}", info.name, info.type_text()));
    return std::nullopt;
  }
  if (dims.size() > Shape::kMaxRank)
    fail(ErrorCode::Unsupported, "{}: input '{}' has rank {}; the largest is {}", model_.file, info.name, dims.size(),
         Shape::kMaxRank);
  return Shape(std::span<const std::int64_t>(dims));
}

Literal Importer::bound_value(const ValueInfo& info, const Literal& given, DType dtype) const {
  try {
    Literal value = converted(given, dtype);
    Ints dims;
    bool closed = info.dims.has_value();
    if (closed) {
      for (const Dimension& d : *info.dims) {
        dims.push_back(d.value);
        closed = closed && d.value >= 0;
      }
    }
    if (closed && Shape(std::span<const std::int64_t>(dims)) != value.type().shape) {
      const Shape shape{std::span<const std::int64_t>(dims)};
      if (shape.elements() != value.type().shape.elements() || shape.elements() != 1) {
        fail(ErrorCode::ShapeMismatch, "the input is {}, the value {}", info.type_text(), value.type().to_string());
      }
      value = Literal({dtype, shape}, {value.bytes().begin(), value.bytes().end()});
    }
    return value;
  } catch (Error& error) {
    throw error.context(formatted("the value given for input '{}' of {}", info.name, model_.file));
  }
}

void Importer::add_output(const std::string& name, const Scope& scope) {
  const auto [there, s] = scope.find(name);
  if (!there) fail(ErrorCode::CorruptFile, "{}: output '{}' is made by no node", model_.file, name);
  if (s == nullptr) {  // its node is in the list
    if (outcome_.unsupported.empty()) refuse({name, "output", "nothing makes it", {}});
    return;
  }
  try {
    outcome_.model.graph->output(name, value(*s));
    outcome_.model.outputs.push_back(name);
  } catch (const Refusal& refusal) {
    refuse({name, "output", refusal.reason, {}});
  }
}

}  // namespace aeshna::onnx

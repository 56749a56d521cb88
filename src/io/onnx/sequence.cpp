// Sequences and optional values: lists of symbols, resolved when a model is loaded. A device has tensors only.
#include <algorithm>
#include <array>

#include "base/fail.h"
#include "io/onnx/importer_impl.h"

namespace aeshna::onnx {
namespace {

std::int64_t attribute_of(const Node& node, std::string_view name, std::int64_t fallback) {
  for (const Attribute& a : node.attributes) {
    if (a.name != name) continue;
    if (a.kind != Attribute::Kind::Int) throw Refusal{formatted("attribute '{}' is no integer", name)};
    return a.i;
  }
  return fallback;
}

Symbol* operand(const Node& node, std::span<Symbol* const> inputs, std::size_t i) {
  if (i >= inputs.size() || inputs[i] == nullptr) throw Refusal{formatted("input {} of {} is missing", i, node.op)};
  return inputs[i];
}

const std::vector<Symbol*>& items(const Node& node, std::span<Symbol* const> inputs, std::size_t i) {
  const Symbol* s = operand(node, inputs, i);
  if (!s->items) throw Refusal{formatted("input {} is no sequence", i)};
  return *s->items;
}

Symbol* tensor(const Node& node, std::span<Symbol* const> inputs, std::size_t i) {
  Symbol* s = operand(node, inputs, i);
  if (s->items) throw Refusal{formatted("input {} is a sequence, a tensor is expected", i)};
  return s;
}

Ints known_ints(const Node& node, std::span<Symbol* const> inputs, std::size_t i) {
  const Symbol* s = tensor(node, inputs, i);
  if (!s->known || !is_integer(s->type.dtype))
    throw Refusal{formatted("'{}' must be known when the model is loaded", node.inputs[i]), i};
  return to_ints(*s->known);
}

/// The place that input i says, in a sequence of n; negative ones count from the end.
std::ptrdiff_t position(const Node& node, std::span<Symbol* const> inputs, std::size_t i, std::size_t n,
                        bool behind_too) {
  const Ints values = known_ints(node, inputs, i);
  const auto size = static_cast<std::int64_t>(n);
  std::int64_t at = values.size() == 1 ? values[0] : INT64_MAX;
  if (at < 0) at += size;
  if (at < 0 || at >= size + (behind_too ? 1 : 0)) throw Refusal{formatted("position {} of a sequence of {}", at, n)};
  return static_cast<std::ptrdiff_t>(at);
}

}  // namespace

Importer::SequenceOp Importer::sequence_op(const Node& node) {
  struct Row {
    const char* name;
    SequenceOp op;
  };
  static constexpr std::array table = {
      Row{"ConcatFromSequence", &Importer::concat_from_sequence},
      Row{"Optional", &Importer::optional_element},
      Row{"OptionalGetElement", &Importer::optional_element},
      Row{"OptionalHasElement", &Importer::optional_has_element},
      Row{"SequenceAt", &Importer::sequence_at},
      Row{"SequenceConstruct", &Importer::sequence_construct},
      Row{"SequenceEmpty", &Importer::sequence_construct},
      Row{"SequenceErase", &Importer::sequence_erase},
      Row{"SequenceInsert", &Importer::sequence_insert},
      Row{"SequenceLength", &Importer::sequence_length},
      Row{"SequenceMap", &Importer::sequence_map},
      Row{"SplitToSequence", &Importer::split_to_sequence},
  };
  if (!node.domain.empty()) return nullptr;
  const auto found = std::ranges::find(table, std::string_view(node.op), &Row::name);
  return found == table.end() ? nullptr : found->op;
}

Symbols Importer::sequence_construct(const Node& node, std::span<Symbol* const> inputs, const Scope&, const Opsets&,
                                     int) {
  for (std::size_t i = 0; i < inputs.size(); ++i) (void)tensor(node, inputs, i);
  return {sequence({inputs.begin(), inputs.end()})};
}

Symbols Importer::sequence_insert(const Node& node, std::span<Symbol* const> inputs, const Scope&, const Opsets&, int) {
  Symbols list = items(node, inputs, 0);
  const std::ptrdiff_t at =
      inputs.size() > 2 ? position(node, inputs, 2, list.size(), true) : static_cast<std::ptrdiff_t>(list.size());
  list.insert(list.begin() + at, tensor(node, inputs, 1));
  return {sequence(std::move(list))};
}

Symbols Importer::sequence_erase(const Node& node, std::span<Symbol* const> inputs, const Scope&, const Opsets&, int) {
  Symbols list = items(node, inputs, 0);
  if (list.empty()) throw Refusal{"an empty sequence"};
  list.erase(list.begin() + (inputs.size() > 1 ? position(node, inputs, 1, list.size(), false)
                                               : static_cast<std::ptrdiff_t>(list.size()) - 1));
  return {sequence(std::move(list))};
}

Symbols Importer::sequence_at(const Node& node, std::span<Symbol* const> inputs, const Scope&, const Opsets&, int) {
  const Symbols& list = items(node, inputs, 0);
  return {list[static_cast<std::size_t>(position(node, inputs, 1, list.size(), false))]};
}

Symbols Importer::sequence_length(const Node& node, std::span<Symbol* const> inputs, const Scope&, const Opsets&, int) {
  return {constant(Literal::scalar(static_cast<double>(items(node, inputs, 0).size()), DType::i64))};
}

Symbols Importer::split_to_sequence(const Node& node, std::span<Symbol* const> inputs, const Scope&, const Opsets&,
                                    int) {
  Symbol* whole = tensor(node, inputs, 0);
  const Shape shape = whole->type.shape;
  const int axis = shape.axis(attribute_of(node, "axis", 0));
  const std::int64_t extent = shape[axis];
  Ints sizes;
  const bool given = inputs.size() > 1 && inputs[1] != nullptr;
  if (given) sizes = known_ints(node, inputs, 1);
  if (!given || inputs[1]->type.shape.rank() == 0) {  // parts of this size, the last one smaller
    const std::int64_t size = given ? sizes.at(0) : 1;
    if (size < 1 || extent / size > kMaxIterations)
      throw Refusal{formatted("{} elements in parts of {}", extent, size)};
    sizes.clear();
    for (std::int64_t at = 0; at < extent; at += size) sizes.push_back(std::min(size, extent - at));
  }
  if (sizes.size() > static_cast<std::size_t>(kMaxIterations)) throw Refusal{formatted("{} parts", sizes.size())};
  Symbols list;
  std::int64_t start = 0;
  for (const std::int64_t size : sizes) {
    if (size < 0 || size > extent - start) throw Refusal{formatted("parts that do not fit the {} elements", extent)};
    Value part = slice(value(*whole), {axis}, {start}, {start + size});
    if (!given && attribute_of(node, "keepdims", 1) == 0) {
      Ints dims = dims_of(shape);
      dims.erase(dims.begin() + axis);
      part = reshape(part, dims);
    }
    list.push_back(symbol({.type = part.type(), .value = part, .inputs = whole->inputs}));
    start += size;
  }
  if (start != extent) throw Refusal{formatted("parts of {} elements in all, of {}", start, extent)};
  return {sequence(std::move(list))};
}

Symbols Importer::concat_from_sequence(const Node& node, std::span<Symbol* const> inputs, const Scope&, const Opsets&,
                                       int) {
  const Symbols& list = items(node, inputs, 0);
  if (list.empty()) throw Refusal{"an empty sequence"};
  const int rank = list[0]->type.shape.rank();
  if (attribute_of(node, "new_axis", 0) != 0) {
    const std::int64_t axis = attribute_of(node, "axis", 0);
    if (axis < -rank - 1 || axis > rank) throw Refusal{formatted("axis {}", axis)};
    return {stacked(list, static_cast<std::size_t>(axis < 0 ? axis + rank + 1 : axis), false)};
  }
  std::vector<Value> parts;
  std::set<std::string> depends;
  for (Symbol* s : list) {
    parts.push_back(value(*s));
    depends.insert(s->inputs.begin(), s->inputs.end());
  }
  const Value v = parts.size() == 1 ? parts[0] : concat(parts, attribute_of(node, "axis", 0));
  return {symbol({.type = v.type(), .value = v, .inputs = depends})};
}

Symbols Importer::sequence_map(const Node& node, std::span<Symbol* const> inputs, const Scope& scope,
                               const Opsets& opsets, int depth) {
  const Graph* body = nullptr;
  for (const Attribute& a : node.attributes) {
    if (a.name == "body") body = a.graph.get();
  }
  if (body == nullptr) throw Refusal{"attribute 'body' is missing or no graph"};
  const std::size_t count = items(node, inputs, 0).size();
  std::vector<Symbols> lists(body->outputs.size());
  for (std::size_t k = 0; k < count; ++k) {
    Symbols arguments;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Symbol* s = operand(node, inputs, i);
      if (s->items && s->items->size() != count) throw Refusal{"its sequences have different lengths"};
      arguments.push_back(s->items ? (*s->items)[k] : s);
    }
    const Symbols results = run_body(*body, arguments, scope, opsets, depth);
    if (std::ranges::find(results, nullptr) != results.end()) return {};  // in the list
    for (std::size_t i = 0; i < results.size(); ++i) lists[i].push_back(results[i]);
  }
  Symbols results;
  for (Symbols& list : lists) results.push_back(sequence(std::move(list)));
  return results;
}

Symbols Importer::optional_has_element(const Node&, std::span<Symbol* const> inputs, const Scope&, const Opsets&, int) {
  return {constant(Literal::scalar(!inputs.empty() && inputs[0] != nullptr ? 1 : 0, DType::boolean))};
}

Symbols Importer::optional_element(const Node& node, std::span<Symbol* const> inputs, const Scope&, const Opsets&,
                                   int) {
  return {operand(node, inputs, 0)};  // an optional value that is there is the value itself
}

Symbol* Importer::sequence(Symbols list) {
  std::set<std::string> depends;
  for (const Symbol* s : list) depends.insert(s->inputs.begin(), s->inputs.end());
  return symbol({.items = std::move(list), .inputs = std::move(depends)});
}

}  // namespace aeshna::onnx

#include "compile/kernel_builder.h"

#include <algorithm>

#include "base/checked.h"
#include "base/fail.h"
#include "base/format.h"
#include "base/half.h"
#include "compile/kernel_simplify.h"
#include "ir/access.h"
#include "ir/device_types.h"

namespace aeshna {

bool FusionState::is_literal(NodeId id) const {
  const Node& node = graph.node(id);
  if (node.op->name != "constant") return false;
  const auto& value = node.attrs.get<Literal>("value");
  const std::int64_t n = value.type().shape.elements();
  if (n == 0 || dtype_info(value.type().dtype).block_elements > 1) return false;
  if (n == 1) return true;
  const auto bytes = value.bytes();
  const std::size_t size = bytes.size() / static_cast<std::size_t>(n);
  return std::equal(bytes.begin() + static_cast<std::ptrdiff_t>(size), bytes.end(), bytes.begin());
}

void FusionState::find_readers() {
  readers.assign(users.size(), {});
  for (NodeId node = static_cast<NodeId>(users.size()); node-- > 0;) {  // users first
    auto& found = readers[node];
    const auto add = [&](NodeId reader) {
      if (std::ranges::find(found, reader) == found.end()) found.push_back(reader);
    };
    for (const NodeId user : users[node]) {
      if (!transparent[user]) {
        add(user);
      } else {
        for (const NodeId reader : readers[user]) add(reader);
      }
    }
  }
}

bool FusionState::escapes(NodeId node) const {
  if (external[node] || storage[node].node != node) return true;
  return std::ranges::any_of(readers[node], [&](NodeId user) { return cluster_of[user] != cluster_of[node]; });
}

namespace {

/// Ops whose result is exact in the dtype of their operands: what they give needs no rounding.
bool keeps_precision(std::string_view op) {
  constexpr std::string_view kOps[] = {"neg",  "abs",   "sign", "maximum", "minimum", "select", "clamp",
                                       "relu", "floor", "ceil", "round",   "trunc",   "stop_gradient"};
  return std::ranges::contains(kOps, op);
}

/// Thrown inside the builder only: the space must be refined, or the cluster is no kernel.
struct Restart {
  SplitRequest split;     ///< of a dimension of the main space, or
  bool contracted = false;  ///< of the contracted extents
};

struct Builder {
  const FusionState& state;
  const Graph& graph;
  int id;
  FusedKernel kernel;
  NodeId base = 0;                      ///< node whose domain is the kernel's space
  std::vector<std::int64_t> extents;    ///< of the main space
  std::vector<AffineExpr> domain;       ///< one expression per axis of the base domain
  Contraction contraction;              ///< Matmul: of the base
  std::vector<std::int64_t> k_extents;  ///< Matmul: the contracted extents, and
  std::vector<AffineExpr> k_domain;     ///< one expression of them per axis k of the contraction
  std::optional<NodeId> widest;         ///< transparent node that brings in the most operands: the one to store if there are too many

  /// One body under construction.
  struct Context {
    Body* body;
    const std::vector<std::int64_t>* extents;
    std::vector<std::tuple<ValueId, IndexMap, std::uint32_t>> memo;
  };

  Builder(const FusionState& s, int cluster) : state(s), graph(s.graph), id(cluster) {}

  [[noreturn]] void give_up(std::string why, std::optional<NodeId> materialise = std::nullopt) const {
    throw BuildFailure{std::move(why), materialise};
  }

  bool inside(NodeId node) const { return state.cluster_of[node] == id; }
  std::size_t rank() const { return extents.size(); }

  // ---- instructions

  std::uint32_t push(Context& context, Instr instr) const {
    context.body->instrs.push_back(std::move(instr));
    return static_cast<std::uint32_t>(context.body->instrs.size() - 1);
  }
  std::uint32_t push_literal(Context& context, double value, DType dtype) const {
    Instr instr;
    instr.kind = Instr::Kind::Literal;
    instr.dtype = dtype;
    instr.literal = value;
    return push(context, std::move(instr));
  }
  std::uint32_t push_op(Context& context, std::string_view op, DType dtype, std::vector<std::uint32_t> args) const {
    Instr instr;
    instr.kind = Instr::Kind::Op;
    instr.op = &find_op(op);
    instr.dtype = dtype;
    instr.args = std::move(args);
    return push(context, std::move(instr));
  }
  /// An f32 value as a value of `dtype`: f16 and bf16 are rounded whether or not they ever reach memory, so that no result
  /// depends on what was fused.
  std::uint32_t rounded(Context& context, std::uint32_t value, DType dtype) const {
    if (!is_half(dtype)) return value;
    const std::uint32_t result = push_op(context, "cast", DType::f32, {value});
    context.body->instrs[result].rounding = dtype;
    return result;
  }

  /// The value of the expression, as i32.
  std::uint32_t push_index(Context& context, const AffineExpr& e) const {
    if (e.is_constant()) return push_literal(context, static_cast<double>(e.offset), DType::i32);
    std::optional<std::uint32_t> sum;
    std::int64_t offset = e.offset;
    for (std::uint32_t j = 0; j < e.coefficient.size(); ++j) {
      if (e.coefficient[j] == 0) continue;
      Instr instr;
      instr.kind = Instr::Kind::Index;
      instr.dtype = DType::i32;
      instr.dim = j;
      instr.access.strides = {e.coefficient[j]};
      instr.access.offset = offset;
      offset = 0;
      const std::uint32_t term = push(context, std::move(instr));
      sum = sum ? push_op(context, "add", DType::i32, {*sum, term}) : term;
    }
    return *sum;
  }

  std::uint32_t operand_index(ValueId value, bool written) {
    for (std::uint32_t i = 0; i < kernel.operands.size(); ++i) {
      if (kernel.operands[i].value == value && kernel.operands[i].written == written) return i;
    }
    const TensorType& type = graph.type(value);
    KernelOperand operand;
    operand.value = value;
    operand.dtype = type.dtype;
    operand.elements = type.shape.elements();
    operand.part_elements = part_elements(type, state.caps);
    operand.written = written;
    kernel.operands.push_back(operand);
    return static_cast<std::uint32_t>(kernel.operands.size() - 1);
  }

  std::uint32_t push_load(Context& context, ValueId stored, const Shape& seen_shape, const IndexMap& map,
                          std::optional<double> fill) {
    Instr instr;
    instr.kind = Instr::Kind::Load;
    instr.dtype = compute_dtype(graph.type(stored).dtype);
    instr.operand = operand_index(stored, false);
    instr.access = dense_access(map, seen_shape, context.extents->size());
    instr.access.fill = fill.value_or(0);
    return push(context, std::move(instr));
  }

  /// What a value is in memory, if it is: the stored value and nothing but reshapes in between. Numbers of the text are not,
  /// unless `literals` asks for their constants.
  std::optional<ValueId> in_memory(ValueId value, bool literals = false) const {
    while (true) {
      const Node& n = graph.node(value.node);
      if (n.op->kind == OpKind::Leaf) return state.is_literal(value.node) && !literals ? std::nullopt : std::optional(value);
      if (!state.transparent[value.node]) {
        if (inside(value.node)) return std::nullopt;
        return value.result > 0 ? value : state.storage[value.node];
      }
      if (n.op->movement != MovementKind::Reshape) return std::nullopt;
      value = n.inputs[0];
    }
  }

  // ---- values

  std::uint32_t evaluate(Context& context, ValueId value, const IndexMap& map) {
    for (const auto& [v, m, instr] : context.memo) {
      if (v == value && m == map) return instr;
    }
    const std::uint32_t result = evaluate_new(context, value, map);
    context.memo.emplace_back(value, map, result);
    return result;
  }

  std::uint32_t evaluate_new(Context& context, ValueId value, const IndexMap& map) {
    const Node& node = graph.node(value.node);
    if (state.transparent[value.node] && node.inputs.size() > 1 &&
        (!widest || node.inputs.size() > graph.node(*widest).inputs.size())) {
      widest = value.node;
    }
    const Shape& shape = graph.type(value).shape;
    if (state.is_literal(value.node)) {
      const double number = node.attrs.get<Literal>("value").at(0);
      const DType dtype = compute_dtype(node.results[0].dtype);
      const double low = dtype == DType::u32 ? 0 : -2147483648.0, high = dtype == DType::u32 ? 4294967295.0 : 2147483647.0;
      if ((dtype == DType::i32 || dtype == DType::u32) && (number < low || number > high)) {
        fail(ErrorCode::OutOfRange, "constant {} of dtype {} at {} does not fit the 32 bits that it has on a device", number,
             dtype_name(node.results[0].dtype), node.line.to_string());
      }
      return push_literal(context, number, dtype);
    }
    if (const auto stored = in_memory(value)) return push_load(context, *stored, shape, map, std::nullopt);
    switch (node.op->kind) {
      case OpKind::Pointwise:
        return evaluate_pointwise(context, node, map);
      case OpKind::Gather:
        return evaluate_gather(context, node, map);
      case OpKind::Movement:
        return evaluate_movement(context, node, map);
      case OpKind::Index:
        return push_index(context, map.axes[static_cast<std::size_t>(node.attrs.get<std::int64_t>("axis"))]);
      case OpKind::Random:
        return evaluate_random(context, node, map);
      case OpKind::Reduce:
        return evaluate_reduce(context, node, map);
      case OpKind::Product:
        return evaluate_product(context, value.node, node, map);
      default:
        fail(ErrorCode::Internal, "fusion met a {} node", node.op->name);
    }
  }

  IndexMap operand_map(const Node& node, std::size_t input, const IndexMap& map) const {
    return map_broadcast(map, node.results[0].shape, graph.type(node.inputs[input]).shape);
  }

  std::uint32_t evaluate_pointwise(Context& context, const Node& node, const IndexMap& map) {
    Instr instr;
    instr.kind = Instr::Kind::Op;
    instr.op = node.op;
    const DType dtype = node.results[0].dtype;
    instr.dtype = compute_dtype(dtype);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      instr.args.push_back(evaluate(context, node.inputs[i], operand_map(node, i, map)));
    }
    if (is_half(dtype) && !keeps_precision(node.op->name)) instr.rounding = dtype;
    const std::uint32_t result = push(context, std::move(instr));
    if (node.op->name != "cast") return result;
    const DTypeInfo& info = dtype_info(dtype);
    if (!is_integer(dtype) || info.block_bytes >= 4) return result;
    // Narrow integers live in 32-bit words: floats saturate, integers keep their low bits, as in the interpreter.
    const double range = info.block_elements == 2 ? 16 : info.block_bytes == 1 ? 256 : 65536;
    const bool is_signed = info.kind == DTypeInfo::Kind::Signed;
    const DType word = compute_dtype(dtype);
    const auto literal = [&](double value) { return push_literal(context, value, word); };
    if (is_float(graph.type(node.inputs[0]).dtype)) {
      const double low = is_signed ? -range / 2 : 0;
      const std::uint32_t low_word = literal(low), high_word = literal(low + range - 1);
      return push_op(context, "clamp", word, {result, low_word, high_word});
    }
    const std::uint32_t range_word = literal(range);
    const std::uint32_t rest = push_op(context, "mod", word, {result, range_word});
    if (!is_signed) return rest;
    const std::uint32_t negative = push_op(context, "greater_equal", DType::boolean, {rest, literal(range / 2)});
    const std::uint32_t wrapped = push_op(context, "sub", word, {rest, range_word});
    return push_op(context, "select", word, {negative, wrapped, rest});
  }

  /// A load with a part that depends on the index. x must be in memory, as it is or as a view; or x is a gather of this kernel along
  /// another axis whose own index does not vary along this one: then the load has two such parts.
  std::uint32_t evaluate_gather(Context& context, const Node& node, const IndexMap& map) {
    const DType dtype = compute_dtype(node.results[0].dtype);
    Instr instr;
    instr.kind = Instr::Kind::Load;
    instr.dtype = dtype;
    instr.access.guards = map.guards;
    std::vector<bool> dynamic(map.axes.size(), false);
    std::vector<std::size_t> axes;  // of instr.args
    IndexMap at = map;              // meaningful where an axis is not dynamic
    const Node* gather = &node;
    while (true) {
      axes.push_back(static_cast<std::size_t>(gather->attrs.get<std::int64_t>("axis")));
      dynamic[axes.back()] = true;
      instr.args.push_back(evaluate(context, gather->inputs[1], operand_map(*gather, 1, at)));
      at = operand_map(*gather, 0, at);
      const ValueId x = gather->inputs[0];
      if (graph.type(x).shape.elements() == 0) return push_literal(context, 0, dtype);
      const Node& next = graph.node(x.node);
      if (next.op->kind != OpKind::Gather || !(inside(x.node) || state.transparent[x.node])) break;
      const auto inner = static_cast<std::size_t>(next.attrs.get<std::int64_t>("axis"));
      bool uniform = !dynamic[inner];
      for (std::size_t d = 0; d < dynamic.size(); ++d) {
        uniform = uniform && (!dynamic[d] || graph.type(next.inputs[1]).shape[static_cast<int>(d)] == 1);
      }
      if (!uniform) break;
      gather = &next;
    }
    const Shape& shape = graph.type(gather->inputs[0]).shape;
    const auto [stored, source] = view(gather->inputs[0], false);
    instr.operand = operand_index(stored, false);
    instr.access.strides.assign(context.extents->size(), 0);
    instr.access.offset = source.offset;
    for (const std::size_t axis : axes) instr.access.dynamic.push_back({source.strides[axis], shape[static_cast<int>(axis)]});
    for (std::size_t d = 0; d < source.strides.size(); ++d) {
      if (dynamic[d]) continue;
      for (std::size_t j = 0; j < instr.access.strides.size(); ++j) {
        instr.access.strides[j] += at.axes[d].coefficient[j] * source.strides[d];
      }
      instr.access.offset += at.axes[d].offset * source.strides[d];
    }
    return push(context, std::move(instr));
  }

  /// AND of the guards as a boolean instruction.
  std::uint32_t push_inside(Context& context, std::span<const Access::Guard> guards) {
    std::optional<std::uint32_t> all;
    const auto require = [&](std::uint32_t condition) {
      all = all ? push_op(context, "logical_and", DType::boolean, {*all, condition}) : condition;
    };
    for (const auto& guard : guards) {
      AffineExpr sum = zero_expr(context.extents->size());
      std::int64_t low = 0, high = 0;  // that the sum reaches
      for (const auto& [dim, coefficient] : guard.terms) {
        sum.coefficient[dim] = coefficient;
        (coefficient < 0 ? low : high) += coefficient * ((*context.extents)[dim] - 1);
      }
      const std::uint32_t index = push_index(context, sum);
      if (guard.low > low) {
        require(push_op(context, "greater_equal", DType::boolean,
                        {index, push_literal(context, static_cast<double>(guard.low), DType::i32)}));
      }
      if (guard.high <= high) {
        require(push_op(context, "less", DType::boolean,
                        {index, push_literal(context, static_cast<double>(guard.high), DType::i32)}));
      }
    }
    return all ? *all : push_literal(context, 1, DType::boolean);
  }

  /// Starts and steps are listed for `axes`; the other axes are whole.
  static IndexMap slice_map(const Node& node, const IndexMap& map) {
    const auto& axes = node.attrs.get<std::vector<std::int64_t>>("axes");
    const auto& starts = node.attrs.get<std::vector<std::int64_t>>("starts");
    const auto& steps = node.attrs.get<std::vector<std::int64_t>>("steps");
    std::vector<std::int64_t> start(map.axes.size(), 0), step(map.axes.size(), 1);
    for (std::size_t i = 0; i < axes.size(); ++i) {
      start[static_cast<std::size_t>(axes[i])] = starts[i];
      step[static_cast<std::size_t>(axes[i])] = steps[i];
    }
    return map_slice(map, start, step);
  }

  std::uint32_t evaluate_movement(Context& context, const Node& node, const IndexMap& map) {
    const ValueId source = node.inputs[0];
    const Shape& shape = node.results[0].shape;
    switch (node.op->movement) {
      case MovementKind::Expand:
        return evaluate(context, source, operand_map(node, 0, map));
      case MovementKind::Permute:
        return evaluate(context, source, map_permute(map, node.attrs.get<std::vector<std::int64_t>>("axes")));
      case MovementKind::Slice:
        return evaluate(context, source, slice_map(node, map));
      case MovementKind::Reshape: {
        if (const auto stored = in_memory(source)) return push_load(context, *stored, shape, map, std::nullopt);
        std::optional<SplitRequest> split;
        const auto source_map = map_reshape(map, shape, graph.type(source).shape, *context.extents, split);
        if (source_map) return evaluate(context, source, *source_map);
        if (split) throw restart(context, *split);
        give_up("a reshape of a computed value has no affine index map", source_to_materialise(source.node));
      }
      case MovementKind::Pad: {
        const auto& before = node.attrs.get<std::vector<std::int64_t>>("before");
        const auto padded = map_pad(map, before, graph.type(source).shape, *context.extents);
        return guarded(context, source, padded, node.attrs.get<double>("value"), node.results[0].dtype);
      }
      case MovementKind::Flip:
        return evaluate(context, source, map_flip(map, node.attrs.get<std::vector<std::int64_t>>("axes"), shape));
      case MovementKind::Windows: {
        const auto& strides = node.attrs.get<std::vector<std::int64_t>>("stride");
        const IndexMap windows = map_windows(map, strides, node.attrs.get<std::vector<std::int64_t>>("dilation"));
        std::vector<std::int64_t> before(windows.axes.size() - strides.size(), 0);
        const auto& listed = node.attrs.get<std::vector<std::int64_t>>("before");
        before.insert(before.end(), listed.begin(), listed.end());
        const auto padded = map_pad(windows, before, graph.type(source).shape, *context.extents);
        return guarded(context, source, padded, node.attrs.get<double>("value"), node.results[0].dtype);
      }
      case MovementKind::Concat: {
        const auto axis = static_cast<std::size_t>(node.attrs.get<std::int64_t>("axis"));
        std::int64_t start = shape[static_cast<int>(axis)];
        std::optional<std::uint32_t> result;
        for (std::size_t i = node.inputs.size(); i-- > 0;) {
          const Shape& part = graph.type(node.inputs[i]).shape;
          start -= part[static_cast<int>(axis)];
          if (part[static_cast<int>(axis)] == 0) continue;
          std::vector<std::int64_t> before(map.axes.size(), 0);
          before[axis] = start;
          const auto shifted = map_pad(map, before, part, *context.extents);
          if (shifted.never) continue;
          IndexMap part_map = shifted.map;
          part_map.guards.insert(part_map.guards.end(), shifted.guards.begin(), shifted.guards.end());
          const std::uint32_t part_value = evaluate(context, node.inputs[i], part_map);
          result = result ? push_op(context, "select", context.body->instrs[part_value].dtype,
                                    {push_inside(context, shifted.guards), part_value, *result})
                          : part_value;
        }
        return result ? *result : push_literal(context, 0, compute_dtype(node.results[0].dtype));
      }
      case MovementKind::None:
        break;
    }
    fail(ErrorCode::Internal, "movement op {} has no kind", node.op->name);
  }

  /// The nearest value behind `node` that can be put in memory so that a failed reshape becomes a view of it.
  NodeId source_to_materialise(NodeId node) const {
    while (state.graph.node(node).op->movement == MovementKind::Reshape && state.transparent[node]) {
      node = graph.node(node).inputs[0].node;
    }
    return node;
  }

  /// A split of a dimension of the context's space is one of the main space or of the contracted extents.
  Restart restart(const Context& context, SplitRequest split) const {
    if (context.body == &kernel.body) return {split};
    const std::size_t rows = rank() - kernel.row_rank - kernel.column_rank;
    const std::size_t k = context.body == &kernel.a ? rows + kernel.row_rank : rows;
    if (split.dim < k) return {split};
    if (split.dim < k + k_extents.size()) return {{static_cast<std::uint32_t>(split.dim - k), split.inner}, true};
    return {{static_cast<std::uint32_t>(split.dim - k_extents.size() + kernel.row_rank), split.inner}};
  }

  std::uint32_t guarded(Context& context, ValueId source, const GuardedMap& padded, double fill, DType dtype) {
    const DType type = compute_dtype(dtype);
    if (is_half(dtype)) fill = round_to_float(dtype, fill);
    if (padded.never) return push_literal(context, fill, type);
    if (padded.guards.empty()) return evaluate(context, source, padded.map);
    IndexMap map = padded.map;
    map.guards.insert(map.guards.end(), padded.guards.begin(), padded.guards.end());
    // In memory: the load itself is guarded. (Guards from outside may share it: their result is replaced by a select anyway.)
    if (const auto stored = in_memory(source)) {
      return push_load(context, *stored, graph.type(source).shape, map, fill);
    }
    const std::uint32_t value = evaluate(context, source, map);
    return push_op(context, "select", type, {push_inside(context, padded.guards), value, push_literal(context, fill, type)});
  }

  std::uint32_t evaluate_random(Context& context, const Node& node, const IndexMap& map) {
    IndexMap at;
    const Shape& seed_shape = graph.type(node.inputs[0]).shape;
    Instr instr;
    instr.kind = Instr::Kind::Random;
    instr.dtype = DType::u32;
    for (std::int64_t word = 0; word < 2; ++word) {
      at.axes.assign(1, AffineExpr{std::vector<std::int64_t>(context.extents->size(), 0), word});
      AESHNA_CHECK(seed_shape.elements() == 2);
      instr.args.push_back(evaluate(context, node.inputs[0], at));
    }
    instr.args.push_back(evaluate(context, node.inputs[1], IndexMap{}));
    instr.access = dense_access(map, node.results[0].shape, context.extents->size());
    instr.access.guards.clear();
    instr.literal = static_cast<double>(node.attrs.get<std::int64_t>("stream"));
    return push(context, std::move(instr));
  }

  std::uint32_t evaluate_reduce(Context& context, const Node& node, const IndexMap& map) {
    if (kernel.kind != FusedKernel::Kind::Reduction || context.body != &kernel.body) {
      give_up("a reduction inside a product");
    }
    const Node& first = graph.node(base);
    const TensorType& input = graph.type(node.inputs[0]);
    if (input.shape != graph.type(first.inputs[0]).shape ||
        node.attrs.get<std::vector<std::int64_t>>("axes") != first.attrs.get<std::vector<std::int64_t>>("axes")) {
      give_up("reductions over different axes");
    }
    if (map != reduced_map(node)) give_up("a reduction seen through another index map");
    Instr instr;
    instr.kind = Instr::Kind::Reduce;
    instr.reduce = node.op->reduce;
    instr.dtype = compute_dtype(node.results[0].dtype);
    instr.args = {evaluate(context, node.inputs[0], IndexMap{domain, {}})};
    const bool exact = node.op->reduce == ReduceKind::Max || node.op->reduce == ReduceKind::Min;
    const std::uint32_t result = push(context, std::move(instr));
    return exact ? result : rounded(context, result, node.results[0].dtype);
  }

  std::uint32_t evaluate_product(Context& context, NodeId self, const Node& node, const IndexMap& map) {
    if (self != base || context.body != &kernel.body) give_up("a product inside another kernel");
    if (map != IndexMap{domain, {}}) give_up("a product seen through another index map");
    for (std::uint32_t i = 0; i < context.body->instrs.size(); ++i) {
      if (context.body->instrs[i].kind == Instr::Kind::Product) return rounded(context, i, node.results[0].dtype);
    }
    Instr instr;
    instr.kind = Instr::Kind::Product;
    instr.dtype = compute_dtype(node.results[0].dtype);
    return rounded(context, push(context, std::move(instr)), node.results[0].dtype);
  }

  /// Canonical map of a reduction's result: outer coordinates, 0 on kept axes of extent 1.
  IndexMap reduced_map(const Node& node) const {
    const auto& axes = node.attrs.get<std::vector<std::int64_t>>("axes");
    const bool keepdims = node.attrs.get<bool>("keepdims");
    IndexMap map;
    for (std::size_t d = 0; d < domain.size(); ++d) {
      const bool reduced = std::ranges::find(axes, static_cast<std::int64_t>(d)) != axes.end();
      if (!reduced) {
        map.axes.push_back(domain[d]);
      } else if (keepdims) {
        map.axes.push_back(AffineExpr{std::vector<std::int64_t>(rank(), 0), 0});
      }
    }
    return map;
  }

  // ---- the kernel

  /// Space of the base's domain: outer dimensions first, then inner ones; of a product batch, rows, columns. Extents of 1 are
  /// dropped, but a product has at least one row and one column dimension.
  void start_space() {
    const Node& node = graph.node(base);
    const bool reduction = kernel.kind == FusedKernel::Kind::Reduction, matmul = kernel.kind == FusedKernel::Kind::Matmul;
    const Shape shape = reduction ? graph.type(node.inputs[0]).shape : node.results[0].shape;
    std::vector<std::size_t> part(static_cast<std::size_t>(shape.rank()), 0);  // which part of the space an axis belongs to
    if (reduction) {
      for (const std::int64_t axis : node.attrs.get<std::vector<std::int64_t>>("axes")) part[static_cast<std::size_t>(axis)] = 1;
    }
    if (matmul) {
      const std::array operands{graph.type(node.inputs[0]), graph.type(node.inputs[1])};
      contraction = node.op->contraction(node, operands);
      for (std::size_t d = 0; d < part.size(); ++d) part[d] = static_cast<std::size_t>(contraction.roles[d]);
    }
    std::array<std::uint32_t, 3> ranks{};
    std::vector<std::optional<std::size_t>> dim_of(part.size());
    for (std::size_t p = 0; p < ranks.size(); ++p) {
      for (std::size_t d = 0; d < part.size(); ++d) {
        if (part[d] != p || shape[static_cast<int>(d)] == 1) continue;
        dim_of[d] = extents.size();
        extents.push_back(shape[static_cast<int>(d)]);
        ++ranks[p];
      }
      if (matmul && p > 0 && ranks[p] == 0) {
        extents.push_back(1);
        ++ranks[p];
      }
    }
    kernel.outer_rank = ranks[0];
    for (const auto& dim : dim_of) {
      domain.push_back(zero_expr(rank()));
      if (dim) domain.back().coefficient[*dim] = 1;
    }
    if (!matmul) return;
    kernel.outer_rank = rank();
    kernel.row_rank = ranks[1];
    kernel.column_rank = ranks[2];
    for (const std::int64_t extent : contraction.k) {
      if (extent != 1) k_extents.push_back(extent);
    }
    if (k_extents.empty()) k_extents.push_back(1);
    std::size_t next = 0;
    for (const std::int64_t extent : contraction.k) {
      k_domain.push_back(zero_expr(k_extents.size()));
      if (extent != 1) k_domain.back().coefficient[next++] = 1;
    }
    kernel.k = points_of(k_extents);
  }

  void split_space(const Restart& request) {
    const auto& [split, contracted] = request;
    auto& list = contracted ? k_extents : extents;
    const std::size_t j = split.dim;
    const auto at = [&](auto& v) { return v.begin() + static_cast<std::ptrdiff_t>(j); };
    for (auto& e : contracted ? k_domain : domain) {
      const std::int64_t c = e.coefficient[j];
      *at(e.coefficient) = c * split.inner;
      e.coefficient.insert(at(e.coefficient) + 1, c);
    }
    if (!contracted) {
      const std::size_t rows = rank() - kernel.row_rank - kernel.column_rank;
      if (kernel.kind == FusedKernel::Kind::Matmul && j >= rows) ++(j < rows + kernel.row_rank ? kernel.row_rank : kernel.column_rank);
      if (j < kernel.outer_rank) ++kernel.outer_rank;
    }
    *at(list) = list[j] / split.inner;
    list.insert(at(list) + 1, split.inner);
    if (list.size() > 24) give_up("too many dimensions");
  }

  /// Where a stored node lies in the space, and whether once per outer index only: by its shape, or as a reshape of the domain.
  std::pair<IndexMap, bool> place(NodeId id_) {
    const Node& node = graph.node(id_);
    const Shape& shape = node.results[0].shape;
    const Node& base_node = graph.node(base);
    std::optional<SplitRequest> split;
    if (kernel.kind == FusedKernel::Kind::Reduction) {
      const Shape& full = graph.type(base_node.inputs[0]).shape;
      const Shape& outer = base_node.results[0].shape;
      if (node.op->kind == OpKind::Reduce) return {reduced_map(node), true};
      if (shape == full) return {IndexMap{domain, {}}, false};
      if (shape == outer) return {reduced_map(base_node), true};
      if (shape.elements() == full.elements()) {
        if (auto map = map_reshape(IndexMap{domain, {}}, full, shape, extents, split)) return {*map, false};
      } else if (shape.elements() == outer.elements()) {
        if (auto map = map_reshape(reduced_map(base_node), outer, shape, extents, split)) return {*map, true};
      }
    } else {
      const Shape& full = base_node.results[0].shape;
      if (shape == full) return {IndexMap{domain, {}}, false};
      if (shape.elements() == full.elements()) {
        if (auto map = map_reshape(IndexMap{domain, {}}, full, shape, extents, split)) return {*map, false};
      }
    }
    if (split) throw Restart{*split};
    give_up("a stored value has no place in the kernel's space");
  }

  void build_body() {
    kernel.body = {};
    kernel.a = {};
    kernel.b = {};
    kernel.operands.clear();
    Context context{&kernel.body, &extents, {}};
    const bool matmul = kernel.kind == FusedKernel::Kind::Matmul;
    if (matmul) build_operands();
    bool any = false;
    for (const NodeId node : state.clusters[static_cast<std::size_t>(id)]) {
      if (!state.escapes(node)) continue;
      any = true;
      const auto [map, outer] = place(node);
      Store store;
      store.value = evaluate(context, ValueId{node, 0}, map);
      store.outer = outer;
      store.operand = operand_index(state.storage[node], true);
      store.access = dense_access(map, graph.node(node).results[0].shape, rank());
      if (outer) {
        for (std::size_t j = kernel.outer_rank; j < rank(); ++j) AESHNA_CHECK(store.access.strides[j] == 0);
        store.access.strides.resize(kernel.outer_rank);
      }
      kernel.body.stores.push_back(std::move(store));
    }
    if (!any) give_up("nothing is stored");
  }

  /// `e`, a function of the main space, in the space of operand `side`, which sees `first` dimensions of it before the
  /// contracted ones and those from `after` on behind them.
  AffineExpr in_operand(const AffineExpr& e, std::size_t first, std::size_t after) const {
    AffineExpr result;
    result.offset = e.offset;
    result.coefficient.assign(e.coefficient.begin(), e.coefficient.begin() + static_cast<std::ptrdiff_t>(first));
    result.coefficient.insert(result.coefficient.end(), k_extents.size(), 0);
    result.coefficient.insert(result.coefficient.end(), e.coefficient.begin() + static_cast<std::ptrdiff_t>(after), e.coefficient.end());
    return result;
  }

  void build_operands() {
    const Node& node = graph.node(base);
    const std::size_t rows = rank() - kernel.row_rank - kernel.column_rank, columns = rows + kernel.row_rank;
    for (std::size_t side = 0; side < 2; ++side) {
      Body& body = side == 0 ? kernel.a : kernel.b;
      body.k = k_extents;
      const std::size_t first = side == 0 ? columns : rows, after = side == 0 ? rank() : columns;
      std::vector<std::int64_t> space(extents.begin(), extents.begin() + static_cast<std::ptrdiff_t>(first));
      space.insert(space.end(), k_extents.begin(), k_extents.end());
      space.insert(space.end(), extents.begin() + static_cast<std::ptrdiff_t>(after), extents.end());
      IndexMap map;
      for (const Contraction::Index& index : contraction.operands[side]) {
        AffineExpr sum = zero_expr(space.size());
        sum.offset = index.offset;
        for (const auto& [axis, coefficient] : index.terms) {
          const bool contracted = axis >= domain.size();
          AffineExpr e = zero_expr(space.size());
          if (contracted) {
            const AffineExpr& k = k_domain[axis - domain.size()];
            std::ranges::copy(k.coefficient, e.coefficient.begin() + static_cast<std::ptrdiff_t>(first));
          } else {
            e = in_operand(domain[axis], first, after);
          }
          for (std::size_t j = 0; j < space.size(); ++j) sum.coefficient[j] += coefficient * e.coefficient[j];
        }
        map.axes.push_back(std::move(sum));
      }
      Context context{&body, &space, {}};
      const ValueId operand = node.inputs[side];
      const Shape& shape = graph.type(operand).shape;
      const GuardedMap inside = map_pad(map, std::vector<std::int64_t>(map.axes.size(), 0), shape, space);
      const std::uint32_t value = guarded(context, operand, inside, 0, graph.type(operand).dtype);
      if (value + 1 != body.instrs.size()) give_up("a product's operand is not its last instruction");
    }
  }

  /// A stored operand may take over the memory of a loaded one if every load of it is of the very element that the same
  /// invocation stores.
  void tie_in_place() {
    for (const Store& store : kernel.body.stores) {
      if (store.outer) continue;
      std::optional<std::uint32_t> best;
      for (std::uint32_t i = 0; i < kernel.operands.size(); ++i) {
        const KernelOperand& operand = kernel.operands[i];
        const KernelOperand& stored = kernel.operands[store.operand];
        if (operand.written || operand.elements != stored.elements) continue;
        const DeviceUnit mine = device_unit(operand.dtype), its = device_unit(stored.dtype);
        if (is_quantized(operand.dtype) || mine.bytes * its.elements != its.bytes * mine.elements) continue;
        bool ok = true, used = false;
        for (const Body* body : {&kernel.body, &kernel.a, &kernel.b}) {
          for (const Instr& instr : body->instrs) {
            if (instr.kind != Instr::Kind::Load || instr.operand != i) continue;
            used = true;
            if (body != &kernel.body || instr.access != store.access) ok = false;
          }
        }
        if (!ok || !used) continue;
        const bool tied = std::ranges::any_of(kernel.operands, [&](const KernelOperand& o) { return o.in_place_of == i; });
        if (tied) continue;
        // Prefer the leaf to which the stored value is assigned: that is the update in place.
        const bool own = operand.value.node == state.assigned_to[kernel.operands[store.operand].value.node];
        if (!best || own) best = i;
        if (own) break;
      }
      kernel.operands[store.operand].in_place_of = best;
    }
  }

  // ---- operands that must be in memory

  /// `input` of the node as a view of something in memory: the movement ops in between, where they need no guards; `flips`: negative
  /// strides will do.
  std::pair<ValueId, Access> view(ValueId input, bool flips) const {
    const std::size_t rank = static_cast<std::size_t>(graph.type(input).shape.rank());
    const auto& dims = graph.type(input).shape.dims();
    const std::vector<std::int64_t> axes(dims.begin(), dims.end());
    IndexMap map = identity_map(rank, 0, rank);
    ValueId value = input;
    while (true) {
      const Shape& shape = graph.type(value).shape;
      if (const auto stored = in_memory(value, true)) return {*stored, dense_access(map, shape, rank)};
      const Node& node = graph.node(value.node);
      std::optional<IndexMap> source;
      std::optional<SplitRequest> split;
      if (state.transparent[value.node]) {
        switch (node.op->movement) {
          case MovementKind::Expand:
            source = operand_map(node, 0, map);
            break;
          case MovementKind::Permute:
            source = map_permute(map, node.attrs.get<std::vector<std::int64_t>>("axes"));
            break;
          case MovementKind::Slice:
            source = slice_map(node, map);
            break;
          case MovementKind::Flip:
            if (flips) source = map_flip(map, node.attrs.get<std::vector<std::int64_t>>("axes"), shape);
            break;
          case MovementKind::Reshape:
            source = map_reshape(map, shape, graph.type(node.inputs[0]).shape, axes, split);
            break;
          default:
            break;
        }
      }
      if (!source) give_up("an operand that is read through addresses is not in memory", source_to_materialise(value.node));
      map = std::move(*source);
      value = node.inputs[0];
    }
  }

  static bool is_dense(const Access& access, const Shape& shape) {
    if (access.offset != 0) return false;
    const auto strides = dense_strides(shape);
    for (int d = 0; d < shape.rank(); ++d) {
      if (shape[d] != 1 && access.strides[static_cast<std::size_t>(d)] != strides[static_cast<std::size_t>(d)]) return false;
    }
    return true;
  }

  // ---- a kernel template of its own

  /// A kernel template cannot be split by rows: of a larger tensor it must not see a part.
  bool fits_one_binding(const TensorType& type) const {
    return part_elements(type, state.caps) == 0 &&
           device_bytes(type.dtype, type.shape.elements()) <= state.caps.max_storage_range;
  }

  /// The cluster is one node of OpKind::Kernel.
  void build_template() {
    const NodeId self = kernel.nodes[0];
    const Node& node = graph.node(self);
    TemplateCall& call = kernel.call;
    call.attrs = node.attrs;
    call.results = node.results;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const TensorType& type = graph.type(node.inputs[i]);
      call.inputs.push_back(type);
      auto [stored, access] = view(node.inputs[i], true);
      const bool updated = node.op->updates == i;
      const bool readable =
          !updated && node.op->accepts_view && node.op->accepts_view(i, access) && fits_one_binding(graph.type(stored));
      if (!is_dense(access, type.shape) && !readable) {
        give_up("an operand of a kernel template is a view that it cannot read", source_to_materialise(node.inputs[i].node));
      }
      if (updated && graph.type(stored).shape.elements() != type.shape.elements()) {
        give_up("an updated operand is part of a tensor", source_to_materialise(node.inputs[i].node));
      }
      call.views.push_back(std::move(access));
      if (updated) {
        call.updated = stored;
        call.input_operands.push_back(TemplateCall::kUnbound);
      } else {
        call.input_operands.push_back(operand_index(stored, false));
      }
    }
    for (std::uint32_t r = 0; r < node.results.size(); ++r)
      call.result_operands.push_back(operand_index(r == 0 ? state.storage[self] : ValueId{self, r}, true));
    for (const KernelOperand& operand : kernel.operands) {
      if (device_unit(operand.dtype).elements == 1) continue;  // templates know 32-bit elements only
      fail(ErrorCode::Unsupported, "[{}] its kernel has no form for {} operands", node.op->name, dtype_name(operand.dtype));
    }
    if (kernel.operands.size() > state.caps.max_storage_buffers) {
      give_up(formatted("{} operands, and max_storage_buffers is {}", kernel.operands.size(),
                        state.caps.max_storage_buffers));
    }
  }

  // ---- kinds of kernels

  void choose_kind() {
    const auto& nodes = state.clusters[static_cast<std::size_t>(id)];
    for (const NodeId n : nodes) {
      if (graph.node(n).op->kind != OpKind::Kernel) continue;
      if (nodes.size() > 1) give_up("an op with a kernel of its own");
      kernel.kind = FusedKernel::Kind::Template;
      base = n;
      kernel.anchor = graph.node(n).op;
      return;
    }
    std::optional<NodeId> product, reduce, largest;
    for (const NodeId n : nodes) {
      const Node& node = graph.node(n);
      if (node.op->kind == OpKind::Product) {
        if (product) give_up("two products");
        product = n;
      } else if (node.op->kind == OpKind::Reduce) {
        if (!reduce) reduce = n;
      }
      if (state.escapes(n) &&
          (!largest || node.results[0].shape.elements() > graph.node(*largest).results[0].shape.elements())) {
        largest = n;
      }
    }
    if (product && reduce) give_up("a reduction and a product");
    if (!largest) give_up("nothing is stored");
    kernel.kind = product ? FusedKernel::Kind::Matmul : reduce ? FusedKernel::Kind::Reduction : FusedKernel::Kind::Pointwise;
    base = product ? *product : reduce ? *reduce : *largest;
    kernel.anchor = graph.node(base).op;
  }

  FusedKernel build() {
    choose_kind();
    for (const NodeId n : state.clusters[static_cast<std::size_t>(id)]) {
      kernel.nodes.push_back(n);
      kernel.segment = graph.node(n).segment;
      if (graph.node(n).precision == Precision::Full) kernel.precision = Precision::Full;
    }
    if (kernel.kind == FusedKernel::Kind::Template) {
      build_template();
      return std::move(kernel);
    }
    start_space();
    while (true) {
      try {
        build_body();
        break;
      } catch (const Restart& restart) {
        split_space(restart);
      }
    }
    if (kernel.operands.size() > state.caps.max_storage_buffers) {
      give_up(formatted("{} operands, and max_storage_buffers is {}", kernel.operands.size(),
                        state.caps.max_storage_buffers),
              widest);
    }
    kernel.space = std::move(extents);
    merge_dimensions(kernel);
    tie_in_place();
    return std::move(kernel);
  }
};

}  // namespace

std::optional<FusedKernel> build_kernel(const FusionState& state, int id, BuildFailure& failure) {
  try {
    return Builder(state, id).build();
  } catch (BuildFailure& f) {
    failure = std::move(f);
    return std::nullopt;
  }
}

}  // namespace aeshna

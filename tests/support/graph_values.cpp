#include "support/graph_values.h"

#include <bit>
#include <cmath>
#include <limits>

#include "base/format.h"
#include "base/hash.h"
#include "base/philox.h"
#include "ir/leaf.h"

namespace aeshna::test {

namespace {

double draw(PhiloxStream& stream, DType dtype, double low, double high) {
  if (dtype == DType::boolean) return static_cast<double>(stream.next_below(2));
  if (is_integer(dtype)) return static_cast<double>(stream.next_below(10));
  return round_to(dtype, low + (high - low) * stream.next_uniform());
}

std::string attr_text(const AttrValue& value) {
  return std::visit(
      []<class T>(const T& v) -> std::string {
        if constexpr (std::is_same_v<T, std::string>) {
          return v;
        } else if constexpr (std::is_same_v<T, DType>) {
          return std::string(dtype_name(v));
        } else if constexpr (std::is_same_v<T, Literal>) {
          return v.type().shape.rank() == 0 ? formatted("{}", v.at(0)) : v.type().to_string();
        } else if constexpr (std::is_same_v<T, bool>) {
          return v ? "true" : "false";
        } else if constexpr (requires { v.begin(); }) {
          std::string text = "[";
          for (std::size_t i = 0; i < v.size(); ++i) text += formatted("{}{}", i == 0 ? "" : ", ", v[i]);
          return text + "]";
        } else {
          return formatted("{}", v);
        }
      },
      value);
}

std::string expression(const Graph& graph, ValueId id) {
  const Node& node = graph.node(id.node);
  if (is_constant(node)) return attr_text(*node.attrs.find("value"));
  if (node.op->kind == OpKind::Leaf) return node.name;
  std::string text = node.op->name + "(";
  for (std::size_t i = 0; i < node.inputs.size(); ++i) text += (i == 0 ? "" : ", ") + expression(graph, node.inputs[i]);
  text += ")";
  std::string attrs;
  for (const auto& [name, value] : node.attrs.items())
    attrs += formatted("{}{}={}", attrs.empty() ? "" : ", ", name, attr_text(value));
  return attrs.empty() ? text : text + "{" + attrs + "}";
}

}  // namespace

TensorMap random_leaves(const Graph& graph, std::uint64_t seed, double low, double high) {
  TensorMap leaves;
  for (const Node& node : graph.nodes()) {
    if (node.op->kind != OpKind::Leaf || is_constant(node)) continue;
    HostTensor value(node.results[0]);
    PhiloxStream stream(seed, Hasher().add(node.name).low());
    for (double& x : value.data) x = draw(stream, value.type.dtype, low, high);
    leaves.emplace(node.name, std::move(value));
  }
  return leaves;
}

HostTensor tensor(TensorType type, std::vector<double> data) {
  HostTensor t(std::move(type));
  t.data = std::move(data);
  return t;
}

HostTensor tensor(Shape shape, std::vector<double> data) { return tensor({DType::f32, shape}, std::move(data)); }

std::string formula(const Graph& graph, std::string_view output) {
  for (const Graph::Output& o : graph.outputs()) {
    if (o.name == output) return expression(graph, o.value);
  }
  return "no such output";
}

double difference(const HostTensor& got, const HostTensor& want) {
  const double inf = std::numeric_limits<double>::infinity();
  if (got.type != want.type || got.data.size() != want.data.size()) return inf;
  double worst = 0;
  for (std::size_t i = 0; i < got.data.size(); ++i) {
    const double a = got.data[i], b = want.data[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (!std::isfinite(a) || !std::isfinite(b)) return inf;
    worst = std::max(worst, std::fabs(a - b) / std::max(1.0, std::fabs(b)));
  }
  return worst;
}

bool identical(const HostTensor& got, const HostTensor& want) {
  if (got.type != want.type || got.data.size() != want.data.size()) return false;
  for (std::size_t i = 0; i < got.data.size(); ++i) {
    const double a = got.data[i], b = want.data[i];
    if (std::isnan(a) && std::isnan(b)) continue;
    if (std::bit_cast<std::uint64_t>(a) != std::bit_cast<std::uint64_t>(b)) return false;
  }
  return true;
}

int count_ops(const Graph& graph, std::string_view op) {
  int count = 0;
  for (const Node& node : graph.nodes()) count += node.op->name == op ? 1 : 0;
  return count;
}

}  // namespace aeshna::test

#pragma once
// NNEF models for tests: from text, with variables that need no files.
#include <cstring>
#include <map>
#include <string>

#include "aeshna/import.h"
#include "base/fail.h"
#include "io/nnef/importer.h"
#include "support/graph_values.h"

namespace aeshna::test {

/// Variables by label; any other one is zeros.
class MemoryVariables final : public nnef::Variables {
 public:
  std::map<std::string, Literal> values;
  Literal read(const std::string& label, const Shape& shape) const override {
    const auto found = values.find(label);
    if (found != values.end()) return found->second;
    return Literal({DType::f32, shape}, std::vector<std::byte>(static_cast<std::size_t>(4 * shape.elements())));
  }
};

inline nnef::Outcome outcome_of(const std::string& text, const ImportOptions& options = {},
                                const MemoryVariables& variables = {}) {
  return nnef::import_document(nnef::parse_document(text, "graph.nnef"), variables, options);
}

inline ImportedModel import_text(const std::string& text, const ImportOptions& options = {},
                                 const MemoryVariables& variables = {}) {
  nnef::Outcome outcome = outcome_of(text, options, variables);
  for (const UnsupportedNode& node : outcome.unsupported)
    fail(ErrorCode::Unsupported, "{}: {}: {}", node.name, node.op, node.reason);
  return std::move(outcome.model);
}

/// A model of most of the syntax.
inline const std::string kSampleModel = R"(version 1.0;
extension KHR_enable_fragment_definitions KHR_enable_operator_expressions;
fragment layer<? = scalar>( x: tensor<scalar>, w: tensor<?>[], n: integer = 2, p: (integer, integer)[] = [] ) -> ( y: tensor<scalar>, z: tensor<scalar> )
{
    parts = [for k in w, i in range_of(w) if i < n yield conv(x, k, 0.0, padding = p, border = 'reflect')];
    y = parts[0] if n >= 1 else -x ^ 2.0;
    z = add_n(parts[0:1]) * 1.5e0;
}
graph g( x ) -> ( y, s )
{
    x = external<scalar>(shape = [1, 2, 4, 4]);
    [a, b] = [variable<scalar>(shape = [2, 2, 1, 1], label = 'a'), variable<scalar>(shape = [2, 2, 3, 3], label = "b")];
    p, q = layer(x, [a, b], n = 2, p = [(0, 0), (0, 0)]);
    m, i = max_pool_with_index(relu(p), size = [1, 1, 2, 2], stride = [1, 1, 2, 2], border = 'ignore');
    y = concat([m, avg_pool(q, size = [1, 1, 2, 2], stride = [1, 1, 2, 2])], axis = 1);
    s = softmax(reshape(y, shape = [0, -1]), axes = [1]); # the end
}
)";

/// "version 1.0; ... graph g(x) -> (y) { x = external(shape = SHAPE); BODY }"
inline std::string one_input(const std::string& shape, const std::string& body, const std::string& results = "y") {
  return "version 1.0;\nextension KHR_enable_operator_expressions;\ngraph g(x) -> (" + results +
         ")\n{\nx = external<scalar>(shape = " + shape + ");\n" + body + "\n}\n";
}

/// The outputs of a graph in double, with the values given and random ones for the other leaves.
inline TensorMap run_exact(const Graph& graph, const TensorMap& given = {}) {
  TensorMap leaves = random_leaves(graph, 7);
  for (const auto& [name, value] : given) leaves.insert_or_assign(name, value);
  return interpret(graph, leaves).outputs;
}

/// Output y of a body over one input x.
inline HostTensor run_one(const std::string& shape, const std::string& body, const HostTensor& x) {
  const ImportedModel model = import_text(one_input(shape, body));
  return run_exact(*model.graph, {{"x", x}}).find("y")->second;
}

/// The bytes of a tensor file; `item` and `bits` as NNEF numbers them.
inline std::string tensor_file(const std::vector<std::uint32_t>& extents, std::uint32_t item, std::uint32_t bits,
                               std::string_view data) {
  std::string bytes(128, '\0');
  const auto put = [&](std::size_t at, std::uint32_t value) { std::memcpy(bytes.data() + at, &value, 4); };
  bytes[0] = 'N';
  bytes[1] = static_cast<char>(0xEF);
  bytes[2] = 1;
  put(4, static_cast<std::uint32_t>(data.size()));
  put(8, static_cast<std::uint32_t>(extents.size()));
  for (std::size_t i = 0; i < extents.size() && i < 8; ++i) put(12 + 4 * i, extents[i]);
  put(44, bits);
  put(48, item);
  return bytes.append(data);
}
inline std::string tensor_file(const Literal& f32) {
  std::vector<std::uint32_t> extents;
  for (const std::int64_t d : f32.type().shape.dims()) extents.push_back(static_cast<std::uint32_t>(d));
  return tensor_file(extents, 0, 32, {reinterpret_cast<const char*>(f32.bytes().data()), f32.bytes().size()});
}

}  // namespace aeshna::test

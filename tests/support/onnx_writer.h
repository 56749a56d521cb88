#pragma once
// ONNX models in a few lines, for tests: a writer of protobuf's wire format that knows the fields it needs.
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace aeshna::test::proto {

inline std::string varint(std::uint64_t v) {
  std::string out;
  for (; v >= 128; v >>= 7) out += static_cast<char>(v | 128);
  return out + static_cast<char>(v);
}
inline std::string number(int field, std::int64_t v) {
  return varint(static_cast<std::uint64_t>(field) << 3) + varint(static_cast<std::uint64_t>(v));
}
inline std::string bytes(int field, const std::string& v) {
  return varint(static_cast<std::uint64_t>(field) << 3 | 2) + varint(v.size()) + v;
}
inline std::string real(int field, float v) {
  std::string out = varint(static_cast<std::uint64_t>(field) << 3 | 5);
  const auto bits = std::bit_cast<std::uint32_t>(v);
  for (int i = 0; i < 4; ++i) out += static_cast<char>(bits >> (8 * i));
  return out;
}

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// A TensorProto with raw_data; types by ONNX's numbers: 1 float, 3 int8, 7 int64, 9 bool, 11 double.
inline std::string tensor(const std::string& name, int type, const std::vector<std::int64_t>& dims,
                          const std::string& data) {
  std::string out;
  for (const std::int64_t d : dims) out += number(1, d);
  return out + number(2, type) + bytes(8, name) + bytes(9, data);
}
inline std::string floats(const std::string& name, const std::vector<std::int64_t>& dims, const std::vector<float>& v) {
  return tensor(name, 1, dims, raw(v));
}
inline std::string ints(const std::string& name, const std::vector<std::int64_t>& v) {
  return tensor(name, 7, {static_cast<std::int64_t>(v.size())}, raw(v));
}

/// A ValueInfoProto; dimensions below 0 are open.
inline std::string value(const std::string& name, int type, const std::vector<std::int64_t>& dims) {
  std::string shape;
  for (const std::int64_t d : dims) shape += bytes(1, d < 0 ? bytes(2, "n") : number(1, d));
  return bytes(1, name) + bytes(2, bytes(1, number(1, type) + bytes(2, shape)));
}

// AttributeProtos
inline std::string attribute(const std::string& name, std::int64_t v) {
  return bytes(1, name) + number(3, v) + number(20, 2);
}
inline std::string attribute(const std::string& name, float v) { return bytes(1, name) + real(2, v) + number(20, 1); }
inline std::string attribute(const std::string& name, const char* v) {
  return bytes(1, name) + bytes(4, v) + number(20, 3);
}
inline std::string integers(const std::string& name, const std::vector<std::int64_t>& v) {
  std::string out = bytes(1, name);
  for (const std::int64_t i : v) out += number(8, i);
  return out + number(20, 7);
}
inline std::string graph_attribute(const std::string& name, const std::string& graph) {
  return bytes(1, name) + bytes(6, graph) + number(20, 5);
}

/// A NodeProto.
inline std::string node(const std::string& op, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs, const std::vector<std::string>& attributes = {},
                        const std::string& name = "", const std::string& domain = "") {
  std::string out;
  for (const std::string& i : inputs) out += bytes(1, i);
  for (const std::string& o : outputs) out += bytes(2, o);
  if (!name.empty()) out += bytes(3, name);
  out += bytes(4, op);
  for (const std::string& a : attributes) out += bytes(5, a);
  return domain.empty() ? out : out + bytes(7, domain);
}

struct Parts {
  std::vector<std::string> nodes, inputs, outputs, initializers = {};
};
/// A GraphProto.
inline std::string graph(const Parts& p) {
  std::string out = bytes(2, "g");
  for (const std::string& n : p.nodes) out += bytes(1, n);
  for (const std::string& t : p.initializers) out += bytes(5, t);
  for (const std::string& i : p.inputs) out += bytes(11, i);
  for (const std::string& o : p.outputs) out += bytes(12, o);
  return out;
}
/// A ModelProto.
inline std::string model(const Parts& p, std::int64_t opset = 17, const std::string& more = "") {
  return number(1, 8) + bytes(7, graph(p)) + bytes(8, bytes(1, "") + number(2, opset)) + more;
}

/// A small model with most kinds of fields: weights as raw and typed data, attributes, a subgraph, a function.
inline std::string sample_model() {
  const std::string branch = graph({{node("Neg", {"h"}, {"r"})}, {}, {value("r", 1, {2, 2})}});
  const std::string typed = number(1, 2) + number(2, 1) + bytes(4, raw(std::vector<float>{1, 2})) + bytes(8, "typed");
  const std::string function = bytes(1, "Twice") + bytes(4, "a") + bytes(5, "b") +
                               bytes(7, node("Add", {"a", "a"}, {"b"})) + bytes(9, bytes(1, "") + number(2, 17)) +
                               bytes(10, "mine");
  return model(
      {{node("MatMul", {"x", "w"}, {"m"}), node("Add", {"m", "typed"}, {"s"}),
        node("Softmax", {"s"}, {"p"}, {attribute("axis", std::int64_t{-1})}), node("Reshape", {"p", "shape"}, {"h"}),
        node("If", {"flag"}, {"i"}, {graph_attribute("then_branch", branch), graph_attribute("else_branch", branch)}),
        node("Twice", {"i"}, {"y"}, {}, "", "mine")},
       {value("x", 1, {2, 3})},
       {value("y", 1, {2, 2})},
       {floats("w", {3, 2}, {1, 2, 3, 4, 5, 6}), typed, ints("shape", {0, -1}),
        tensor("flag", 9, {}, std::string(1, '\1'))}},
      17, bytes(25, function) + bytes(8, bytes(1, "mine") + number(2, 1)));
}

inline std::span<const std::byte> as_bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace aeshna::test::proto

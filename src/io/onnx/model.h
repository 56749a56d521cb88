#pragma once
// An ONNX model as plain structs: what parse.cpp makes of a file, and all that the translation of ops sees of it.
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "aeshna/attrs.h"

namespace aeshna::onnx {

/// A tensor with its value. 4-bit integers lie in 8 bits.
struct Tensor {
  std::string name;
  Literal value;
  std::string unsupported;  ///< not empty: why there is no value (strings, complex numbers)
};

/// An element type by ONNX's number.
struct ElementType {
  std::optional<DType> dtype;  ///< none: Aeshna has no such type
  std::string name;            ///< ONNX's name, in lower case
  int bits = 0;                ///< 4 for the types that lie in 8 bits here
};
ElementType element_type(std::int64_t number);

struct Graph;

struct Attribute {
  enum class Kind : std::uint8_t { Float, Int, String, Tensor, Graph, Floats, Ints, Strings, Other };
  std::string name;
  Kind kind = Kind::Other;
  float f = 0;
  std::int64_t i = 0;
  std::string s;
  std::vector<float> floats;
  std::vector<std::int64_t> ints;
  std::vector<std::string> strings;
  std::shared_ptr<const onnx::Tensor> tensor;
  std::shared_ptr<const onnx::Graph> graph;
  std::string reference;  ///< inside a function: the attribute of the call that it stands for
};

struct Node {
  std::string name, op, domain;              ///< domain: empty for ONNX's own
  std::vector<std::string> inputs, outputs;  ///< an empty name: absent
  std::vector<Attribute> attributes;
  std::string label() const;  ///< for messages: op and name, or op and first output
  std::string qualified_op() const { return domain.empty() ? op : domain + '.' + op; }
};

struct Dimension {
  std::int64_t value = -1;  ///< -1: open
  std::string name;
};

/// An input or output.
struct ValueInfo {
  std::string name;
  ElementType element;
  std::optional<std::vector<Dimension>> dims;  ///< none: not even the rank is known
  std::string unsupported;                     ///< not empty: no tensor at all (a sequence, ...)
  std::string type_text() const;
};

struct Graph {
  std::string name;
  std::vector<Node> nodes;
  std::vector<Tensor> initializers;
  std::vector<ValueInfo> inputs, outputs;
};

struct Function {
  std::string name, domain;
  std::vector<std::string> inputs, outputs;
  std::vector<Attribute> defaults;
  std::map<std::string, std::int64_t> opsets;
  std::vector<Node> nodes;
};

struct Model {
  std::string file;  ///< for messages
  std::string producer;
  std::int64_t ir_version = 0;
  std::map<std::string, std::int64_t> opsets;  ///< by domain; "" is ONNX's own
  Graph graph;
  std::vector<Function> functions;
};

/// Error(CorruptFile) that names file and field. External data is looked for in `folder`; empty: there is none.
Model parse_model(std::span<const std::byte> bytes, const std::string& file, const std::filesystem::path& folder);
Model read_model(const std::filesystem::path& path);
/// A file with one tensor, as ONNX's test data has them.
Tensor parse_tensor(std::span<const std::byte> bytes, const std::string& file);

}  // namespace aeshna::onnx

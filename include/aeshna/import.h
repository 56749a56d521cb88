#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "aeshna/graph.h"

/// Models of other programs as graphs. Nothing is guessed and nothing rounded in silence: what the vocabulary cannot express is
/// refused, all of it in one message. docs/onnx.md says what is read.
namespace aeshna {

struct ImportOptions {
  /// Shapes of inputs by name. Inputs whose dimensions the file leaves open must be here; others may be, if they agree.
  std::map<std::string, Shape> shapes = {};
  /// Values of inputs that are fixed now and are no inputs of the graph any more: axes, sizes, conditions. Converted to the input's
  /// dtype (Error OutOfRange if that cannot hold them); a value of one element fits an input of any one-element shape.
  std::map<std::string, Literal> binds = {};
  /// Float weights are trainable parameters, so that the model can be trained further (but not the running mean and variance of
  /// batch normalizations); else they are frozen.
  bool trainable = false;
  /// Doubles of the file (weights, inputs, intermediate values) become f32, rounded. Without it they are refused by name, since no
  /// device here computes in f64; those that vanish at load time (constants) never count.
  bool f64_as_f32 = false;
};

/// A node that cannot be imported, and why.
struct UnsupportedNode {
  std::string name;  ///< as in the file; empty: it has none
  std::string op;    ///< "Conv", or "domain.Op"
  std::string reason;
  std::vector<std::string> bind;  ///< inputs whose values at load time would help
};

struct ImportedModel {
  std::shared_ptr<Graph> graph;              ///< inputs and outputs are named as in the file
  std::map<std::string, Literal> weights;    ///< of the graph's parameters, by name
  std::vector<std::string> inputs, outputs;  ///< in the order of the file, without those that were bound
  std::map<std::string, std::pair<double, double>>
      ranges;  ///< lowest and highest value of inputs of 4-bit integers, kept in 8 bits
  std::string producer;
  std::int64_t opset = 0;                   ///< of the default domain
  std::map<std::string, std::int64_t> ops;  ///< how often each op is used, subgraphs and functions included
};

/// Reads an ONNX model (opsets 6 to 22 of the default domain). Errors: NotFound, Io, CorruptFile (naming file and field),
/// InvalidArgument (an open dimension, a shape or value for no input), Unsupported listing every node that is and why.
ImportedModel import_onnx(const std::filesystem::path& path, const ImportOptions& options = {});

/// What is in a file, without importing it: shapes with open dimensions ("batch" or -1).
struct OnnxInfo {
  struct Tensor {
    std::string name, type;
  };
  std::vector<Tensor> inputs, outputs;
  std::string producer;
  std::int64_t ir_version = 0, opset = 0, weights = 0, weight_elements = 0;
  std::map<std::string, std::int64_t> ops;
  std::vector<UnsupportedNode> unsupported;  ///< with the shapes and values of `options`
  std::string problem;  ///< why it cannot be imported as it is, other than by an unsupported node; empty: nothing
};
OnnxInfo inspect_onnx(const std::filesystem::path& path, const ImportOptions& options = {});

}  // namespace aeshna

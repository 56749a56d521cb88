// The only file that sees ONNX's schema (protobuf's lite runtime): from its messages to the plain structs of model.h.
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>

#include <google/protobuf/io/coded_stream.h>
#include <onnx.pb.h>

#include "base/byte_reader.h"
#include "base/checked.h"
#include "base/fail.h"
#include "io/onnx/damage.h"
#include "io/onnx/model.h"

namespace aeshna::onnx {

namespace proto = ::onnx;

ElementType element_type(std::int64_t number) {
  switch (number) {
    case 1:
      return {DType::f32, "float"};
    case 2:
      return {DType::u8, "uint8"};
    case 3:
      return {DType::i8, "int8"};
    case 4:
      return {DType::u16, "uint16"};
    case 5:
      return {DType::i16, "int16"};
    case 6:
      return {DType::i32, "int32"};
    case 7:
      return {DType::i64, "int64"};
    case 8:
      return {std::nullopt, "string"};
    case 9:
      return {DType::boolean, "bool"};
    case 10:
      return {DType::f16, "float16"};
    case 11:
      return {DType::f64, "double"};
    case 12:
      return {DType::u32, "uint32"};
    case 13:
      return {DType::u64, "uint64"};
    case 14:
      return {std::nullopt, "complex64"};
    case 15:
      return {std::nullopt, "complex128"};
    case 16:
      return {DType::bf16, "bfloat16"};
    case 17:
      return {DType::f8e4m3, "float8e4m3fn"};
    case 18:
      return {std::nullopt, "float8e4m3fnuz"};
    case 19:
      return {DType::f8e5m2, "float8e5m2"};
    case 20:
      return {std::nullopt, "float8e5m2fnuz"};
    case 21:
      return {DType::u8, "uint4", 4};
    case 22:
      return {DType::i8, "int4", 4};
    default:
      return {std::nullopt, "type " + std::to_string(number)};
  }
}

std::string Node::label() const {
  std::string text = qualified_op();
  if (!name.empty()) return text + " '" + name + "'";
  for (const std::string& output : outputs) {
    if (!output.empty()) return text + " (unnamed, makes '" + output + "')";
  }
  return text;
}

std::string ValueInfo::type_text() const {
  if (!unsupported.empty()) return unsupported;
  std::string text = element.name;
  if (!dims) return text + "[...]";
  text += '[';
  for (std::size_t i = 0; i < dims->size(); ++i) {
    const Dimension& d = (*dims)[i];
    if (i > 0) text += ", ";
    text += d.value >= 0 ? std::to_string(d.value) : d.name.empty() ? "?" : d.name;
  }
  return text + ']';
}

namespace {

constexpr int kMaxMessages = 100;                  // how deep messages may lie in each other
constexpr std::uint64_t kMaxFile = 2'147'483'647;  // protobuf's own bound; larger weights lie in external files

class Parser {
 public:
  Parser(std::string file, std::filesystem::path folder) : file_(std::move(file)), folder_(std::move(folder)) {}

  Model model(const proto::ModelProto& from) {
    Model model;
    model.file = file_;
    model.producer = from.producer_name();
    if (!from.producer_version().empty()) model.producer += ' ' + from.producer_version();
    model.ir_version = from.ir_version();
    model.opsets = opsets(from.opset_import());
    if (!from.has_graph()) corrupt("graph is missing");
    model.graph = graph(from.graph(), "graph");
    for (const proto::FunctionProto& f : from.functions()) model.functions.push_back(function(f));
    return model;
  }

  Tensor tensor(const proto::TensorProto& from, const std::string& path) {
    Tensor tensor;
    tensor.name = from.name();
    const std::string what = from.name().empty() ? path : path + " '" + from.name() + "'";
    const ElementType type = element_type(from.data_type());
    if (from.data_type() < 1 || from.data_type() > 22)
      corrupt(formatted("{}: data_type is {}", what, from.data_type()));
    std::int64_t elements = 1;
    for (const std::int64_t d : from.dims()) {
      if (d < 0) corrupt(formatted("{}: dims holds {}", what, d));
    }
    if (from.dims_size() > Shape::kMaxRank)
      fail(ErrorCode::Unsupported, "{}: {} has rank {}; the largest is {}", file_, what, from.dims_size(),
           Shape::kMaxRank);
    const std::vector<std::int64_t> dims(from.dims().begin(), from.dims().end());
    const Shape shape{std::span<const std::int64_t>(dims)};
    try {
      for (const std::int64_t d : dims) elements = checked_mul(elements, d, "elements");
      (void)checked_mul(elements, std::int64_t{16}, "bytes");
    } catch (const Error&) {
      corrupt(formatted("{}: the size of {} overflows", what, shape.to_string()));
    }
    if (from.has_segment()) corrupt(formatted("{}: segment is set; tensors in segments were never specified", what));
    if (!type.dtype) {
      tensor.unsupported = "tensors of " + type.name + " are not supported";
      return tensor;
    }
    const TensorType result{*type.dtype, shape};
    tensor.value = Literal(result, data(from, type, result, elements, what));
    return tensor;
  }

 private:
  [[noreturn]] void corrupt(const std::string& message) const {
    fail(ErrorCode::CorruptFile, "{}: not a valid ONNX model: {}", file_, message);
  }

  template <class Opsets>
  std::map<std::string, std::int64_t> opsets(const Opsets& from) const {
    std::map<std::string, std::int64_t> result;
    for (const proto::OperatorSetIdProto& o : from) {
      const std::string domain = o.domain() == "ai.onnx" ? "" : o.domain();
      if (!result.emplace(domain, o.version()).second)
        corrupt(formatted("opset_import has the domain '{}' twice", domain));
    }
    return result;
  }

  Graph graph(const proto::GraphProto& from, const std::string& path) {
    Graph graph;
    graph.name = from.name();
    if (from.sparse_initializer_size() > 0)
      fail(ErrorCode::Unsupported, "{}: {}.sparse_initializer: sparse tensors are not supported", file_, path);
    for (const proto::TensorProto& t : from.initializer()) {
      if (t.name().empty()) corrupt(formatted("{}.initializer[{}] has no name", path, graph.initializers.size()));
      graph.initializers.push_back(tensor(t, formatted("{}.initializer[{}]", path, graph.initializers.size())));
    }
    for (const proto::ValueInfoProto& v : from.input()) graph.inputs.push_back(value_info(v, path + ".input"));
    for (const proto::ValueInfoProto& v : from.output()) graph.outputs.push_back(value_info(v, path + ".output"));
    nodes(from.node(), path, graph.nodes);
    return graph;
  }

  Function function(const proto::FunctionProto& from) {
    Function function;
    function.name = from.name();
    function.domain = from.domain() == "ai.onnx" ? "" : from.domain();
    function.inputs.assign(from.input().begin(), from.input().end());
    function.outputs.assign(from.output().begin(), from.output().end());
    function.opsets = opsets(from.opset_import());
    const std::string path = "function '" + from.name() + "'";
    for (const proto::AttributeProto& a : from.attribute_proto()) function.defaults.push_back(attribute(a, path));
    nodes(from.node(), path, function.nodes);
    return function;
  }

  template <class Nodes>
  void nodes(const Nodes& from, const std::string& path, std::vector<Node>& into) {
    into.reserve(static_cast<std::size_t>(from.size()));
    for (const proto::NodeProto& n : from) into.push_back(node(n, formatted("{}.node[{}]", path, into.size())));
  }

  Node node(const proto::NodeProto& from, const std::string& path) {
    Node node;
    node.name = from.name();
    node.op = from.op_type();
    if (node.op.empty()) corrupt(path + ": op_type is missing");
    node.domain = from.domain() == "ai.onnx" ? "" : from.domain();
    node.inputs.assign(from.input().begin(), from.input().end());
    node.outputs.assign(from.output().begin(), from.output().end());
    const std::string what = path + " " + node.op;
    for (const proto::AttributeProto& a : from.attribute()) {
      node.attributes.push_back(attribute(a, what));
      for (std::size_t i = 0; i + 1 < node.attributes.size(); ++i) {
        if (node.attributes[i].name == a.name()) corrupt(formatted("{}: two attributes '{}'", what, a.name()));
      }
    }
    return node;
  }

  Attribute attribute(const proto::AttributeProto& from, const std::string& path) {
    Attribute to;
    to.name = from.name();
    if (to.name.empty()) corrupt(path + ": an attribute has no name");
    to.reference = from.ref_attr_name();
    const std::string what = formatted("{}, attribute '{}'", path, to.name);
    using Kind = Attribute::Kind;
    switch (type_of(from)) {
      case proto::AttributeProto::FLOAT:
        to.kind = Kind::Float, to.f = from.f();
        break;
      case proto::AttributeProto::INT:
        to.kind = Kind::Int, to.i = from.i();
        break;
      case proto::AttributeProto::STRING:
        to.kind = Kind::String, to.s = from.s();
        break;
      case proto::AttributeProto::FLOATS:
        to.kind = Kind::Floats;
        to.floats.assign(from.floats().begin(), from.floats().end());
        break;
      case proto::AttributeProto::INTS:
        to.kind = Kind::Ints;
        to.ints.assign(from.ints().begin(), from.ints().end());
        break;
      case proto::AttributeProto::STRINGS:
        to.kind = Kind::Strings;
        to.strings.assign(from.strings().begin(), from.strings().end());
        break;
      case proto::AttributeProto::TENSOR:
        to.kind = Kind::Tensor;
        if (to.reference.empty()) to.tensor = std::make_shared<onnx::Tensor>(tensor(from.t(), what));
        break;
      case proto::AttributeProto::GRAPH:
        to.kind = Kind::Graph;
        to.graph = std::make_shared<onnx::Graph>(graph(from.g(), what));
        break;
      default:
        to.kind = Kind::Other;
    }
    return to;
  }

  /// Old files leave `type` out.
  static int type_of(const proto::AttributeProto& a) {
    if (a.type() != proto::AttributeProto::UNDEFINED) return a.type();
    if (a.has_f()) return proto::AttributeProto::FLOAT;
    if (a.has_i()) return proto::AttributeProto::INT;
    if (a.has_s()) return proto::AttributeProto::STRING;
    if (a.has_t()) return proto::AttributeProto::TENSOR;
    if (a.has_g()) return proto::AttributeProto::GRAPH;
    if (a.floats_size() > 0) return proto::AttributeProto::FLOATS;
    if (a.ints_size() > 0) return proto::AttributeProto::INTS;
    if (a.strings_size() > 0) return proto::AttributeProto::STRINGS;
    return proto::AttributeProto::UNDEFINED;
  }

  ValueInfo value_info(const proto::ValueInfoProto& from, const std::string& path) const {
    ValueInfo info;
    info.name = from.name();
    if (info.name.empty()) corrupt(path + ": a value has no name");
    if (!from.type().has_tensor_type()) {
      info.unsupported = from.type().has_sequence_type()        ? "a sequence"
                         : from.type().has_map_type()           ? "a map"
                         : from.type().has_optional_type()      ? "an optional value"
                         : from.type().has_sparse_tensor_type() ? "a sparse tensor"
                                                                : "of no type";
      return info;
    }
    const auto& tensor = from.type().tensor_type();
    info.element = element_type(tensor.elem_type());
    if (!info.element.dtype) info.unsupported = "a tensor of " + info.element.name;
    if (!tensor.has_shape()) return info;
    info.dims.emplace();
    for (const auto& d : tensor.shape().dim()) {
      if (d.has_dim_value() && d.dim_value() < 0)
        corrupt(formatted("{} '{}': a dimension is {}", path, info.name, d.dim_value()));
      info.dims->push_back({d.has_dim_value() ? d.dim_value() : -1, d.dim_param()});
    }
    return info;
  }

  // ---- tensor data

  std::vector<std::byte> data(const proto::TensorProto& from, const ElementType& type, const TensorType& result,
                              std::int64_t elements, const std::string& what) const {
    const std::uint64_t count = static_cast<std::uint64_t>(elements);
    const std::uint64_t width = dtype_info(result.dtype).block_bytes;
    const std::uint64_t raw_bytes = type.bits == 4 ? (count + 1) / 2 : count * width;
    if (from.data_location() == proto::TensorProto::EXTERNAL)
      return unpack(external(from, raw_bytes, what), type, count, what);
    if (from.has_raw_data()) {
      if (from.raw_data().size() != raw_bytes) {
        corrupt(formatted("{}: raw_data has {} bytes, {} of {} need {}", what, from.raw_data().size(),
                          result.shape.to_string(), type.name, raw_bytes));
      }
      const auto* bytes = reinterpret_cast<const std::byte*>(from.raw_data().data());
      return unpack({bytes, bytes + from.raw_data().size()}, type, count, what);
    }
    switch (result.dtype) {
      case DType::f32:
        return typed<float>(from.float_data(), "float_data", count, what);
      case DType::f64:
        return typed<double>(from.double_data(), "double_data", count, what);
      case DType::i64:
        return typed<std::int64_t>(from.int64_data(), "int64_data", count, what);
      case DType::u64:
        return typed<std::uint64_t>(from.uint64_data(), "uint64_data", count, what);
      case DType::u32:
        return typed<std::uint32_t>(from.uint64_data(), "uint64_data", count, what);
      case DType::i32:
        return typed<std::int32_t>(from.int32_data(), "int32_data", count, what);
      case DType::i16:
        return typed<std::int16_t>(from.int32_data(), "int32_data", count, what);
      case DType::u16:
      case DType::f16:
      case DType::bf16:
        return typed<std::uint16_t>(from.int32_data(), "int32_data", count, what);
      default:
        break;
    }
    if (type.bits == 4) {  // a byte of two in each int32
      return unpack(typed<std::uint8_t>(from.int32_data(), "int32_data", (count + 1) / 2, what), type, count, what);
    }
    if (result.dtype == DType::i8) return typed<std::int8_t>(from.int32_data(), "int32_data", count, what);
    return unpack(typed<std::uint8_t>(from.int32_data(), "int32_data", count, what), type, count, what);
  }

  template <class T, class From>
  std::vector<std::byte> typed(const From& from, const char* field, std::uint64_t count,
                               const std::string& what) const {
    if (static_cast<std::uint64_t>(from.size()) != count)
      corrupt(formatted("{}: {} has {} elements, {} are needed", what, field, from.size(), count));
    std::vector<std::byte> bytes(count * sizeof(T));
    std::size_t i = 0;
    for (const auto value : from) {
      const T narrow = static_cast<T>(value);
      if constexpr (std::numeric_limits<T>::is_integer) {
        if (!std::in_range<T>(value)) corrupt(formatted("{}: {}[{}] is {}, which does not fit", what, field, i, value));
      }
      std::memcpy(bytes.data() + i++ * sizeof(T), &narrow, sizeof(T));
    }
    return bytes;
  }

  /// Bytes as they lie in raw_data to those of a Literal.
  std::vector<std::byte> unpack(std::vector<std::byte> raw, const ElementType& type, std::uint64_t count,
                                const std::string& what) const {
    if (type.bits == 4) {
      std::vector<std::byte> bytes(count);
      for (std::size_t i = 0; i < count; ++i) {
        auto value = (static_cast<unsigned>(raw[i / 2]) >> (i % 2 * 4)) & 15;
        if (*type.dtype == DType::i8 && value >= 8) value += 0xf0;  // the sign
        bytes[i] = static_cast<std::byte>(value);
      }
      return bytes;
    }
    if (*type.dtype == DType::boolean) {
      for (std::size_t i = 0; i < raw.size(); ++i) {
        if (static_cast<unsigned>(raw[i]) > 1)
          corrupt(formatted("{}: boolean {} is {}", what, i, static_cast<unsigned>(raw[i])));
      }
    }
    return raw;
  }

  std::vector<std::byte> external(const proto::TensorProto& from, std::uint64_t bytes, const std::string& what) const {
    std::string location;
    std::uint64_t offset = 0, length = bytes;
    for (const proto::StringStringEntryProto& e : from.external_data()) {
      const auto number = [&](std::uint64_t& into) {
        const char* end = e.value().data() + e.value().size();
        if (std::from_chars(e.value().data(), end, into).ptr != end || e.value().empty())
          corrupt(formatted("{}: external_data {} is '{}'", what, e.key(), e.value()));
      };
      if (e.key() == "location") location = e.value();
      if (e.key() == "offset") number(offset);
      if (e.key() == "length") number(length);
    }
    const std::filesystem::path path = location;
    const bool inside = !location.empty() && path.is_relative() && !path.has_root_name() &&
                        std::ranges::none_of(path, [](const std::filesystem::path& part) { return part == ".."; });
    if (!inside)
      corrupt(formatted("{}: external_data location '{}' is no path below the model's folder", what, location));
    if (length != bytes) corrupt(formatted("{}: external_data has length {}, {} are needed", what, length, bytes));
    if (folder_.empty()) fail(ErrorCode::Io, "{}: {} lies in '{}', which cannot be read here", file_, what, location);
    const std::filesystem::path full = folder_ / path;
    std::error_code error;
    const std::uint64_t size = std::filesystem::file_size(full, error);
    if (error)
      fail(ErrorCode::NotFound, "{}: {}: cannot read external data {}: {}", file_, what, full.string(),
           error.message());
    // A link could lead out of the folder.
    const std::filesystem::path real = std::filesystem::canonical(full, error),
                                root = std::filesystem::canonical(folder_, error);
    if (error || std::ranges::mismatch(root, real).in1 != root.end())
      corrupt(formatted("{}: external_data location '{}' leads out of the model's folder", what, location));
    if (offset > size || bytes > size - offset) {
      corrupt(
          formatted("{}: external data at {} of {} bytes, but {} has {}", what, offset, bytes, full.string(), size));
    }
    std::vector<std::byte> data(bytes);
    std::ifstream in(full, std::ios::binary);
    in.seekg(static_cast<std::streamoff>(offset));
    in.read(reinterpret_cast<char*>(data.data()), static_cast<std::streamsize>(bytes));
    if (!in) fail(ErrorCode::Io, "{}: {}: cannot read {} bytes of {}", file_, what, bytes, full.string());
    return data;
  }

  std::string file_;
  std::filesystem::path folder_;
};

template <class Message>
void parse(Message& message, std::span<const std::byte> bytes, const std::string& file) {
  static_assert(std::endian::native == std::endian::little, "tensors are read as they lie in memory");
  if (bytes.size() > kMaxFile)
    fail(ErrorCode::LimitExceeded, "{}: {} bytes; a model file has {} at most", file, bytes.size(), kMaxFile);
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                                static_cast<int>(bytes.size()));
  stream.SetRecursionLimit(kMaxMessages);
  if (message.ParseFromCodedStream(&stream) && stream.ConsumedEntireMessage()) return;
  fail(ErrorCode::CorruptFile, "{}: not a valid ONNX {}: {}", file,
       std::is_same_v<Message, proto::TensorProto> ? "tensor" : "model",
       describe_damage(bytes, std::is_same_v<Message, proto::TensorProto>));
}

}  // namespace

Model parse_model(std::span<const std::byte> bytes, const std::string& file, const std::filesystem::path& folder) {
  proto::ModelProto message;
  parse(message, bytes, file);
  return Parser(file, folder).model(message);
}

Model read_model(const std::filesystem::path& path) {
  const std::vector<std::byte> bytes = read_file(path, kMaxFile);
  const std::filesystem::path folder = path.parent_path();
  return parse_model(bytes, path.string(), folder.empty() ? "." : folder);
}

Tensor parse_tensor(std::span<const std::byte> bytes, const std::string& file) {
  proto::TensorProto message;
  parse(message, bytes, file);
  return Parser(file, {}).tensor(message, "tensor");
}

}  // namespace aeshna::onnx

#include "io/onnx/damage.h"

#include <array>
#include <map>
#include <optional>

#include "base/format.h"

namespace aeshna::onnx {
namespace {

constexpr int kMaxDepth = 100;  // protobuf's own bound

enum class Message : std::uint8_t {
  None,
  Model,
  Graph,
  Node,
  Attribute,
  Tensor,
  ValueInfo,
  Type,
  Function,
  Opset,
  Entry,
  Sparse
};

struct Field {
  Message owner;
  std::uint64_t number;
  const char* name;
  Message type;
};
constexpr std::array kFields = {
    Field{Message::Model, 7, "graph", Message::Graph},
    Field{Message::Model, 8, "opset_import", Message::Opset},
    Field{Message::Model, 14, "metadata_props", Message::Entry},
    Field{Message::Model, 25, "functions", Message::Function},
    Field{Message::Model, 1, "ir_version", Message::None},
    Field{Message::Model, 2, "producer_name", Message::None},
    Field{Message::Graph, 1, "node", Message::Node},
    Field{Message::Graph, 2, "name", Message::None},
    Field{Message::Graph, 5, "initializer", Message::Tensor},
    Field{Message::Graph, 11, "input", Message::ValueInfo},
    Field{Message::Graph, 12, "output", Message::ValueInfo},
    Field{Message::Graph, 13, "value_info", Message::ValueInfo},
    Field{Message::Graph, 15, "sparse_initializer", Message::Sparse},
    Field{Message::Node, 1, "input", Message::None},
    Field{Message::Node, 2, "output", Message::None},
    Field{Message::Node, 3, "name", Message::None},
    Field{Message::Node, 4, "op_type", Message::None},
    Field{Message::Node, 5, "attribute", Message::Attribute},
    Field{Message::Node, 7, "domain", Message::None},
    Field{Message::Attribute, 1, "name", Message::None},
    Field{Message::Attribute, 5, "t", Message::Tensor},
    Field{Message::Attribute, 6, "g", Message::Graph},
    Field{Message::Attribute, 7, "floats", Message::None},
    Field{Message::Attribute, 8, "ints", Message::None},
    Field{Message::Attribute, 10, "tensors", Message::Tensor},
    Field{Message::Attribute, 11, "graphs", Message::Graph},
    Field{Message::Attribute, 14, "tp", Message::Type},
    Field{Message::Tensor, 1, "dims", Message::None},
    Field{Message::Tensor, 2, "data_type", Message::None},
    Field{Message::Tensor, 4, "float_data", Message::None},
    Field{Message::Tensor, 5, "int32_data", Message::None},
    Field{Message::Tensor, 7, "int64_data", Message::None},
    Field{Message::Tensor, 8, "name", Message::None},
    Field{Message::Tensor, 9, "raw_data", Message::None},
    Field{Message::Tensor, 13, "external_data", Message::Entry},
    Field{Message::ValueInfo, 1, "name", Message::None},
    Field{Message::ValueInfo, 2, "type", Message::Type},
    Field{Message::Function, 7, "node", Message::Node},
    Field{Message::Function, 9, "opset_import", Message::Opset},
    Field{Message::Function, 11, "attribute_proto", Message::Attribute},
    Field{Message::Function, 12, "value_info", Message::ValueInfo},
    Field{Message::Sparse, 1, "values", Message::Tensor},
    Field{Message::Sparse, 2, "indices", Message::Tensor},
};

const Field* find(Message owner, std::uint64_t number) {
  for (const Field& field : kFields) {
    if (field.owner == owner && field.number == number) return &field;
  }
  return nullptr;
}

class Walk {
 public:
  explicit Walk(std::span<const std::byte> bytes) : bytes_(bytes) {}

  /// The first damage in [position_, end); none: the text stays empty.
  std::optional<std::string> message(Message type, std::size_t end, const std::string& path, int depth) {
    if (depth > kMaxDepth) return at(path, formatted("nested deeper than {} messages", kMaxDepth));
    std::map<std::uint64_t, std::size_t> counts;
    while (position_ < end) {
      const std::size_t start = position_;
      const std::optional<std::uint64_t> key = varint(end);
      if (!key) return at(path, "a field's key is cut off or longer than 10 bytes", start);
      const std::uint64_t number = *key >> 3;
      if (number == 0) return at(path, "field number 0", start);
      const Field* field = find(type, number);
      std::string name = path.empty() ? "" : path + '.';
      name += field != nullptr ? field->name : formatted("field {}", number);
      if (field != nullptr && field->type != Message::None) name += formatted("[{}]", counts[number]++);
      switch (*key & 7) {
        case 0:
          if (!varint(end)) return at(name, "a number is cut off or longer than 10 bytes", start);
          break;
        case 1:
        case 5: {
          const std::size_t size = (*key & 7) == 1 ? 8 : 4;
          if (end - position_ < size)
            return at(name, formatted("{} bytes needed, {} are left", size, end - position_), start);
          position_ += size;
          break;
        }
        case 2: {
          const std::optional<std::uint64_t> length = varint(end);
          if (!length) return at(name, "a length is cut off or longer than 10 bytes", start);
          if (*length > end - position_)
            return at(name, formatted("{} bytes announced, {} are left", *length, end - position_), start);
          const std::size_t inner = position_ + static_cast<std::size_t>(*length);
          if (field != nullptr && field->type != Message::None) {
            if (auto damage = message(field->type, inner, name, depth + 1)) return damage;
          }
          position_ = inner;
          break;
        }
        default:
          return at(name, formatted("wire type {}, which ONNX does not use", *key & 7), start);
      }
    }
    return std::nullopt;
  }

 private:
  std::optional<std::uint64_t> varint(std::size_t end) {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
      if (position_ >= end) return std::nullopt;
      const auto byte = static_cast<std::uint64_t>(bytes_[position_++]);
      if (shift < 64) value |= (byte & 127) << shift;
      if (byte < 128) return value;
    }
    return std::nullopt;
  }
  std::string at(const std::string& path, const std::string& what) { return at(path, what, position_); }
  static std::string at(const std::string& path, const std::string& what, std::size_t position) {
    return formatted("{} at byte {}: {}", path.empty() ? "the message" : path, position, what);
  }

  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
};

}  // namespace

std::string describe_damage(std::span<const std::byte> bytes, bool tensor) {
  return Walk(bytes)
      .message(tensor ? Message::Tensor : Message::Model, bytes.size(), "", 0)
      .value_or("a field of a type that the schema does not expect");
}

}  // namespace aeshna::onnx

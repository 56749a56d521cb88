#pragma once
// protobuf says that a file is damaged, but not where: this finds the field.
#include <cstddef>
#include <span>
#include <string>

namespace aeshna::onnx {

/// "graph.node[3].attribute[0].t at byte 1234: 5000 bytes announced, 17 are left", for the first field of a ModelProto (or, with
/// `tensor`, a TensorProto) that no protobuf message can hold.
std::string describe_damage(std::span<const std::byte> bytes, bool tensor);

}  // namespace aeshna::onnx

// How single elements and aligned runs of four leave and enter an operand's buffer. Addresses and guards are the
// caller's.

#include "base/fail.h"
#include "base/format.h"
#include "codegen/embedded_kernels.h"
#include "codegen/glsl_writer.h"
#include "ir/device_types.h"

namespace aeshna {

namespace {

/// The text of one block of a library file.
std::string_view library_block(std::string_view library, std::string_view name) {
  for (const EmbeddedKernel& kernel : embedded_kernels()) {
    if (kernel.name != library) continue;
    const std::string mark = formatted("\n//@ {}\n", name);
    const std::size_t at = kernel.text.find(mark);
    if (at == std::string_view::npos) break;
    const std::string_view text = kernel.text.substr(at + mark.size());
    return text.substr(0, text.find("//@ "));
  }
  fail(ErrorCode::Internal, "no block '{}' in the library '{}'", name, library);
}

std::string_view half_name(DType dtype) { return dtype == DType::f16 ? "f16" : "bf16"; }

}  // namespace

KernelWriter::Form KernelWriter::form(std::uint32_t operand) const {
  const auto& operands = fused().operands;
  const KernelOperand& o = operands.at(operand);
  if (is_quantized(o.dtype)) return Form::Blocks;
  if (!is_half(o.dtype)) return views_[operand] == 4 ? Form::Vectors : Form::Scalars;
  if (views_[operand] == 4) return Form::HalfQuads;
  // Neighbours in one word may belong to different invocations. Where a 16-bit store exists it is used (and both
  // variables of an in-place pair see 16-bit elements); else single elements are written with atomics.
  bool shared = o.written;
  for (const KernelOperand& other : operands) shared = shared || other.in_place_of == operand;
  return shared && caps_.storage_16bit ? Form::Halves : Form::HalfWords;
}

std::string KernelWriter::buffer_element(std::uint32_t operand, DType compute) const {
  if (compute == DType::boolean) compute = DType::u32;
  switch (form(operand)) {
    case Form::Scalars:
      return std::string(glsl_type(compute, 1));
    case Form::Vectors:
      return std::string(glsl_type(compute, 4));
    case Form::HalfWords:
    case Form::Blocks:
      return "uint";
    case Form::HalfQuads:
      return "uvec2";
    case Form::Halves:
      return "uint16_t";
  }
  internal_error("a form of operands");
}

std::string KernelWriter::fetch(std::uint32_t operand, DType compute, const std::string& index) const {
  const std::string_view half = half_name(fused().operands[operand].dtype);
  std::string text;
  switch (form(operand)) {
    case Form::Scalars:
      text = formatted("B{}[{}]", operand, index);
      break;
    case Form::Vectors:
      text = formatted("B{0}[({1}) >> 2][({1}) & 3u]", operand, index);
      break;
    case Form::HalfWords:
      return formatted("ae_from_{0}(B{1}[({2}) >> 1], {2})", half, operand, index);
    case Form::HalfQuads:
      return formatted("ae_from_{0}(B{1}[({2}) >> 2][(({2}) >> 1) & 1u], {2})", half, operand, index);
    case Form::Halves:
      return formatted("ae_from_{}(uint(B{}[{}]), 0u)", half, operand, index);
    case Form::Blocks:
      return formatted("quant_B{}({})", operand, index);
  }
  return compute == DType::boolean ? text + " != 0u" : text;
}

std::string KernelWriter::fetch4(std::uint32_t operand, DType compute, const std::string& index) const {
  const std::string_view half = half_name(fused().operands[operand].dtype);
  switch (form(operand)) {
    case Form::Vectors: {
      const std::string text = formatted("B{}[({}) >> 2]", operand, index);
      return compute == DType::boolean ? "notEqual(" + text + ", uvec4(0u))" : text;
    }
    case Form::HalfWords:
      return formatted("ae_from_{0}(uvec2(B{1}[({2}) >> 1], B{1}[(({2}) >> 1) + 1u]))", half, operand, index);
    case Form::HalfQuads:
      return formatted("ae_from_{}(B{}[({}) >> 2])", half, operand, index);
    case Form::Blocks:
      return formatted("quant4_B{}({})", operand, index);
    case Form::Scalars:
    case Form::Halves:
      break;
  }
  std::string text = formatted("{}({}", glsl_type(compute, 4), fetch(operand, compute, index));
  for (int lane = 1; lane < 4; ++lane) text += ", " + fetch(operand, compute, formatted("{} + {}u", index, lane));
  return text + ")";
}

std::string KernelWriter::decoders() const {
  std::string text;
  for (std::uint32_t i = 0; i < views_.size(); ++i) {
    if (form(i) != Form::Blocks) continue;
    std::string decoder(library_block("quant", formatted("quant_{}", dtype_name(fused().operands[i].dtype))));
    decoder += "float quant_$(uint e) { return quant4_$(e & ~3u)[e & 3u]; }\n";
    if (pairs_.contains(i))
      decoder += library_block("quant", formatted("pair_{}", dtype_name(fused().operands[i].dtype)));
    for (std::size_t at = decoder.find('$'); at != std::string::npos; at = decoder.find('$', at))
      decoder.replace(at, 1, formatted("B{}", i));
    text += decoder;
  }
  return text;
}

std::string KernelWriter::pair_decoder(std::uint32_t operand) {
  AESHNA_CHECK(form(operand) == Form::Blocks);
  pairs_.insert(operand);
  return formatted("_B{}", operand);
}

std::string KernelWriter::put(std::uint32_t operand, const std::string& index, const std::string& value,
                              bool exact) const {
  const std::string half = formatted("ae_{}_{}", exact ? "exact" : "to", half_name(fused().operands[operand].dtype));
  switch (form(operand)) {
    case Form::Scalars:
      return formatted("B{}[{}] = {};", operand, index, value);
    case Form::Vectors:
      return formatted("B{0}[({1}) >> 2][({1}) & 3u] = {2};", operand, index, value);
    case Form::Halves:
      return formatted("B{}[{}] = uint16_t({}({}));", operand, index, half, value);
    case Form::HalfWords:
      // Each atomic touches the bits of this element only.
      return formatted(
          "{{ uint at = {1}, low = (at & 1u) << 4; atomicAnd(B{0}[at >> 1], 0xffff0000u >> low); "
          "atomicOr(B{0}[at >> 1], {2}({3}) << low); }}",
          operand, index, half, value);
    case Form::HalfQuads:
    case Form::Blocks:
      break;
  }
  internal_error("this buffer takes no single elements");
}

std::string KernelWriter::put4(std::uint32_t operand, const std::string& index, const std::string& value,
                               bool exact) const {
  const std::string half = formatted("ae_{}_{}", exact ? "exact" : "to", half_name(fused().operands[operand].dtype));
  switch (form(operand)) {
    case Form::Vectors:
      return formatted("B{}[({}) >> 2] = {};", operand, index, value);
    case Form::HalfQuads:
      return formatted("B{}[({}) >> 2] = {}({});", operand, index, half, value);
    case Form::HalfWords:
      return formatted(
          "{{ uint at = ({1}) >> 1; uvec2 words = {2}({3}); B{0}[at] = words.x; B{0}[at + 1u] = words.y; }}", operand,
          index, half, value);
    case Form::Scalars:
    case Form::Halves:
    case Form::Blocks:
      break;
  }
  internal_error("this buffer takes no fours");
}

}  // namespace aeshna

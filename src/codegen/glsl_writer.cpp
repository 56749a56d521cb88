#include "codegen/glsl_writer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "base/checked.h"
#include "base/fail.h"
#include "base/format.h"
#include "codegen/embedded_kernels.h"
#include "ir/device_types.h"
#include "ir/op.h"

namespace aeshna {
namespace {

/// Leaves room for the last workgroups to count beyond the space without wrapping.
constexpr std::int64_t kMaxPoints = 0xffff0000;

std::uint32_t wrap_u32(std::int64_t value) { return static_cast<std::uint32_t>(static_cast<std::uint64_t>(value)); }

char type_letter(DType compute) {
  switch (compute) {
    case DType::f32:
      return 'f';
    case DType::i32:
      return 'i';
    case DType::u32:
      return 'u';
    case DType::boolean:
      return 'b';
    default:
      fail(ErrorCode::Internal, "{} is no compute type of a kernel", dtype_name(compute));
  }
}

bool is_identifier(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool mentions(std::string_view text, std::string_view name) {
  for (std::size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if ((at == 0 || !is_identifier(text[at - 1])) && (end == text.size() || !is_identifier(text[end]))) return true;
  }
  return false;
}

/// The blocks of a library file that `user` mentions, directly or through later blocks. A block starts at a line
/// "//@ name name..." that lists what it defines, and may use earlier blocks only.
std::string used_blocks(std::string_view library, std::string_view user) {
  constexpr std::string_view kMark = "\n//@ ";
  std::vector<std::string_view> blocks;  // each from its names on
  for (std::size_t at = library.find(kMark); at != std::string_view::npos;) {
    const std::size_t start = at + kMark.size();
    at = library.find(kMark, start);
    blocks.push_back(library.substr(start, at == std::string_view::npos ? at : at + 1 - start));
  }
  std::string text;
  std::string all(user);
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    const std::size_t line = std::min(block->find('\n'), block->size());
    std::string_view names = block->substr(0, line);
    bool used = false;
    while (!names.empty() && !used) {
      const std::size_t space = std::min(names.find(' '), names.size());
      used = space > 0 && mentions(all, names.substr(0, space));
      names.remove_prefix(std::min(space + 1, names.size()));
    }
    if (!used) continue;
    const std::string_view body = block->substr(std::min(line + 1, block->size()));
    text.insert(0, body);
    all += body;
  }
  return text;
}

std::string sum_of(std::span<const std::string> terms) {
  if (terms.empty()) return "0u";
  std::string text = terms[0];
  for (const std::string& term : terms.subspan(1)) text += " + " + term;
  return text;
}

}  // namespace

std::string_view glsl_type(DType compute, int width) {
  AESHNA_CHECK(width == 1 || width == 4);
  switch (type_letter(compute)) {
    case 'f':
      return width == 1 ? "float" : "vec4";
    case 'i':
      return width == 1 ? "int" : "ivec4";
    case 'u':
      return width == 1 ? "uint" : "uvec4";
    default:
      return width == 1 ? "bool" : "bvec4";
  }
}

std::string_view buffer_type(DType compute, int width) {
  return glsl_type(compute == DType::boolean ? DType::u32 : compute, width);
}

std::string_view kernel_text(std::string_view name) {
  for (const EmbeddedKernel& kernel : embedded_kernels()) {
    if (kernel.name == name) return kernel.text;
  }
  fail(ErrorCode::Internal, "no kernel template named '{}' is embedded", name);
}

std::string glsl_literal(DType compute, double value) {
  switch (type_letter(compute)) {
    case 'f': {
      const auto rounded = static_cast<float>(value);
      if (!std::isfinite(rounded) || (rounded == 0 && std::signbit(rounded))) {
        return formatted("uintBitsToFloat(0x{:08x}u)", std::bit_cast<std::uint32_t>(rounded));
      }
      // The exact value, so that glslang's decimal -> double -> float cannot round twice.
      std::string text = formatted("{}", static_cast<double>(rounded));
      if (text.find_first_of(".e") == std::string::npos) text += ".0";
      return value < 0 ? "(" + text + ")" : text;
    }
    case 'i': {
      const auto integer = static_cast<std::int64_t>(value);
      if (integer == std::numeric_limits<std::int32_t>::min()) return "int(0x80000000u)";
      return integer < 0 ? formatted("({})", integer) : formatted("{}", integer);
    }
    case 'u':
      return formatted("{}u", wrap_u32(static_cast<std::int64_t>(value)));
    default:
      return value != 0 ? "true" : "false";
  }
}

KernelWriter::KernelWriter(const KernelSpec& spec, const Caps& caps, bool merge_equal_words)
    : spec_(spec), caps_(caps), merge_(merge_equal_words), views_(spec.fused->operands.size(), 1) {
  push_.push_back(checked_u32(spec.workgroups, "workgroups of a kernel"));
  const FusedKernel& kernel = fused();
  if (const std::int64_t points = points_of(kernel.space); points > kMaxPoints) {
    fail(ErrorCode::LimitExceeded, "a kernel of {} points; its indices are 32-bit (at most {})", points, kMaxPoints);
  }

  each_access(kernel, [&](const Body& body, std::uint32_t operand, const Access& access) {
    AESHNA_CHECK(operand < kernel.operands.size());
    const auto touched = reach(access, body_space(kernel, body));
    if (!touched) return;
    if (touched->high > std::numeric_limits<std::uint32_t>::max()) {
      fail(ErrorCode::LimitExceeded, "operand {} ({} of {} elements) is reached at element {}; kernel indices are 32-bit",
           operand, dtype_name(kernel.operands[operand].dtype), kernel.operands[operand].elements, touched->high);
    }
    AESHNA_CHECK(touched->low >= 0 && touched->high < kernel.operands[operand].elements);
  });
}

std::string KernelWriter::number(std::int64_t value) {
  if (value == 0) return "0u";
  if (value == 1) return "1u";
  if (merge_) {
    if (const auto found = words_.find(value); found != words_.end()) return formatted("P.w{}", found->second);
  }
  if ((push_.size() + 1) * 4 > caps_.push_bytes) {
    overflowed_ = true;
    return formatted("{}u", wrap_u32(value));
  }
  const std::size_t word = push_.size();
  push_.push_back(wrap_u32(value));
  if (merge_) words_.emplace(value, word);
  return formatted("P.w{}", word);
}

void KernelWriter::define(std::string_view name, std::int64_t value) {
  defines_ += formatted("#define {} {}\n", name, value);
}
void KernelWriter::define(std::string_view name, std::string_view expression) {
  defines_ += formatted("#define {} {}\n", name, expression);
}
void KernelWriter::define_constants(std::string_view except) {
  for (const auto& [name, value] : spec_.constants) {
    if (name != except) define(name, value);
  }
}
std::string KernelWriter::input(std::size_t i) const { return formatted("B{}", fused().call.input_operands.at(i)); }
std::string KernelWriter::result(std::size_t i) const { return formatted("B{}", fused().call.result_operands.at(i)); }
void KernelWriter::extension(std::string_view name) { extensions_.emplace(name); }
void KernelWriter::add(std::string_view text) { added_ += text; }

void KernelWriter::set_vector_view(std::uint32_t operand) {
  AESHNA_CHECK(operand < views_.size() && fused().operands[operand].elements % 4 == 0);
  views_[operand] = 4;
}

void KernelWriter::use_vector_views(const Body& body, std::uint32_t dim) {
  std::vector<bool> used(views_.size(), false), fits(views_.size(), true);
  const auto visit = [&](std::uint32_t operand, bool vector) {
    used.at(operand) = true;
    fits[operand] = fits[operand] && vector && fused().operands[operand].elements % 4 == 0;
  };
  for (const Instr& instr : body.instrs) {
    if (instr.kind == Instr::Kind::Load) visit(instr.operand, vector_load(body, instr, dim));
  }
  for (const Store& store : body.stores) visit(store.operand, vector_access(store.access, dim));
  for (std::uint32_t operand = 0; operand < views_.size(); ++operand) {
    if (used[operand] && fits[operand]) set_vector_view(operand);
  }
}

std::string KernelWriter::offset(const Access& access, std::span<const std::string> coords) {
  AESHNA_CHECK(access.strides.size() <= coords.size());
  std::vector<std::string> terms;
  for (std::size_t d = 0; d < access.strides.size(); ++d) {
    if (access.strides[d] == 0 || coords[d] == "0u") continue;
    terms.push_back(access.strides[d] == 1 ? coords[d] : formatted("{} * {}", coords[d], number(access.strides[d])));
  }
  if (access.offset != 0) terms.push_back(number(access.offset));
  return sum_of(terms);
}

/// Condition under which the access may touch memory; empty: always.
std::string KernelWriter::guard(const Access& access, std::span<const std::string> coords) {
  std::string text;
  for (const Access::Guard& guard : access.guards) {
    if (!text.empty()) text += " && ";
    text += guard.high <= guard.low ? "false" : guard_sum(guard, coords) + " < " + number(guard.high - guard.low);
  }
  return text;
}

/// The guard's sum minus its lower end: below it the difference wraps to a large number, so that one comparison does.
std::string KernelWriter::guard_sum(const Access::Guard& guard, std::span<const std::string> coords) {
  std::vector<std::string> terms;
  for (const auto& [dim, coefficient] : guard.terms) {
    if (coords[dim] == "0u") continue;
    terms.push_back(coefficient == 1 ? coords[dim] : formatted("{} * {}", coords[dim], number(coefficient)));
  }
  if (guard.low != 0) terms.push_back(number(-guard.low));
  return sum_of(terms);
}

std::string KernelWriter::load(const Body& body, std::uint32_t at, const Site& site, const std::string& variable) {
  const Instr& instr = body.instrs[at];
  const auto scalar_at = [&](const std::string& index) { return fetch(instr.operand, instr.dtype, index); };
  const std::string_view type = glsl_type(instr.dtype, site.width);
  const std::string& indent = site.indent;
  const std::string fill = glsl_literal(instr.dtype, instr.access.fill);

  // Element index, and the condition under which memory may be touched: what the coordinates and the indices (arguments) say.
  AESHNA_CHECK(instr.args.size() == instr.access.dynamic.size());
  const auto index_at = [&](std::size_t i, int lane) {
    const auto given = site.given.find(instr.args[i]);
    const bool scalar = site.width == 1 || (given != site.given.end() && given->second.width < site.width);
    return formatted("uint({}{})", name(site, instr.args[i]), scalar ? "" : formatted(".{}", "xyzw"[lane]));
  };
  const auto element = [&](std::string text, int lane) {  // `text`: what the coordinates say
    for (std::size_t i = 0; i < instr.args.size(); ++i) {
      const std::int64_t stride = instr.access.dynamic[i].stride;
      text = formatted("{}{}", text == "0u" ? "" : text + " + ", index_at(i, lane));
      if (stride != 1) text += " * " + number(stride);
    }
    return text;
  };
  const auto allowed = [&](std::string text, int lane) {
    for (std::size_t i = 0; i < instr.args.size(); ++i) {
      text +=
          formatted("{}{} < {}", text.empty() ? "" : " && ", index_at(i, lane), number(instr.access.dynamic[i].extent));
    }
    return text;
  };
  const auto address = site.addresses.find(at);
  const Site::Address* known = address != site.addresses.end() ? &address->second : nullptr;

  const bool uniform = site.width == 1 || uniform_load(body, instr, site.vector_dim);
  if (site.width == 4 && !uniform && !vector_load(body, instr, site.vector_dim)) {
    // Each component at its own coordinate, under its own guard.
    std::string text = formatted("{}{} {} = {}({});\n", indent, type, variable, type, fill);
    for (int lane = 0; lane < 4; ++lane) {
      std::vector<std::string> coords = site.coords;
      if (lane > 0) coords[site.vector_dim] = formatted("({} + {}u)", coords[site.vector_dim], lane);
      const std::string condition = allowed(guard(instr.access, coords), lane);
      text += formatted("{}{}{}.{} = {};\n", indent, condition.empty() ? "" : "if (" + condition + ") ", variable,
                        "xyzw"[lane], scalar_at(element(offset(instr.access, coords), lane)));
    }
    return text;
  }

  std::string value;
  const std::string index = element(known ? known->offset : offset(instr.access, site.coords), 0);
  if (site.width == 1) {
    value = scalar_at(index);
  } else if (uniform) {
    value = formatted("{}({})", type, scalar_at(index));
  } else {
    value = fetch4(instr.operand, instr.dtype, index);
  }
  const std::string condition = allowed(known ? known->condition : guard(instr.access, site.coords), 0);
  if (condition.empty()) return formatted("{}{} {} = {};\n", indent, type, variable, value);
  return formatted("{0}{1} {2} = {1}({3});\n{0}if ({4}) {2} = {5};\n", indent, type, variable, fill, condition, value);
}

std::string KernelWriter::name(const Site& site, std::uint32_t instr) const {
  if (const auto given = site.given.find(instr); given != site.given.end()) return given->second.expression;
  return site.prefix + std::to_string(instr);
}

std::string KernelWriter::op_function(const Body& body, const Instr& instr, int width) {
  const PointwiseDef& row = instr.op->pointwise;
  const DType operand = body.instrs[instr.args.back()].dtype;  // of select(condition, a, b) too: the last argument's
  std::string name = "op_" + instr.op->name + "_";
  std::vector<DType> types;
  for (std::uint32_t arg : instr.args) {
    types.push_back(body.instrs[arg].dtype);
    name += type_letter(types.back());
  }
  name += type_letter(instr.dtype);
  const bool rounded = instr.rounding != DType::f32;
  if (rounded) name += formatted("_{}", dtype_name(instr.rounding));

  const auto define = [&](const std::string& key, int lanes, const std::string& expression, bool round) {
    if (!op_functions_.insert(key).second) return;
    std::string parameters;
    for (std::size_t i = 0; i < types.size(); ++i) {
      parameters += formatted("{}{} {}", i == 0 ? "" : ", ", glsl_type(types[i], lanes), "abc"[i]);
    }
    // Without contraction: a value that several kernels or passes recompute must come out the same to the bit, else a maximum is
    // not equal to any of its elements.
    const std::string_view type = glsl_type(instr.dtype, lanes);
    // (A call inside `precise` would shield its arguments from it.)
    const std::string result = round ? formatted("ae_round_{}(r)", dtype_name(instr.rounding)) : "r";
    functions_ += instr.dtype == DType::f32
                      ? formatted("{0} {1}({2}) {{ precise {0} r = {3}; return {4}; }}\n", type, name, parameters,
                                  expression, result)
                      : formatted("{} {}({}) {{ return {}; }}\n", type, name, parameters, expression);
  };

  std::string expression;
  if (instr.op->name == "cast") {
    expression = type_letter(operand) == type_letter(instr.dtype)     ? "a"
                 : operand == DType::f32 && instr.dtype == DType::i32 ? "ae_f32_to_i32(a)"
                 : operand == DType::f32 && instr.dtype == DType::u32 ? "ae_f32_to_u32(a)"
                                                                      : formatted("{}(a)", glsl_type(instr.dtype));
  } else {
    switch (type_letter(operand)) {
      case 'f':
        expression = row.glsl_f32;
        break;
      case 'i':
        expression = row.glsl_i32;
        break;
      case 'u':
        expression = row.glsl_u32;
        break;
      default:
        expression = row.glsl_bool;
        break;
    }
    if (expression.empty()) {
      fail(ErrorCode::Unsupported, "op '{}' has no kernel expression for {}", instr.op->name, dtype_name(operand));
    }
  }
  define(name, 1, expression, rounded);
  if (width == 4 && expression.find_first_not_of("abc+-* ()") == std::string::npos) {
    define(name + "4", 4, expression, rounded);  // arithmetic is componentwise anyway
  } else if (width == 4) {
    std::string lanes;
    for (int lane = 0; lane < 4; ++lane) {
      std::string arguments;
      for (std::size_t i = 0; i < types.size(); ++i)
        arguments += formatted("{}{}.{}", i == 0 ? "" : ", ", "abc"[i], "xyzw"[lane]);
      lanes += formatted("{}{}({})", lane == 0 ? "" : ", ", name, arguments);
    }
    define(name + "4", 4, formatted("{}({})", glsl_type(instr.dtype, 4), lanes), false);
  }
  return name;
}

std::string KernelWriter::expression(const Body& body, const Instr& instr, const Site& site) {
  const std::string_view type = glsl_type(instr.dtype, site.width);
  const auto argument = [&](std::size_t i) {
    const std::uint32_t arg = instr.args.at(i);
    const auto given = site.given.find(arg);
    if (given != site.given.end() && given->second.width < site.width) {
      return formatted("{}({})", glsl_type(body.instrs[arg].dtype, site.width), given->second.expression);
    }
    return name(site, arg);
  };
  switch (instr.kind) {
    case Instr::Kind::Literal: {
      const std::string literal = glsl_literal(instr.dtype, instr.literal);
      return site.width == 1 ? literal : formatted("{}({})", type, literal);
    }
    case Instr::Kind::Index: {
      const std::string_view integer = glsl_type(DType::i32, site.width);
      std::string coordinate = site.coords.at(instr.dim);
      if (site.width == 4)
        coordinate =
            formatted("uvec4({}){}", coordinate, instr.dim == site.vector_dim ? " + uvec4(0u, 1u, 2u, 3u)" : "");
      std::string value = formatted("{}({})", integer, coordinate);
      const std::int64_t stride = instr.access.strides.empty() ? 1 : instr.access.strides[0];
      if (stride != 1) value += formatted(" * int({})", number(stride));
      if (instr.access.offset != 0) value += formatted(" + int({})", number(instr.access.offset));
      return instr.dtype == DType::i32 ? value : formatted("{}({})", type, value);
    }
    case Instr::Kind::Op: {
      std::string text = op_function(body, instr, site.width) + "(";
      for (std::size_t i = 0; i < instr.args.size(); ++i) text += (i == 0 ? "" : ", ") + argument(i);
      return text + ")";
    }
    case Instr::Kind::Random: {
      // Element i is word i % 4 of the block with counter (i / 4, step, stream, 0); see ops/random.cpp.
      const auto scalar = [&](std::size_t i) {
        return site.width == 1 ? argument(i) : formatted("({}).x", argument(i));
      };
      const std::string rest = formatted("{}, {}u, uvec2({}, {}))", scalar(2),
                                         wrap_u32(static_cast<std::int64_t>(instr.literal)), scalar(0), scalar(1));
      if (site.width == 1) return formatted("ae_random({}, {}", offset(instr.access, site.coords), rest);
      if (vector_access(instr.access, site.vector_dim))
        return formatted("ae_random4({}, {}", offset(instr.access, site.coords), rest);
      std::string words;
      for (int lane = 0; lane < 4; ++lane) {
        std::vector<std::string> coords = site.coords;
        if (lane > 0) coords[site.vector_dim] = formatted("({} + {}u)", coords[site.vector_dim], lane);
        words += formatted("{}ae_random({}, {}", lane == 0 ? "" : ", ", offset(instr.access, coords), rest);
      }
      return formatted("{}({})", type, words);
    }
    case Instr::Kind::Load:
    case Instr::Kind::Reduce:
    case Instr::Kind::Product:
      break;
  }
  fail(ErrorCode::Internal, "a fused body reads a {} that its kernel has not computed",
       instr.kind == Instr::Kind::Product ? "product" : "reduction");
}

std::vector<std::uint32_t> KernelWriter::needed(const Body& body, const Site& site,
                                                std::span<const std::uint32_t> wanted) {
  std::vector<bool> needed(body.instrs.size(), false);
  for (std::uint32_t instr : wanted) needed.at(instr) = !site.given.contains(instr);
  for (std::size_t i = body.instrs.size(); i-- > 0;) {  // arguments precede their users
    if (!needed[i]) continue;
    for (std::uint32_t arg : body.instrs[i].args) needed.at(arg) = needed[arg] || !site.given.contains(arg);
  }
  std::vector<std::uint32_t> list;
  for (std::uint32_t i = 0; i < needed.size(); ++i) {
    if (needed[i]) list.push_back(i);
  }
  return list;
}

std::string KernelWriter::values(const Body& body, const Site& site, std::span<const std::uint32_t> wanted) {
  std::string text;
  for (std::uint32_t i : needed(body, site, wanted)) {
    const Instr& instr = body.instrs[i];
    const std::string variable = site.prefix + std::to_string(i);
    if (instr.kind == Instr::Kind::Load) {
      text += load(body, i, site, variable);
    } else {
      text += formatted("{}{} {} = {};\n", site.indent, glsl_type(instr.dtype, site.width), variable,
                        expression(body, instr, site));
    }
  }
  return text;
}

std::string KernelWriter::store(const Store& store, const Body& body, const Site& site) {
  const Instr& stored = body.instrs[store.value];
  const DType dtype = stored.dtype;
  const bool exact = stored.kind == Instr::Kind::Op && stored.rounding == fused().operands[store.operand].dtype;
  std::string value = name(site, store.value);
  const std::string_view type = buffer_type(dtype, site.width);
  const auto given = site.given.find(store.value);
  if (dtype == DType::boolean || (given != site.given.end() && given->second.width < site.width)) {
    value = formatted("{}({})", type, value);
  }
  const std::string& indent = site.indent;
  AESHNA_CHECK(store.access.guards.empty());
  const auto single = [&](const std::string& index, const std::string& x) {
    return indent + put(store.operand, index, x, exact) + "\n";
  };
  if (site.width == 1) return single(offset(store.access, site.coords), value);
  const Form buffer = form(store.operand);
  if (buffer != Form::Scalars && buffer != Form::Halves && vector_access(store.access, site.vector_dim)) {
    return indent + put4(store.operand, offset(store.access, site.coords), value, exact) + "\n";
  }
  std::string text;
  for (int lane = 0; lane < 4; ++lane) {
    std::vector<std::string> coords = site.coords;
    if (lane > 0) coords[site.vector_dim] = formatted("({} + {}u)", coords[site.vector_dim], lane);
    text += single(offset(store.access, coords), formatted("{}.{}", value, "xyzw"[lane]));
  }
  return text;
}

std::string KernelWriter::stores(const Body& body, const Site& site, std::span<const std::uint32_t> which) {
  std::vector<std::uint32_t> wanted;
  for (std::uint32_t index : which) wanted.push_back(body.stores.at(index).value);
  std::string text = values(body, site, wanted);
  for (std::uint32_t index : which) text += store(body.stores[index], body, site);
  return text;
}

std::string KernelWriter::split_index(std::string_view linear, std::span<const std::int64_t> extents,
                                      std::span<const std::string> names, std::string_view indent, bool compiled) {
  AESHNA_CHECK(extents.size() <= names.size());
  std::string text;
  std::string rest(linear);
  for (std::size_t d = extents.size(); d-- > 0;) {
    if (d == 0) {
      text += formatted("{}uint {} = {};\n", indent, names[d], rest);
      break;
    }
    const std::string extent = compiled ? formatted("{}u", wrap_u32(extents[d])) : number(extents[d]);
    const std::string quotient = formatted("q_{}", names[d]);
    text += formatted("{0}uint {1} = ({2}) / {3};\n{0}uint {4} = ({2}) - {1} * {3};\n", indent, quotient, rest, extent,
                      names[d]);
    rest = quotient;
  }
  return text;
}

std::string KernelWriter::declarations() const {
  std::string text = "layout(push_constant) uniform Push {\n  uint groups;\n";
  for (std::size_t word = 1; word < push_.size(); ++word) text += formatted("  uint w{};\n", word);
  text += "} P;\n";

  const FusedKernel& kernel = fused();
  const std::size_t count = kernel.operands.size();
  std::vector<bool> read(count), written(count), aliased(count);
  std::vector<DType> types(count, DType::u32);
  const auto visit = [&](const Body& body) {
    for (const Instr& instr : body.instrs) {
      if (instr.kind != Instr::Kind::Load) continue;
      read.at(instr.operand) = true;
      types[instr.operand] = instr.dtype;
    }
    for (const Store& store : body.stores) {
      written.at(store.operand) = true;
      types[store.operand] = body.instrs[store.value].dtype;
    }
  };
  visit(kernel.body);
  visit(kernel.a);
  visit(kernel.b);
  if (kernel.kind == FusedKernel::Kind::Template) {
    for (std::size_t i = 0; i < count; ++i) {
      written[i] = kernel.operands[i].written;
      read[i] = true;  // templates may read back what they wrote
      types[i] = compute_dtype(kernel.operands[i].dtype);
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (const auto source = kernel.operands[i].in_place_of) aliased[i] = aliased.at(*source) = true;
  }
  for (std::size_t i = 0; i < count; ++i) {
    // An in-place pair. 20 = Aliased: without it a compiler may assume that the two bindings never overlap. Nor may either say
    // readonly or writeonly: in SPIR-V these speak of the memory, not of the variable, so that a compiler may load an element
    // again after it was stored.
    const bool writes_only = !read[i] && form(static_cast<std::uint32_t>(i)) != Form::HalfWords;
    const std::string_view access = aliased[i] ? "" : !written[i] ? "readonly " : writes_only ? "writeonly " : "";
    text += formatted("{}layout(std430, set = 0, binding = {}) {}buffer Operand{} {{ {} B{}[]; }};\n",
                      aliased[i] ? "spirv_decorate(20) " : "", i, access, i,
                      buffer_element(static_cast<std::uint32_t>(i), types[i]), i);
  }
  std::size_t binding = count;
  if (spec_.workspace_bytes > 0) {
    text += formatted("layout(std430, set = 0, binding = {}) coherent buffer Workspace {{ {} W[]; }};\n", binding++,
                      workspace_type_);
  }
  if (spec_.counters > 0) {
    text += formatted("layout(std430, set = 0, binding = {}) coherent buffer Counters {{ uint C[]; }};\n", binding++);
  }
  return text;
}

KernelSource KernelWriter::finish(std::string_view template_name) {
  const std::string body = decoders() + functions_ + added_ + std::string(kernel_text(template_name));
  const std::string quant = used_blocks(kernel_text("quant"), body);
  const std::string math = used_blocks(kernel_text("math"), body);
  const std::string common = used_blocks(kernel_text("common"), quant + math + body);

  std::string text = "#version 460\n";
  extension("GL_EXT_control_flow_attributes");
  const bool intrinsics =
      caps_.signed_zero_inf_nan_preserve ||
      std::ranges::any_of(fused().operands, [](const KernelOperand& o) { return o.in_place_of.has_value(); });
  if (intrinsics) extension("GL_EXT_spirv_intrinsics");
  for (std::uint32_t i = 0; i < views_.size(); ++i) {
    if (form(i) == Form::Halves) extension("GL_EXT_shader_16bit_storage");
  }
  for (const std::string& name : extensions_) text += formatted("#extension {} : require\n", name);
  // SignedZeroInfNanPreserve for 32 bits; SPIR-V 1.4 has it without an extension.
  if (caps_.signed_zero_inf_nan_preserve) text += "spirv_execution_mode(capabilities = [4466], 4461, 32);\n";
  text += formatted("layout(local_size_x = {}, local_size_y = {}, local_size_z = {}) in;\n", spec_.local[0],
                    spec_.local[1], spec_.local[2]);
  text += defines_ + declarations() + common + math + quant + body;

  KernelSource source;
  source.glsl = std::move(text);
  source.push = push_;
  source.bindings = static_cast<std::uint32_t>(fused().operands.size()) + (spec_.workspace_bytes > 0 ? 1 : 0) +
                    (spec_.counters > 0 ? 1 : 0);
  return source;
}

}  // namespace aeshna

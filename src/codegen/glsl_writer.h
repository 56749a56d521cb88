#pragma once
// What every kernel family is written with: KernelWriter gathers the pieces of one GLSL text (push words, buffers,
// functions) and prints fused bodies (ir/kernel.h) as GLSL statements. A family (families.h) is a function that calls
// it and names the template under kernels/ that makes the rest.
//
// A finished text is, in this order: #version and extensions, #defines, the push block P, the operand buffers, the
// blocks of common.glsl and math.glsl that the rest mentions, one function per pointwise op, what the family added,
// the template.
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/caps.h"
#include "ir/access.h"
#include "ir/kernel.h"

namespace aeshna {

/// GLSL type of a compute dtype: float int uint bool, or with width 4 vec4 ivec4 uvec4 bvec4.
std::string_view glsl_type(DType compute, int width = 1);
/// Type of the elements of a buffer of these: booleans are stored as uint 0 or 1.
std::string_view buffer_type(DType compute, int width = 1);
/// The text of kernels/<name>.glsl. (embedded)
std::string_view kernel_text(std::string_view name);
/// A literal of a compute dtype that denotes exactly round(value); infinities and NaN by bits.
std::string glsl_literal(DType compute, double value);

/// Where a body is printed.
struct Site {
  /// One uint expression per dimension of the body's space, best a variable's name; "0u" is known to be zero.
  std::vector<std::string> coords;
  /// 1, or 4: every value is then a 4-vector over the coordinates coords[vector_dim] + {0, 1, 2, 3},
  /// coords[vector_dim] being a multiple of 4.
  int width = 1;
  std::uint32_t vector_dim = 0;
  /// Temporaries are called prefix + instruction number; use different prefixes for bodies that share a scope.
  std::string prefix = "v";
  /// Instructions whose value is already in a variable (Product, finished Reduce): neither they nor what only they
  /// need is printed. A scalar is widened where the site is 4 wide.
  struct Given {
    std::string expression;
    int width = 1;
  };
  std::map<std::uint32_t, Given> given = {};
  /// Loads whose address is known in parts (a product's loaders): the element index, and the condition if there are guards.
  struct Address {
    std::string offset, condition;
  };
  std::map<std::uint32_t, Address> addresses = {};
  std::string indent = "  ";
};

class KernelWriter {
 public:
  /// `merge_equal_words`: equal numbers share a push word; generate() asks for it only when the block would overflow.
  KernelWriter(const KernelSpec& spec, const Caps& caps, bool merge_equal_words);

  const KernelSpec& spec() const { return spec_; }
  const FusedKernel& fused() const { return *spec_.fused; }
  const Caps& caps() const { return caps_; }

  /// uint expression of a number that varies between shapes: "0u", "1u", a push word ("P.w3"), or a literal once the
  /// push block is full. Negative numbers wrap: index arithmetic is modulo 2^32.
  std::string number(std::int64_t value);

  void define(std::string_view name, std::int64_t value);           ///< #define name value
  void define(std::string_view name, std::string_view expression);  ///< the same, e.g. of a number()
  /// #define of every template constant of the spec but `except`.
  void define_constants(std::string_view except = {});
  /// Template kernels: the buffer of an input or a result, "B0".
  std::string input(std::size_t i) const;
  std::string result(std::size_t i) const;
  void extension(std::string_view name);                            ///< #extension name : require
  void add(std::string_view text);  ///< functions, shared arrays: before the template, in order of calls

  /// Declares the operand's buffer as an array of 4-vectors (default: scalars). Its size must be a multiple of 4.
  /// Scalar accesses still work, at the price of a dynamic component.
  void set_vector_view(std::uint32_t operand);
  /// set_vector_view for every operand that `body` accesses in aligned runs of 4 along `dim` and in no other way.
  void use_vector_views(const Body& body, std::uint32_t dim);
  /// Element type of the workspace binding W[] (default float); it is coherent. The counters are C[], coherent uint.
  void set_workspace_type(std::string_view type) { workspace_type_ = type; }

  /// The instructions that values() prints for `wanted`, in order.
  static std::vector<std::uint32_t> needed(const Body& body, const Site& site, std::span<const std::uint32_t> wanted);
  /// Statements that leave each of `wanted` in a variable, with everything they need, each instruction once.
  std::string values(const Body& body, const Site& site, std::span<const std::uint32_t> wanted);
  /// The variable or expression that holds an instruction's value after values() or stores().
  std::string name(const Site& site, std::uint32_t instr) const;
  /// The same for what `stores` (indices into body.stores) need, all values before the first store, then the stores.
  /// Printed stores are unconditional: the caller keeps coordinates outside the space away.
  std::string stores(const Body& body, const Site& site, std::span<const std::uint32_t> stores);
  /// Statements "uint <names[d]> = ..." that split a linear row-major index over `extents`; `compiled`: these are literals.
  std::string split_index(std::string_view linear, std::span<const std::int64_t> extents,
                          std::span<const std::string> names, std::string_view indent, bool compiled = false);
  /// The functions of quant.glsl that find, read and decode pairs of quads of a quantized operand are then there; the end of their names.
  std::string pair_decoder(std::uint32_t operand);
  /// Element index of an access as a uint expression.
  std::string offset(const Access& access, std::span<const std::string> coords);
  /// uint expression that is below high - low exactly inside the guard.
  std::string guard_sum(const Access::Guard& guard, std::span<const std::string> coords);

  /// The complete text: everything above and the template kernels/<name>.glsl.
  KernelSource finish(std::string_view template_name);
  /// More numbers were asked for than the push block has words.
  bool overflowed() const { return overflowed_; }

 private:
  /// How an operand's buffer is declared: as scalars or 4-vectors of words; 16-bit floats as words of two, as pairs of words
  /// (vector view), or as 16-bit integers; quantized blocks as words.
  enum class Form : std::uint8_t { Scalars, Vectors, HalfWords, HalfQuads, Halves, Blocks };
  Form form(std::uint32_t operand) const;
  std::string buffer_element(std::uint32_t operand, DType compute) const;
  /// Functions that decode the elements of quantized operands.
  std::string decoders() const;
  /// The element at `index` as an expression of the compute dtype; the same of four that begin at a multiple of 4.
  std::string fetch(std::uint32_t operand, DType compute, const std::string& index) const;
  std::string fetch4(std::uint32_t operand, DType compute, const std::string& index) const;
  /// Statements that store a value of the buffer's type (u32 for booleans). `exact`: it is representable as it is.
  std::string put(std::uint32_t operand, const std::string& index, const std::string& value, bool exact) const;
  std::string put4(std::uint32_t operand, const std::string& index, const std::string& value, bool exact) const;

  std::string load(const Body& body, std::uint32_t at, const Site& site, const std::string& variable);
  std::string store(const Store& store, const Body& body, const Site& site);
  std::string expression(const Body& body, const Instr& instr, const Site& site);
  std::string op_function(const Body& body, const Instr& instr, int width);
  std::string guard(const Access& access, std::span<const std::string> coords);
  std::string declarations() const;

  const KernelSpec& spec_;
  const Caps& caps_;
  bool merge_;
  bool overflowed_ = false;
  std::vector<std::uint32_t> push_;
  std::map<std::int64_t, std::size_t> words_;
  std::string defines_, functions_, added_;
  std::set<std::string, std::less<>> extensions_, op_functions_;
  std::vector<int> views_;
  std::set<std::uint32_t> pairs_;  ///< quantized operands of which pairs of quads are decoded
  std::string workspace_type_ = "float";
};

}  // namespace aeshna

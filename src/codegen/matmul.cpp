// Matrix products: the hooks of matmul.glsl (with matmul_operand.glsl once per operand) and gemv.glsl.
#include <algorithm>
#include <array>
#include <format>
#include <string>

#include "base/fail.h"
#include "codegen/embedded_kernels.h"
#include "codegen/families.h"

namespace aeshna {
namespace {

/// How an operand of the product is loaded.
struct ProductLoad {
  bool is_a, vector, along_k;
};

/// Writes the hooks of one product kernel.
class ProductHooks {
 public:
  explicit ProductHooks(KernelWriter& writer)
      : writer_(writer), kernel_(writer.fused()), batch_rank_(kernel_.space.size() - 2) {
    AESHNA_CHECK(kernel_.kind == FusedKernel::Kind::Matmul && kernel_.space.size() >= 2);
    for (std::size_t d = 0; d < batch_rank_; ++d) batch_.push_back(std::format("batch{}", d));
  }

  std::int64_t rows() const { return kernel_.space[batch_rank_]; }
  std::int64_t columns() const { return kernel_.space[batch_rank_ + 1]; }

  /// #define `macro` as a number that varies between shapes.
  void number(std::string_view macro, std::int64_t value) {
    writer_.add(std::format("#define {} {}\n", macro, writer_.number(value)));
  }

  /// Template constants that are in the spec, except those of the launch alone.
  void constants() {
    for (const auto& [name, value] : writer_.spec().constants) {
      if (name != "PARTS") writer_.define(name, value);
    }
    const std::int64_t parts = writer_.spec().constant("PARTS");
    writer_.define("SPLIT", parts > 1 ? 1 : 0);
    number("DEPTH", kernel_.k);
    if (parts > 1) number("PARTS", parts);
  }

  /// set_batch(index) leaves the batch coordinates in batch0, batch1, ...
  void set_batch() {
    std::string text;
    std::vector<std::string> names;
    for (std::size_t d = 0; d < batch_rank_; ++d) {
      text += std::format("uint {};\n", batch_[d]);
      names.push_back(std::format("coordinate{}", d));
    }
    text += "void set_batch(uint index) {\n";
    text += writer_.split_index("index", std::span(kernel_.space).first(batch_rank_), names, "  ");
    for (std::size_t d = 0; d < batch_rank_; ++d) text += std::format("  {} = {};\n", batch_[d], names[d]);
    writer_.add(text + "}\n");
  }

  /// Operands that are moved as vectors become arrays of vec4. Call it before anything that reads through them is printed.
  void vector_views(const ProductLoad& load) {
    if (load.vector) vector_views(body(load), vector_dim(load));
  }
  void epilogue_views() { vector_views(kernel_.body, batch_rank_ + 1); }

  /// `<name>_load(outer, k)`, or with `vector` `<name>_load_vec`: four neighbours along k or along the outer coordinate.
  void load(std::string_view name, const ProductLoad& load) {
    const Body& from = body(load);
    AESHNA_CHECK(!from.instrs.empty() && from.instrs.back().dtype == DType::f32);
    Site site;
    site.coords = batch_;
    site.coords.insert(site.coords.end(), {load.is_a ? "outer" : "k", load.is_a ? "k" : "outer"});
    site.width = load.vector ? 4 : 1;
    site.vector_dim = static_cast<std::uint32_t>(vector_dim(load));
    const auto result = static_cast<std::uint32_t>(from.instrs.size() - 1);
    const std::string statements = writer_.values(from, site, std::array{result});
    writer_.add(std::format("{} {}_load{}(uint outer, uint k) {{\n{}  return {};\n}}\n", load.vector ? "vec4" : "float",
                            name, load.vector ? "_vec" : "", statements, writer_.name(site, result)));
  }

  /// `epilogue(m, n, float)`, or with `vector` `epilogue_vec(m, n, vec4)`: four columns.
  void epilogue(bool vector) {
    const Body& body = kernel_.body;
    Site site;
    site.coords = batch_;
    site.coords.insert(site.coords.end(), {"m", "n"});
    site.width = vector ? 4 : 1;
    site.vector_dim = static_cast<std::uint32_t>(batch_rank_ + 1);
    for (std::size_t i = 0; i < body.instrs.size(); ++i) {
      if (body.instrs[i].kind == Instr::Kind::Product) {
        site.given[static_cast<std::uint32_t>(i)] = {.expression = "product", .width = site.width};
      }
    }
    std::vector<std::uint32_t> all(body.stores.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint32_t>(i);
    const std::string statements = writer_.stores(body, site, all);
    writer_.add(std::format("void epilogue{}(uint m, uint n, {} product) {{\n{}}}\n", vector ? "_vec" : "",
                            vector ? "vec4" : "float", statements));
  }

  /// The text of matmul_operand.glsl for operand `letter` ("A" or "B").
  void operand_text(std::string_view letter, std::string_view outer, std::string_view offset) {
    writer_.add(std::format("#define {}_OUTER {}\n#define {}_TILE_OFFSET {}\n", letter, outer, letter, offset));
    for (const EmbeddedKernel& kernel : embedded_kernels()) {
      if (kernel.name != "matmul_operand") continue;
      std::string text(kernel.text);
      for (std::size_t at = text.find("X_"); at != std::string::npos; at = text.find("X_", at + 1))
        text.replace(at, 1, letter);
      writer_.add(text);
      return;
    }
    fail(ErrorCode::Internal, "no kernel template named 'matmul_operand' is embedded");
  }

 private:
  const Body& body(const ProductLoad& load) const { return load.is_a ? kernel_.a : kernel_.b; }
  /// The coordinate along which a load takes neighbours: a is batch ++ {M, K}, b is batch ++ {K, N}.
  std::size_t vector_dim(const ProductLoad& load) const { return batch_rank_ + (load.is_a == load.along_k ? 1 : 0); }

  void vector_views(const Body& body, std::size_t dim) {
    const auto view = [&](std::uint32_t operand, bool vector) {
      if (vector && kernel_.operands[operand].elements % 4 == 0) writer_.set_vector_view(operand);
    };
    for (const Instr& instr : body.instrs) {
      if (instr.kind == Instr::Kind::Load) view(instr.operand, vector_load(body, instr, dim));
    }
    for (const Store& store : body.stores) view(store.operand, vector_access(store.access, dim));
  }

  KernelWriter& writer_;
  const FusedKernel& kernel_;
  std::size_t batch_rank_;
  std::vector<std::string> batch_;
};

}  // namespace

KernelSource generate_matmul(KernelWriter& writer) {
  const KernelSpec& spec = writer.spec();
  const ProductLoad a{true, spec.constant("A_VEC") != 0, spec.constant("A_ALONG_K") != 0};
  const ProductLoad b{false, spec.constant("B_VEC") != 0, spec.constant("B_ALONG_K") != 0};
  const bool vector_epilogue = spec.constant("EPILOGUE_VEC") != 0;
  ProductHooks hooks(writer);
  hooks.vector_views(a);
  hooks.vector_views(b);
  if (vector_epilogue) hooks.epilogue_views();

  hooks.constants();
  hooks.number("ROWS", hooks.rows());
  hooks.number("COLS", hooks.columns());
  hooks.set_batch();
  hooks.load("A", a);
  hooks.load("B", b);
  hooks.epilogue(vector_epilogue);
  hooks.operand_text("A", "BM", "0");
  hooks.operand_text("B", "BN", "(STAGES * BK * BM / 4)");
  writer.set_workspace_type("vec4");
  return writer.finish("matmul");
}

KernelSource generate_gemv(KernelWriter& writer) {
  const KernelSpec& spec = writer.spec();
  const bool swapped = spec.constant("SWAPPED") != 0;  // the long operand is a
  const ProductLoad wide{swapped, spec.constant("W_VEC") != 0, spec.constant("ALONG_K") != 0};
  const ProductLoad narrow{!swapped, spec.constant("V_VEC") != 0, true};
  ProductHooks hooks(writer);
  hooks.vector_views(wide);
  hooks.vector_views(narrow);

  hooks.constants();
  hooks.number("LENGTH", swapped ? hooks.rows() : hooks.columns());
  hooks.set_batch();
  hooks.load("W", wide);
  hooks.load("V", narrow);
  hooks.epilogue(false);
  return writer.finish("gemv");
}

}  // namespace aeshna

// Matrix products: the hooks of matmul.glsl (with matmul_operand.glsl once per operand) and gemv.glsl.
#include <algorithm>
#include <array>
#include <string>

#include "base/fail.h"
#include "base/format.h"
#include "base/quant.h"
#include "codegen/families.h"
#include "ir/access.h"

namespace aeshna {
namespace {

/// How an operand of the product is loaded.
struct ProductLoad {
  bool is_a, vector, along_k;
  bool pair = false;  ///< pairs of quads of a quantized operand too
};

/// Writes the hooks of one product kernel.
class ProductHooks {
 public:
  explicit ProductHooks(KernelWriter& writer)
      : writer_(writer), kernel_(writer.fused()), batch_rank_(batch_rank(kernel_)) {
    for (std::size_t d = 0; d < batch_rank_; ++d) batch_.push_back(formatted("batch{}", d));
  }

  std::int64_t rows() const { return points_of(row_extents()); }
  std::int64_t columns() const { return points_of(column_extents()); }

  /// #define `macro` as a number that varies between shapes.
  void number(std::string_view macro, std::int64_t value) {
    writer_.add(formatted("#define {} {}\n", macro, writer_.number(value)));
  }

  /// Template constants that are in the spec, except those of the launch alone.
  void constants() {
    writer_.define_constants("PARTS");
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
      text += formatted("uint {};\n", batch_[d]);
      names.push_back(formatted("coordinate{}", d));
    }
    text += "void set_batch(uint index) {\n";
    text += writer_.split_index("index", std::span(kernel_.space).first(batch_rank_), names, "  ");
    for (std::size_t d = 0; d < batch_rank_; ++d) text += formatted("  {} = {};\n", batch_[d], names[d]);
    writer_.add(text + "}\n");
  }

  /// Operands that are moved as vectors become arrays of vec4. Call it before anything that reads through them is printed.
  void vector_views(const ProductLoad& load) {
    if (load.vector) vector_views(body(load), vector_dim(load));
  }
  void epilogue_views() { vector_views(kernel_.body, kernel_.space.size() - 1); }

  /// What a loader keeps of an outer coordinate, `<name>_Outer <name>_outer(uint)`, and of a depth, `<name>_K <name>_k(uint)`:
  /// their parts of every address and of every guard, so that the inner loop adds the two and divides nothing; then the load
  /// itself, `<name>_load(<name>_Outer, <name>_K)`, or with `vector` `<name>_load_vec`: four neighbours along k or the outer
  /// coordinate; with `pair` `<name>_pair(outer, k)` too, of the quads at k and quant_pair().distance further, with its readers and decoders
  /// (quant.glsl).
  void load(std::string_view name, const ProductLoad& load) {
    const Body& from = body(load);
    AESHNA_CHECK(!from.instrs.empty() && from.instrs.back().dtype == DType::f32);
    const auto outer_extents = load.is_a ? row_extents() : column_extents();
    const std::vector<std::int64_t> k_extents = from.k.empty() ? std::vector{kernel_.k} : from.k;
    const std::size_t first_k = batch_rank_ + (load.is_a ? outer_extents.size() : 0);
    const std::size_t first_outer = batch_rank_ + (load.is_a ? 0 : k_extents.size());

    Part outer{.type = formatted("{}_Outer", name)}, k{.type = formatted("{}_K", name)};
    Site site;
    site.coords = batch_;
    std::vector<std::string> local = batch_;  // coordinates where the parts are computed
    for (const bool is_k : {!load.is_a, load.is_a}) {
      const std::size_t count = is_k ? k_extents.size() : outer_extents.size();
      for (std::size_t d = 0; d < count; ++d) {
        Part& part = is_k ? k : outer;
        part.names.push_back(formatted("{}{}", is_k ? "k" : "c", d));
        part.keep(part.names.back(), part.names.back());
        site.coords.push_back(formatted("{}.{}", is_k ? "k" : "o", part.names.back()));
        local.push_back(part.names.back());
      }
    }
    const auto in_k = [&](std::size_t dim) { return dim >= first_k && dim < first_k + k_extents.size(); };
    for (std::uint32_t i = 0; i < from.instrs.size(); ++i) {
      if (from.instrs[i].kind != Instr::Kind::Load) continue;
      Access of_outer = from.instrs[i].access, of_k = of_outer;
      for (std::size_t d = 0; d < of_k.strides.size(); ++d) (in_k(d) ? of_outer : of_k).strides[d] = 0;
      of_k.offset = 0;
      Site::Address& address = site.addresses[i];
      address.offset = sum(outer.keep(formatted("a{}", i), writer_.offset(of_outer, local)),
                           k.keep(formatted("a{}", i), writer_.offset(of_k, local)));
      for (std::size_t g = 0; g < of_k.guards.size(); ++g) {
        Access::Guard guard_outer = of_outer.guards[g], guard_k = of_outer.guards[g];
        std::erase_if(guard_outer.terms, [&](const auto& term) { return in_k(term.dim); });
        std::erase_if(guard_k.terms, [&](const auto& term) { return !in_k(term.dim); });
        guard_k.low = 0;
        const std::string field = formatted("g{}_{}", i, g);
        const std::string value = sum(outer.keep(field, writer_.guard_sum(guard_outer, local)),
                                      k.keep(field, writer_.guard_sum(guard_k, local)));
        const std::int64_t range = guard_outer.high - guard_outer.low;
        if (g > 0) address.condition += " && ";
        address.condition += range <= 0 ? "false" : formatted("{} < {}", value, writer_.number(range));
      }
    }
    const bool guarded = std::ranges::any_of(from.instrs, [](const Instr& i) { return !i.access.guards.empty(); });
    writer_.define(formatted("{}_KEEP", name), outer_extents.size() > 1 || guarded ? 1 : 0);
    writer_.add(outer.text("outer", writer_.split_index("x", outer_extents, outer.names, "  ")));
    // Extents of the contraction are compiled in: what divides by them is a multiplication.
    writer_.add(k.text("k", writer_.split_index("x", k_extents, k.names, "  ", true)));

    site.width = load.vector ? 4 : 1;
    site.vector_dim = static_cast<std::uint32_t>(vector_dim(load));
    AESHNA_CHECK(site.vector_dim == (load.along_k ? first_k + k_extents.size() : first_outer + outer_extents.size()) - 1);
    const auto result = static_cast<std::uint32_t>(from.instrs.size() - 1);
    const std::string statements = writer_.values(from, site, std::array{result});
    writer_.add(formatted("{} {}_load{}({} o, {} k) {{\n{}  return {};\n}}\n", load.vector ? "vec4" : "float", name,
                          load.vector ? "_vec" : "", outer.type, k.type, statements, writer_.name(site, result)));
    if (!load.pair) return;
    AESHNA_CHECK(from.instrs.size() == 1 && !guarded);
    const std::uint32_t operand = from.instrs[0].operand;
    const DType dtype = kernel_.operands[operand].dtype;
    const DTypeInfo& info = dtype_info(dtype);
    const std::uint32_t blocks = quant_unit_blocks(dtype);
    writer_.define(formatted("{}_UNIT_ELEMENTS", name), blocks * info.block_elements);
    writer_.define(formatted("{}_UNIT_WORDS", name), blocks * info.block_bytes / 4);
    writer_.define(formatted("{}_ONE_SCALE", name), quant_pair(dtype).one_scale ? 1 : 0);
    writer_.define(formatted("{}_OFFSET", name), quant_pair(dtype).offset ? 1 : 0);
    const std::string suffix = writer_.pair_decoder(operand);
    writer_.add(formatted("Pair {}_pair({} o, {} k) {{ return pair_at{}({}); }}\n", name, outer.type, k.type, suffix,
                          site.addresses[0].offset));
    for (const std::string_view function : {"words", "values", "scale_words", "scales"}) {
      writer_.define(formatted("{}_pair_{}", name, function), formatted("pair_{}{}", function, suffix));
    }
  }

  /// `epilogue(m, n, float)`, or with `vector` `epilogue_vec(m, n, vec4)`: four columns.
  void epilogue(bool vector) {
    const Body& body = kernel_.body;
    Site site;
    site.coords = batch_;
    std::string text;
    for (const auto& [extents, letter] : {std::pair{row_extents(), "m"}, std::pair{column_extents(), "n"}}) {
      std::vector<std::string> names;
      if (extents.size() == 1) {
        names = {letter};
      } else {
        for (std::size_t d = 0; d < extents.size(); ++d) names.push_back(formatted("{}{}", letter, d));
        text += writer_.split_index(letter, extents, names, "  ");
      }
      site.coords.insert(site.coords.end(), names.begin(), names.end());
    }
    site.width = vector ? 4 : 1;
    site.vector_dim = static_cast<std::uint32_t>(kernel_.space.size() - 1);
    for (std::size_t i = 0; i < body.instrs.size(); ++i) {
      if (body.instrs[i].kind == Instr::Kind::Product) {
        site.given[static_cast<std::uint32_t>(i)] = {.expression = "product", .width = site.width};
      }
    }
    std::vector<std::uint32_t> all(body.stores.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint32_t>(i);
    text += writer_.stores(body, site, all);
    writer_.add(formatted("void epilogue{}(uint m, uint n, {} product) {{\n{}}}\n", vector ? "_vec" : "",
                          vector ? "vec4" : "float", text));
  }

  /// The text of matmul_operand.glsl for operand `letter` ("A" or "B").
  void operand_text(std::string_view letter, std::string_view outer, std::string_view offset) {
    writer_.add(formatted("#define {}_OUTER {}\n#define {}_TILE_OFFSET {}\n", letter, outer, letter, offset));
    std::string text(kernel_text("matmul_operand"));
    for (std::size_t at = text.find("X_"); at != std::string::npos; at = text.find("X_", at + 1)) text.replace(at, 1, letter);
    writer_.add(text);
  }

 private:
  /// One half of what addresses are made of: the fields of a struct and the expressions that they hold.
  struct Part {
    std::string type;
    std::vector<std::string> names = {};  ///< of the coordinates
    std::vector<std::pair<std::string, std::string>> fields = {};

    /// The field's value as seen from outside; empty when the part is nothing.
    std::string keep(const std::string& field, const std::string& expression) {
      if (expression == "0u") return {};
      fields.emplace_back(field, expression);
      return formatted("{}.{}", type.ends_with("_K") ? "k" : "o", field);
    }
    std::string text(std::string_view function, std::string_view coordinates) const {
      std::string text = "struct " + type + " {";
      for (const auto& [field, _] : fields) text += formatted(" uint {};", field);
      const std::string prefix = type.substr(0, type.find('_'));
      text += formatted(" }};\n{} {}_{}(uint x) {{\n{}  return {}(", type, prefix, function, coordinates, type);
      for (std::size_t i = 0; i < fields.size(); ++i) text += (i == 0 ? "" : ", ") + fields[i].second;
      return text + ");\n}\n";
    }
  };

  static std::string sum(const std::string& a, const std::string& b) {
    if (a.empty() || b.empty()) return a.empty() && b.empty() ? "0u" : a + b;
    return formatted("({} + {})", a, b);
  }

  std::span<const std::int64_t> row_extents() const { return std::span(kernel_.space).subspan(batch_rank_, kernel_.row_rank); }
  std::span<const std::int64_t> column_extents() const { return std::span(kernel_.space).last(kernel_.column_rank); }

  const Body& body(const ProductLoad& load) const { return load.is_a ? kernel_.a : kernel_.b; }
  /// The dimension along which a load takes neighbours: the last of k, or of the outer ones.
  std::size_t vector_dim(const ProductLoad& load) const { return product_vector_dim(kernel_, load.is_a, load.along_k); }

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
  const ProductLoad wide{swapped, spec.constant("W_VEC") != 0, spec.constant("ALONG_K") != 0,
                         spec.constant("W_PAIR") != 0};
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

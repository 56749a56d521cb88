// Reduction kernels. The body runs once per level: a pass over the inner points accumulates every Reduce of that
// level, each thread its share in a fixed order, then shared memory combines the threads of a row in a fixed order;
// the result is known to all of them. A last pass computes what is stored on the whole space. Where a thread has few
// points (KEEP), what a pass computes and a later one needs stays in registers; else it is computed again.
#include <algorithm>

#include "base/fail.h"
#include "base/format.h"
#include "codegen/families.h"

namespace aeshna {
namespace {

bool is_arg(const Instr& instr) { return instr.reduce == ReduceKind::ArgMax || instr.reduce == ReduceKind::ArgMin; }

class ReduceText {
 public:
  explicit ReduceText(KernelWriter& writer)
      : writer_(writer),
        kernel_(writer.fused()),
        body_(kernel_.body),
        levels_(reduction_levels(kernel_)),
        outer_extents_(kernel_.space.begin(), kernel_.space.begin() + kernel_.outer_rank),
        inner_extents_(kernel_.space.begin() + kernel_.outer_rank, kernel_.space.end()),
        width_(static_cast<int>(constant("WIDTH"))),
        unroll_(constant("UNROLL")),
        keep_(constant("KEEP")),
        parts_(constant("PARTS")) {
    if (width_ == 4) inner_extents_.back() /= 4;
    for (std::size_t d = 0; d < kernel_.space.size(); ++d) names_.push_back(formatted("c{}", d));
    outer_.coords.assign(kernel_.space.size(), "0u");
    std::copy_n(names_.begin(), kernel_.outer_rank, outer_.coords.begin());
    outer_.prefix = "o";
  }

  KernelSource generate() {
    declare();
    text_ += "void reduce_rows() {\n";
    text_ += writer_.split_index("row", outer_extents_, names_, "  ");
    for (std::uint32_t level = 1; level <= levels_.levels; ++level) reduce_level(level);
    store_all();
    text_ += "}\n";
    writer_.add(text_);
    return writer_.finish("reduce");
  }

 private:
  std::int64_t constant(std::string_view name) const { return writer_.spec().constant(name); }

  /// The type in which a reduction accumulates.
  DType accumulator(const Instr& reduce) const {
    const DType dtype = body_.instrs[reduce.args[0]].dtype;
    return dtype == DType::boolean ? DType::u32 : dtype;
  }

  bool flushed(const Instr& reduce) const {
    return constant("FLUSH") != 0 && reduce.reduce == ReduceKind::Sum && accumulator(reduce) == DType::f32;
  }

  void declare() {
    const std::int64_t rows = points_of(outer_extents_);
    points_ = writer_.number(points_of(inner_extents_));
    for (std::int64_t& extent : inner_extents_)
      extent = std::max<std::int64_t>(extent, 1);  // no division by zero in dead code
    writer_.define("ROWS", writer_.number(rows));
    writer_.define("TX", formatted("{}u", constant("TX")));
    writer_.define("TY", formatted("{}u", constant("TY")));
    writer_.define("BY_COLUMNS", constant("COLUMNS") != 0 ? "true" : "false");
    writer_.define("PARTS", parts_ == 1 ? "1u" : writer_.number(parts_));
    writer_.set_workspace_type("uint");
    if (width_ == 4) writer_.use_vector_views(body_, static_cast<std::uint32_t>(kernel_.space.size() - 1));
    text_ += "uint thread, tx, ty, block, part, row;\nbool row_inside;\n";
    if (constant("TY") > 1) {
      for (std::uint32_t i : reductions(0)) {
        text_ += formatted("shared {} s{}[TX * TY];\n", glsl_type(accumulator(body_.instrs[i])), i);
        if (is_arg(body_.instrs[i])) text_ += formatted("shared uint si{}[TX * TY];\n", i);
      }
    }
    if (parts_ > 1) text_ += "shared uint arrived;\n";
  }

  /// Reduce instructions of one level, or of all (0).
  std::vector<std::uint32_t> reductions(std::uint32_t level) const {
    std::vector<std::uint32_t> list;
    for (std::uint32_t i = 0; i < body_.instrs.size(); ++i) {
      if (body_.instrs[i].kind == Instr::Kind::Reduce && (level == 0 || levels_.level[i] == level)) list.push_back(i);
    }
    return list;
  }

  /// Puts what lives on the outer space and `wanted` depends on into variables of the function's scope.
  void hoist(std::span<const std::uint32_t> wanted) {
    std::vector<std::uint32_t> frontier;
    for (std::uint32_t i : KernelWriter::needed(body_, outer_, wanted)) {
      if (levels_.outer[i]) frontier.push_back(i);
    }
    text_ += writer_.values(body_, outer_, frontier);
    for (std::uint32_t i : KernelWriter::needed(body_, outer_, frontier))
      outer_.given[i] = {writer_.name(outer_, i), 1};
  }

  /// The site of one inner point, whose number is the variable `i`; `text` gets the coordinates.
  Site inner_site(std::string_view indent, std::string& text) const {
    Site site = outer_;
    site.prefix = "v";
    site.indent = indent;
    site.width = width_;
    site.vector_dim = static_cast<std::uint32_t>(kernel_.space.size() - 1);
    std::vector<std::string> names(names_.begin() + kernel_.outer_rank, names_.end());
    if (width_ == 4) names.back() = "quad";
    text += writer_.split_index("i", inner_extents_, names, indent);
    if (width_ == 4) text += formatted("{}uint {} = quad * 4u;\n", indent, names_.back());
    std::copy(names_.begin() + kernel_.outer_rank, names_.end(), site.coords.begin() + kernel_.outer_rank);
    for (std::uint32_t i : kept_) site.given[i] = {formatted("k{}[u]", i), width_};
    return site;
  }

  /// Opens a loop over this thread's points; `i` is the point, `u` the accumulator. Two braces.
  std::string open_loop(std::string_view begin, std::string_view end, std::int64_t unroll) const {
    if (keep_ > 0) {
      return formatted(
          "  [[unroll]] for (uint u = 0u; u < {}u; ++u) {{\n    uint i = ty + u * TY;\n    if (i < {} && row_inside) "
          "{{\n",
          keep_, end);
    }
    return formatted(
        "  for (uint base = {} + ty; base < {} && row_inside; base += {}u * TY) {{\n"
        "    [[unroll]] for (uint u = 0u; u < {}u; ++u) {{\n      uint i = base + u * TY;\n      if (i >= {}) "
        "continue;\n",
        begin, end, unroll, unroll, end);
  }

  /// Values that the pass at `site` computes for `roots` and later passes need: arrays for them, declared before the
  /// pass (`declarations`), and statements that fill them.
  std::string keep_values(const Site& site, std::span<const std::uint32_t> roots, std::uint32_t level,
                          std::string& declarations) {
    if (keep_ == 0) return {};
    std::vector<std::uint32_t> later;
    for (std::uint32_t i = 0; i < body_.instrs.size(); ++i) {
      if (body_.instrs[i].kind == Instr::Kind::Reduce && levels_.level[i] > level)
        later.push_back(body_.instrs[i].args[0]);
    }
    for (const Store& store : body_.stores) {
      if (!store.outer) later.push_back(store.value);
    }
    // Where the paths from later values meet what is computed here.
    Site known = site;
    const std::vector<std::uint32_t> here = KernelWriter::needed(body_, site, roots);
    for (std::uint32_t i : here) known.given[i] = {};
    std::vector<bool> wanted(body_.instrs.size(), false);
    for (std::uint32_t i : later) wanted[i] = true;
    for (std::uint32_t i : KernelWriter::needed(body_, known, later)) {
      for (std::uint32_t arg : body_.instrs[i].args) wanted[arg] = true;
    }
    std::string text;
    for (std::uint32_t i : here) {
      const Instr::Kind kind = body_.instrs[i].kind;
      if (!wanted[i] || kind == Instr::Kind::Literal || kind == Instr::Kind::Index) continue;
      declarations += formatted("  {} k{}[{}];\n", glsl_type(body_.instrs[i].dtype, width_), i, keep_);
      text += formatted("{}k{}[u] = {};\n", site.indent, i, writer_.name(site, i));
      kept_.push_back(i);
    }
    return text;
  }

  static std::string identity(const Instr& reduce, DType type) {
    const bool is_float = type == DType::f32, is_signed = type == DType::i32;
    switch (reduce.reduce) {
      case ReduceKind::Sum:
        return glsl_literal(type, 0);
      case ReduceKind::Prod:
        return glsl_literal(type, 1);
      case ReduceKind::Max:
      case ReduceKind::ArgMax:
        return is_float ? "-ae_infinity()" : is_signed ? "int(0x80000000u)" : "0u";
      case ReduceKind::Min:
      case ReduceKind::ArgMin:
        return is_float ? "ae_infinity()" : is_signed ? "0x7fffffff" : "0xffffffffu";
    }
    return {};
  }

  /// Statement that combines a value (and index) into `target`.
  static std::string combine(const Instr& reduce, DType type, const std::string& target,
                             const std::string& target_index, const std::string& value,
                             const std::string& value_index) {
    const bool is_float = type == DType::f32;
    switch (reduce.reduce) {
      case ReduceKind::Sum:
        return formatted("{} += {};", target, value);
      case ReduceKind::Prod:
        return formatted("{} *= {};", target, value);
      case ReduceKind::Max:
        return formatted("{0} = {1}({0}, {2});", target, is_float ? "ae_max" : "max", value);
      case ReduceKind::Min:
        return formatted("{0} = {1}({0}, {2});", target, is_float ? "ae_min" : "min", value);
      default:
        return formatted("if ({0}({3}, {4}, {1}, {2})) {{ {1} = {3}; {2} = {4}; }}",
                         reduce.reduce == ReduceKind::ArgMax ? "ae_argmax_before" : "ae_argmin_before", target,
                         target_index, value, value_index);
    }
  }

  void reduce_level(std::uint32_t level) {
    const std::vector<std::uint32_t> list = reductions(level);
    if (list.empty()) return;
    text_ += formatted("  // level {}\n", level);
    accumulate(list, level);
    fold_accumulators(list);
    combine_threads(list);
    if (parts_ > 1) combine_parts(list);
    for (std::uint32_t i : list) {
      const Instr& reduce = body_.instrs[i];
      const DType result = reduce.dtype;
      std::string value = is_arg(reduce) ? formatted("ai{}", i) : formatted("a{}", i);
      if (is_arg(reduce) || accumulator(reduce) != result) value = formatted("{}({})", glsl_type(result), value);
      text_ += formatted("  {} r{} = {};\n", glsl_type(result), i, value);
      outer_.given[i] = {formatted("r{}", i), 1};
    }
  }

  /// The points of this thread: every TY-th of its part, into UNROLL accumulators p<i> (with indices pi<i>) in turn.
  /// Long float sums move to totals t<i> every 64 turns, so that no chain of roundings gets long.
  void accumulate(std::span<const std::uint32_t> list, std::uint32_t level) {
    std::vector<std::uint32_t> arguments;
    for (std::uint32_t i : list) arguments.push_back(body_.instrs[i].args[0]);
    hoist(arguments);
    const auto array = [&](std::string_view type, std::string_view name, std::uint32_t i, std::string_view value) {
      text_ += formatted("  {0} {1}{2}[{3}];\n  [[unroll]] for (uint u = 0u; u < {3}u; ++u) {1}{2}[u] = {0}({4});\n",
                         type, name, i, unroll_, value);
    };
    bool any_flushed = false;
    for (std::uint32_t i : list) {
      const Instr& reduce = body_.instrs[i];
      const DType type = accumulator(reduce);
      array(glsl_type(type, width_), "p", i, identity(reduce, type));
      if (flushed(reduce)) array(glsl_type(type, width_), "t", i, "0.0");
      if (is_arg(reduce)) array("uint", "pi", i, "0xffffffffu");
      any_flushed = any_flushed || flushed(reduce);
    }
    std::string begin = "0u", end = points_;
    if (parts_ > 1) {
      text_ += formatted(
          "  uint share = ({0} + PARTS - 1u) / PARTS;\n  uint begin = part * share;\n  uint end = min(begin + share, "
          "{0});\n",
          points_);
      begin = "begin";
      end = "end";
    }
    if (any_flushed) text_ += formatted("  uint turns{} = 0u;\n", level);

    std::string loop = open_loop(begin, end, unroll_);
    const Site site = inner_site("      ", loop);
    loop += writer_.values(body_, site, arguments);
    const std::string_view u = keep_ > 0 ? "0" : "u";
    for (std::uint32_t i : list) {
      const Instr& reduce = body_.instrs[i];
      const DType type = accumulator(reduce);
      std::string value = writer_.name(site, reduce.args[0]);
      const auto known = site.given.find(reduce.args[0]);
      const bool narrow = known != site.given.end() && known->second.width < width_;
      if (body_.instrs[reduce.args[0]].dtype != type || narrow)
        value = formatted("{}({})", glsl_type(type, width_), value);
      loop += formatted("      {}\n",
                        combine(reduce, type, formatted("p{}[{}]", i, u), formatted("pi{}[{}]", i, u), value, "i"));
    }
    loop += keep_values(site, arguments, level, text_);
    text_ += loop + "    }\n";
    if (any_flushed) {
      text_ += formatted("    if ((++turns{} & 63u) == 0u) {{\n", level);
      for (std::uint32_t i : list) {
        if (!flushed(body_.instrs[i])) continue;
        text_ += formatted(
            "      [[unroll]] for (uint u = 0u; u < {1}u; ++u) {{ t{0}[u] += p{0}[u]; p{0}[u] = {2}(0.0); }}\n", i,
            unroll_, glsl_type(DType::f32, width_));
      }
      text_ += "    }\n";
    }
    text_ += "  }\n";
  }

  /// The accumulators of this thread become one scalar a<i> (and index ai<i>).
  void fold_accumulators(std::span<const std::uint32_t> list) {
    for (std::uint32_t i : list) {
      const Instr& reduce = body_.instrs[i];
      const DType type = accumulator(reduce);
      if (flushed(reduce))
        text_ += formatted("  [[unroll]] for (uint u = 0u; u < {1}u; ++u) p{0}[u] += t{0}[u];\n", i, unroll_);
      const std::string value = formatted("a{}", i), index = formatted("ai{}", i);
      const auto lane_of = [&](std::int64_t u, int lane) {
        return width_ == 1 ? formatted("p{}[{}]", i, u) : formatted("p{}[{}].{}", i, u, "xyzw"[lane]);
      };
      text_ += formatted("  {} {} = {};\n", glsl_type(type), value, lane_of(0, 0));
      if (is_arg(reduce)) text_ += formatted("  uint {} = pi{}[0];\n", index, i);
      for (std::int64_t n = 1; n < unroll_ * width_; ++n) {
        const std::int64_t u = n / width_;
        text_ +=
            "  " +
            combine(reduce, type, value, index, lane_of(u, static_cast<int>(n % width_)), formatted("pi{}[{}]", i, u)) +
            "\n";
      }
    }
  }

  /// a<i> (and ai<i>) of the TY threads of a row become one, the same in each of them: first STEP threads combine
  /// every STEP-th value, then each thread combines the STEP results; two barriers instead of log2(TY).
  void combine_threads(std::span<const std::uint32_t> list) {
    const std::int64_t ty = constant("TY");
    if (ty == 1) return;
    std::int64_t step = 1;
    while (step * step < ty) step *= 2;
    const std::int64_t stride = constant("COLUMNS") != 0 ? constant("TX") : 1;
    const auto put = [&](std::uint32_t i) {
      std::string text = formatted("s{0}[thread] = a{0};", i);
      if (is_arg(body_.instrs[i])) text += formatted(" si{0}[thread] = ai{0};", i);
      return text;
    };
    const auto take = [&](std::uint32_t i, std::string_view from) {
      const Instr& reduce = body_.instrs[i];
      return combine(reduce, accumulator(reduce), formatted("a{}", i), formatted("ai{}", i),
                     formatted("s{}[{}]", i, from), formatted("si{}[{}]", i, from));
    };
    for (std::uint32_t i : list) text_ += "  " + put(i) + "\n";
    text_ += "  barrier();\n";
    if (step < ty) {
      text_ += formatted("  if (ty < {0}u) {{\n    for (uint j = thread + {1}u; j < thread + {2}u; j += {1}u) {{\n",
                         step, step * stride, (ty - step) * stride + 1);
      for (std::uint32_t i : list) text_ += "      " + take(i, "j") + "\n";
      text_ += "    }\n";
      for (std::uint32_t i : list) text_ += "    " + put(i) + "\n";
      text_ += "  }\n  barrier();\n";
    }
    text_ += formatted("  {{\n    uint first = thread - ty * {}u;\n", stride);
    for (std::uint32_t i : list) {
      text_ += formatted("    a{0} = s{0}[first];\n", i);
      if (is_arg(body_.instrs[i])) text_ += formatted("    ai{0} = si{0}[first];\n", i);
    }
    text_ += formatted("    for (uint j = first + {0}u; j < first + {1}u; j += {0}u) {{\n", stride,
                       std::min(step, ty) * stride);
    for (std::uint32_t i : list) text_ += "      " + take(i, "j") + "\n";
    text_ += "    }\n  }\n";
  }

  /// Partial results of PARTS workgroups: each leaves its own in the workspace, the last to arrive combines them in
  /// order.
  void combine_parts(std::span<const std::uint32_t> list) {
    std::size_t words = 0;
    for (std::uint32_t i : list) words += is_arg(body_.instrs[i]) ? 2 : 1;
    const auto word = [&](std::string_view which, std::size_t k) {
      return formatted("W[((block * PARTS + {}) * TX + tx) * {}u + {}u]", which, words, k);
    };
    const auto from_bits = [&](DType type, const std::string& text) {
      return type == DType::f32 ? "uintBitsToFloat(" + text + ")" : formatted("{}({})", glsl_type(type), text);
    };
    text_ += "  if (ty == 0u) {\n";
    std::size_t k = 0;
    for (std::uint32_t i : list) {
      const bool is_float = accumulator(body_.instrs[i]) == DType::f32;
      text_ += formatted("    {} = {}(a{});\n", word("part", k++), is_float ? "floatBitsToUint" : "uint", i);
      if (is_arg(body_.instrs[i])) text_ += formatted("    {} = ai{};\n", word("part", k++), i);
    }
    text_ +=
        "  }\n  memoryBarrierBuffer();\n  barrier();\n  if (thread == 0u) arrived = atomicAdd(C[block], 1u);\n  "
        "barrier();\n"
        "  if (arrived != PARTS - 1u) return;\n  memoryBarrierBuffer();\n";
    for (std::uint32_t i : list) {
      const Instr& reduce = body_.instrs[i];
      text_ += formatted("  a{} = {};\n", i, identity(reduce, accumulator(reduce)));
      if (is_arg(reduce)) text_ += formatted("  ai{} = 0xffffffffu;\n", i);
    }
    text_ += "  for (uint j = ty; j < PARTS; j += TY) {\n";
    k = 0;
    for (std::uint32_t i : list) {
      const Instr& reduce = body_.instrs[i];
      const std::string value = from_bits(accumulator(reduce), word("j", k++));
      const std::string index = is_arg(reduce) ? word("j", k++) : "";
      text_ +=
          "    " + combine(reduce, accumulator(reduce), formatted("a{}", i), formatted("ai{}", i), value, index) + "\n";
    }
    text_ += "  }\n";
    combine_threads(list);
    text_ += "  if (thread == 0u) C[block] = 0u;  // ready for the next launch\n";
  }

  void store_all() {
    std::vector<std::uint32_t> outer, full, outer_values, full_values;
    for (std::uint32_t i = 0; i < body_.stores.size(); ++i) {
      const Store& store = body_.stores[i];
      AESHNA_CHECK(!store.outer || levels_.outer[store.value]);
      (store.outer ? outer : full).push_back(i);
      (store.outer ? outer_values : full_values).push_back(store.value);
    }
    if (!full.empty()) {
      text_ += "  // stores on the whole space\n";
      hoist(full_values);
      std::string loop = open_loop("0u", points_, 1);
      const Site site = inner_site("      ", loop);
      text_ += loop + writer_.stores(body_, site, full) + "    }\n  }\n";
    }
    if (!outer.empty()) {
      text_ += "  // stores per row\n  if (ty == 0u && row_inside) {\n";
      Site site = outer_;
      site.indent = "    ";
      text_ += writer_.stores(body_, site, outer) + "  }\n";
    }
  }

  KernelWriter& writer_;
  const FusedKernel& kernel_;
  const Body& body_;
  ReductionLevels levels_;
  std::vector<std::int64_t> outer_extents_, inner_extents_;  ///< inner: in points, 4 elements each where WIDTH is 4
  int width_;
  std::int64_t unroll_;  ///< accumulators per thread, taken in turn
  std::int64_t keep_;    ///< points per thread, if all of them stay in registers; else 0
  std::int64_t parts_;
  std::vector<std::string> names_;
  std::string points_;
  Site outer_;                       ///< `given` grows as values become known
  std::vector<std::uint32_t> kept_;  ///< instructions whose values for all points of the thread are in arrays k<i>
  std::string text_;
};

}  // namespace

KernelSource generate_reduce(KernelWriter& writer) { return ReduceText(writer).generate(); }

}  // namespace aeshna

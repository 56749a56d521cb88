#include "io/nnef/importer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <set>
#include <tuple>

#include "base/byte_reader.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/names.h"
#include "io/nnef/operation.h"
#include "io/nnef/tensor_file.h"
#include "ir/leaf.h"

namespace aeshna::nnef {
namespace {

constexpr std::uint64_t kMaxText = 16u << 20;     // bytes of a graph's text
constexpr std::size_t kMaxNodes = 1 << 17;        // of the graph
constexpr std::int64_t kMaxElements = 1ll << 40;  // of one tensor
constexpr std::size_t kMaxConstantBytes = 64u << 20;  // of the graph: those written in the text, and tables of borders

class Importer final : public Operations {
 public:
  Importer(const Document& document, const Variables& variables, const ImportOptions& options, Outcome& outcome)
      : document_(document), variables_(variables), options_(options), outcome_(outcome), graph_(*outcome.model.graph) {
    for (const Operation* op : all_operations())
      operations_.emplace(op->name, Known{op, parse_signature(op->name, op->signature)});
    for (const Assignment& a : document.graph.body) find_untrained(*a.value);
  }

  void run() {
    check_options();
    const Names names = evaluate(document_, *this);
    check_parameters();
    for (const Parameter& result : document_.graph.results) add_output(result, names.find(result.name)->second);
    for (const Parameter& p : document_.graph.parameters) {
      if (!options_.binds.contains(p.name)) outcome_.model.inputs.push_back(p.name);
    }
  }

  const Fragment* declaration(std::string_view name) const override {
    const auto found = operations_.find(name);
    return found == operations_.end() ? nullptr : &found->second.declaration;
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> list;
    for (const auto& [name, known] : operations_) list.push_back(name);
    return list;
  }

  std::vector<Any> call(const Invocation& i) override {
    const auto found = operations_.find(i.declaration.name);
    const Operation* op =
        found == operations_.end() || i.declaration.has_body || &found->second.declaration != &i.declaration
            ? nullptr
            : found->second.op;
    ++outcome_.model.ops[i.declaration.name];
    const std::vector<Any> unknown(i.declaration.results.size());
    if (op == nullptr) return refused(i, "a fragment without a body, which nothing here defines"), unknown;
    if (op->translate == nullptr && !op->leaf) return refused(i, op->note), unknown;
    if (std::ranges::any_of(i.arguments, &Any::unknown)) return unknown;
    const std::size_t first = graph_.nodes().size();
    try {
      Call c(graph_, i);
      std::vector<Any> results = op->leaf ? leaf(c, i) : op->translate(c);
      if (graph_.nodes().size() > kMaxNodes) fail(ErrorCode::LimitExceeded, "more than {} nodes", kMaxNodes);
      for (std::size_t n = first; n < graph_.nodes().size(); ++n) {
        Node& node = graph_.mutable_node(static_cast<NodeId>(n));
        node.line = {document_.file, i.place.line};
        if (const AttrValue* value = is_constant(node) ? node.attrs.find("value") : nullptr)
          constant_bytes_ += std::get<Literal>(*value).bytes().size();
        for (const TensorType& type : node.results) {
          if (type.shape.elements() > kMaxElements) fail(ErrorCode::LimitExceeded, "a tensor of {}", type.to_string());
        }
      }
      if (constant_bytes_ > kMaxConstantBytes)
        fail(ErrorCode::LimitExceeded, "more than {} bytes of constants", kMaxConstantBytes);
      name_result(i, results);
      return results;
    } catch (const Refusal& refusal) {
      refused(i, refusal.reason);
    } catch (const Violation& violation) {
      wrong_at(document_.file, i.place, formatted("{}: {}", i.declaration.name, violation.message));
    } catch (const Mismatch& mismatch) {
      fail(ErrorCode::InvalidArgument, "{}:{}:{}: {}", document_.file, i.place.line, i.place.column, mismatch.message);
    } catch (const Error& error) {
      if (!error.contexts().empty() && i.declaration.name == "variable") throw;
      std::string_view reason = error.message();
      if (const std::string own = formatted("[{}] ", i.declaration.name); reason.starts_with(own))
        reason.remove_prefix(own.size());
      const std::string message = formatted("{}: {}", i.declaration.name, reason);
      switch (error.code()) {
        case ErrorCode::Unsupported:
          refused(i, reason);
          break;
        case ErrorCode::ShapeMismatch:
        case ErrorCode::DTypeMismatch:
        case ErrorCode::InvalidArgument:
          wrong_at(document_.file, i.place, message);
        default:
          fail(error.code(), "{}:{}:{}: {}", document_.file, i.place.line, i.place.column, message);
      }
    }
    return unknown;
  }

 private:
  /// The caller's options do not fit the file.
  struct Mismatch {
    std::string message;
  };
  struct Known {
    const Operation* op;
    Fragment declaration;
  };

  /// The node of a result of the graph is called as the file calls it, for dumps and messages.
  void name_result(const Invocation& i, const std::vector<Any>& results) {
    if (!i.in_graph || i.target == nullptr || i.target->kind != Expr::Kind::Name || results.size() != 1) return;
    const Tensor* tensor = results[0].get<Tensor>();
    if (tensor == nullptr || tensor->value.id().result != 0 || !tensor->value.node().name.empty() || is_constant(tensor->value.node())) return;
    tensor->value.named(i.target->text);
  }

  void refused(const Invocation& i, std::string_view reason) {
    if (!refused_.emplace(i.place, i.declaration.name).second) return;  // the same line of a fragment, once more
    outcome_.unsupported.push_back(
        {formatted("{}:{}", i.place.line, i.place.column), i.declaration.name, std::string(reason), {}});
  }

  // ---- options, inputs and outputs

  /// Variables that `update` changes, and statistics of batch normalizations, are no weights to train.
  void find_untrained(const Expr& e) {
    static constexpr std::array<std::tuple<std::string_view, std::string_view, std::size_t>, 3> table = {
        {{"update", "variable", 0}, {"batch_normalization", "mean", 1}, {"batch_normalization", "variance", 2}}};
    for (std::size_t i = 0; i < e.items.size(); ++i) {
      if (!e.items[i]) continue;
      for (const auto& [op, parameter, position] : table) {
        if (e.kind != Expr::Kind::Call || e.text != op || e.items[i]->kind != Expr::Kind::Name) continue;
        if (e.names[i].empty() ? i == position : e.names[i] == parameter) untrained_.insert(e.items[i]->text);
      }
      find_untrained(*e.items[i]);
    }
  }

  void check_options() const {
    std::vector<std::string> names;
    for (const Parameter& p : document_.graph.parameters) names.push_back(p.name);
    const auto check = [&](const auto& given, const char* what) {
      for (const auto& [name, value] : given) {
        if (std::ranges::find(names, name) == names.end())
          fail(ErrorCode::InvalidArgument, "{}: a {} is given for '{}', which is no input{}", document_.file, what,
               name, suggest_names(name, names));
      }
    };
    check(options_.shapes, "shape");
    check(options_.binds, "value");
  }

  void check_parameters() const {
    for (const Parameter& p : document_.graph.parameters) {
      if (!externals_.contains(p.name))
        wrong_at(document_.file, p.place,
                 formatted("parameter '{}' of the graph is assigned by no 'external'", p.name));
    }
  }

  void add_output(const Parameter& result, const Any& value) {
    if (value.unknown()) return;  // its operation is in the list
    const Tensor* tensor = value.get<Tensor>();
    if (tensor == nullptr)
      wrong_at(document_.file, result.place,
               formatted("result '{}' of the graph is {}, no tensor", result.name, type_text(value)));
    if (tensor->positions) {
      outcome_.unsupported.push_back({formatted("{}:{}", result.place.line, result.place.column),
                                      "result " + result.name,
                                      "the index of argmax_pool is for sample and desample alone",
                                      {}});
      return;
    }
    graph_.output(result.name, tensor->value);
    outcome_.model.outputs.push_back(result.name);
  }

  // ---- leaves

  std::vector<Any> leaf(Call& c, const Invocation& i) {
    const std::string_view name = i.declaration.name;
    if (name == "constant") return {constant(c)};
    if (!i.in_graph) c.wrong("only the graph itself may have one, not a fragment");
    if (name == "external") return {external(c, i)};
    return {name == "variable" ? variable(c, i) : update(c)};
  }

  Shape shape_of(const Call& c, bool may_be_open) const {
    const Ints dims = c.ints("shape");
    if (dims.size() > Shape::kMaxRank) c.refuse(formatted("rank {}; the largest is {}", dims.size(), Shape::kMaxRank));
    for (const std::int64_t d : dims) {
      if (d < (may_be_open ? 0 : 1)) c.wrong(formatted("'shape' holds {}", d));
    }
    const Shape shape{std::span<const std::int64_t>(dims)};
    if (shape.elements() > kMaxElements) fail(ErrorCode::LimitExceeded, "a tensor of {}", shape.to_string());
    return shape;
  }

  DType leaf_dtype(const Call& c, const Invocation& i) const {
    const Type::Kind kind = i.element ? i.element->kind : Type::Kind::Scalar;
    if (kind == Type::Kind::String || kind == Type::Kind::Generic)
      c.wrong(formatted("a tensor of {}", i.element->to_string()));
    return dtype_of(kind);
  }

  const std::string& target_of(const Call& c, const Invocation& i) const {
    if (i.target == nullptr || i.target->kind != Expr::Kind::Name) c.wrong("its result must be assigned to a name");
    return i.target->text;
  }

  /// What the caller gives, which must agree with the file wherever that is not open (0).
  static Shape closed(const std::string& name, const Shape& shape, const Shape& given, std::string_view what) {
    bool fits = given.rank() == shape.rank();
    for (int d = 0; fits && d < shape.rank(); ++d) fits = shape[d] == 0 || shape[d] == given[d];
    if (!fits)
      throw Mismatch{formatted("input '{}' is {}, the {} given {}", name, shape.to_string(), what, given.to_string())};
    return given;
  }

  /// An extent of 0 is open: it needs a shape from the caller.
  Value external(Call& c, const Invocation& i) {
    const std::string& name = target_of(c, i);
    if (std::ranges::find(document_.graph.parameters, name, &Parameter::name) == document_.graph.parameters.end())
      c.wrong(formatted("'{}' is no parameter of the graph", name));
    externals_.insert(name);
    const DType dtype = leaf_dtype(c, i);
    Shape shape = shape_of(c, true);
    const auto given = options_.shapes.find(name);
    const auto bound = options_.binds.find(name);
    if (given != options_.shapes.end()) shape = closed(name, shape, given->second, "shape");
    if (bound != options_.binds.end()) {
      const Literal& value = bound->second;
      const bool one = shape.elements() == 1 && value.type().shape.elements() == 1;
      if (!one) shape = closed(name, shape, value.type().shape, "value");
      return graph_.constant(Literal::from_doubles({dtype, shape}, value.to_doubles()));
    }
    if (shape.elements() == 0)
      throw Mismatch{
          formatted("input '{}' is {}: open dimensions need a shape (--shape NAME=D,D,...)", name, shape.to_string())};
    return graph_.input(name, shape, dtype);
  }

  Value variable(Call& c, const Invocation& i) {
    const std::string& label = c.text("label");
    const Shape shape = shape_of(c, false);
    const DType dtype = leaf_dtype(c, i);
    if (const auto leaf = graph_.leaf(label)) {
      const Value known = graph_.value({*leaf, 0});
      const TensorType type{dtype, shape};
      if (!outcome_.model.weights.contains(label)) c.wrong(formatted("the label '{}' is the name of an input", label));
      if (known.type() != type)
        c.wrong(
            formatted("variable '{}' is {} here and {} elsewhere", label, type.to_string(), known.type().to_string()));
      return known;
    }
    Literal value;
    try {
      value = variables_.read(label, shape);
    } catch (Error& error) {
      throw error.context(formatted("variable '{}' at {}:{}:{}", label, document_.file, i.place.line, i.place.column));
    }
    value = of_dtype(c, std::move(value), dtype, label);
    const bool untrained = i.target != nullptr && i.target->kind == Expr::Kind::Name && untrained_.contains(i.target->text);
    const Value leaf = graph_.parameter(
        label, shape,
        {.init = Init::zeros(), .dtype = dtype, .trainable = options_.trainable && is_float(dtype) && !untrained});
    outcome_.model.weights.emplace(label, std::move(value));
    return leaf;
  }

  Literal of_dtype(const Call& c, Literal value, DType dtype, const std::string& label) const {
    const DType stored = value.type().dtype;
    if (stored == dtype) return value;
    if (stored == DType::f64 && dtype == DType::f32) {
      if (!options_.f64_as_f32)
        c.refuse(formatted(
            "variable '{}' holds f64, which no device computes with (f64_as_f32, --f64-as-f32, rounds to f32)", label));
      return Literal::from_doubles({dtype, value.type().shape}, value.to_doubles());
    }
    if (is_integer(stored) && dtype == DType::i32)
      c.refuse(formatted("variable '{}' holds integers that do not fit 32 bits", label));
    c.wrong(formatted("the file of variable '{}' holds {}, not {}", label, dtype_name(stored),
                      Type{.kind = element_of(dtype)}.to_string()));
  }

  /// One value for all elements, or one for each.
  Value constant(Call& c) {
    const Shape shape = shape_of(c, false);
    const std::vector<Any>& items = *c.any("value").get<List>()->items;
    const auto n = static_cast<std::int64_t>(items.size());
    if (n != 1 && n != shape.elements()) c.wrong(formatted("{} values for {} elements", n, shape.elements()));
    std::vector<double> values;
    DType dtype = DType::f32;
    for (const Any& item : items) {
      if (const bool* truth = item.get<bool>()) {
        dtype = DType::boolean;
        values.push_back(*truth ? 1 : 0);
      } else if (const std::int64_t* whole = item.get<std::int64_t>()) {
        dtype = DType::i32;
        values.push_back(static_cast<double>(*whole));
      } else if (const double* real = item.get<double>()) {
        values.push_back(*real);
      } else {
        c.wrong(formatted("a tensor of {}", type_text(item)));
      }
    }
    if (n == shape.elements()) return graph_.constant(Literal::from_doubles({dtype, shape}, values));
    return expand(graph_.constant(values[0], dtype), dims_of(shape));
  }

  Value update(Call& c) {
    const Value variable = c.tensor("variable"), value = c.tensor("value");
    const std::string& name = variable.node().name;
    if (!outcome_.model.weights.contains(name) || variable.id().node != graph_.leaf(name))
      c.wrong("its first argument is no variable");
    if (variable.shape() != value.shape())
      c.wrong(formatted("a variable of {} cannot become {}", variable.shape().to_string(), value.shape().to_string()));
    graph_.assign(variable, value);
    return value;
  }

  const Document& document_;
  const Variables& variables_;
  const ImportOptions& options_;
  Outcome& outcome_;
  Graph& graph_;
  std::size_t constant_bytes_ = 0;
  std::map<std::string, Known, std::less<>> operations_;
  std::set<std::pair<Place, std::string>> refused_;
  std::set<std::string, std::less<>> untrained_, externals_;
};

bool starts_as_gzip(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return in.get() == 0x1f && in.get() == 0x8b;
}

/// Labels are paths below the model's folder.
void check_label(const std::string& label) {
  const std::filesystem::path path(label);
  bool safe = !label.empty() && path.is_relative() && !path.has_root_path() &&
              label.find_first_of(std::string_view("\\\0:", 3)) == std::string::npos && !label.contains("//");
  for (const std::filesystem::path& part : path) safe = safe && part != ".." && part != "." && !part.empty();
  if (!safe) fail(ErrorCode::CorruptFile, "the label '{}' is no path below the model's folder", label);
}

std::string list_of(const std::string& file, const std::vector<UnsupportedNode>& nodes) {
  std::string list;
  for (const UnsupportedNode& node : nodes)
    list += formatted("\n  {}:{}: {}: {}", file, node.name, node.op, node.reason);
  return list;
}

}  // namespace

Outcome import_document(const Document& document, const Variables& variables, const ImportOptions& options) {
  Outcome outcome;
  outcome.model.graph = std::make_shared<Graph>();
  Importer(document, variables, options, outcome).run();
  return outcome;
}

ModelFiles find_model(const std::filesystem::path& path) {
  std::error_code error;
  ModelFiles files{.folder = path, .graph = path / "graph.nnef"};
  if (!std::filesystem::is_directory(path, error)) files = {.folder = path.parent_path(), .graph = path};
  else if (!std::filesystem::exists(files.graph, error))
    fail(ErrorCode::NotFound, "{} is a folder without graph.nnef (NNEF); models of Hugging Face have a config.json",
         path.string());
  if (starts_as_gzip(files.graph) || path.extension() == ".tar") {
    fail(ErrorCode::Unsupported, "{} is an archive; unpack it (tar -xf {}) and give the folder", path.string(),
         path.filename().string());
  }
  if (const std::filesystem::path quant = files.folder / "graph.quant"; std::filesystem::exists(quant, error))
    fail(ErrorCode::Unsupported, "{}: quantized models are not supported", quant.string());
  return files;
}

Document read_document(const ModelFiles& files) {
  const std::vector<std::byte> bytes = read_file(files.graph, kMaxText);
  return parse_document({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, files.graph.string());
}

std::filesystem::path FolderVariables::file(const std::string& label) const {
  check_label(label);
  return folder_ / (label + ".dat");
}

Literal FolderVariables::read(const std::string& label, const Shape& shape) const {
  return read_tensor_file(file(label), shape);
}

}  // namespace aeshna::nnef

namespace aeshna {

ImportedModel import_nnef(const std::filesystem::path& path, const ImportOptions& options) {
  const nnef::ModelFiles files = nnef::find_model(path);
  nnef::Outcome outcome =
      nnef::import_document(nnef::read_document(files), nnef::FolderVariables(files.folder), options);
  if (!outcome.unsupported.empty()) {
    fail(ErrorCode::Unsupported, "{}: {} of its operations are not supported:{}", files.graph.string(),
         outcome.unsupported.size(), nnef::list_of(files.graph.string(), outcome.unsupported));
  }
  return std::move(outcome.model);
}

bool is_nnef(const std::filesystem::path& path) {
  std::error_code error;
  // m.nnef.tgz too: import_nnef says what to do with it.
  return path.extension() == ".nnef" || path.stem().extension() == ".nnef" ||
         std::filesystem::is_directory(path, error);
}

NnefInfo inspect_nnef(const std::filesystem::path& path, const ImportOptions& options) {
  /// Types of variables as their files' headers say, without their data.
  class Headers final : public nnef::Variables {
   public:
    explicit Headers(const std::filesystem::path& folder) : folder_(folder) {}
    Literal read(const std::string& label, const Shape& shape) const override {
      const TensorType type = nnef::read_tensor_header(folder_.file(label), shape);
      ++count;
      elements += shape.elements();
      return Literal({type.dtype, Shape{0}}, {});
    }
    mutable std::int64_t count = 0, elements = 0;

   private:
    nnef::FolderVariables folder_;
  };
  const nnef::ModelFiles files = nnef::find_model(path);
  const nnef::Document document = nnef::read_document(files);
  const Headers headers(files.folder);
  const nnef::Outcome outcome = nnef::import_document(document, headers, options);
  NnefInfo info;
  info.graph = document.graph.name;
  info.version = document.version;
  const Graph& graph = *outcome.model.graph;
  for (const std::string& name : outcome.model.inputs)
    info.inputs.push_back({name, graph.type({*graph.leaf(name), 0}).to_string()});
  for (const nnef::Parameter& result : document.graph.results) {
    const auto found = std::ranges::find(graph.outputs(), result.name, &Graph::Output::name);
    info.outputs.push_back({result.name, found == graph.outputs().end() ? "?" : graph.type(found->value).to_string()});
  }
  info.weights = headers.count;
  info.weight_elements = headers.elements;
  info.ops = outcome.model.ops;
  info.unsupported = outcome.unsupported;
  return info;
}

}  // namespace aeshna

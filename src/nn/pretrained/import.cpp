// A folder of Hugging Face as a graph with weights: the configuration chooses the builder, the builder's parameters say which tensors there must be.
#include <algorithm>
#include <cmath>
#include <set>

#include "aeshna/pretrained.h"
#include "base/fail.h"
#include "ir/leaf.h"
#include "ir/op.h"
#include "nn/models/fold_batch_norms.h"
#include "nn/pretrained/architecture.h"

namespace aeshna {
namespace pretrained {
namespace {

namespace fs = std::filesystem;

using Read = Architecture (*)(Config&, const SafetensorsFolder&);

/// nullptr: it is none of the architectures here.
Read reader_of(Config& config) {
  if (config.has("n_audio_state")) return read_openai_whisper;
  if (!config.has("model_type") && config.has("architecture")) return read_timm;
  const std::string type = config.text("model_type", "");
  if (type == "resnet") return read_resnet;
  if (type == "vit") return read_vit;
  if (type == "dinov3_vit") return read_dinov3;
  if (type == "whisper") return read_whisper;
  return nullptr;
}

/// Before the tensors are looked at.
Read require_reader(Config& config) {
  if (const Read reader = reader_of(config)) return reader;
  fail(ErrorCode::Unsupported,
       "{}: the model_type '{}' is not among those of vision and speech that are supported: resnet, vit, dinov3_vit, "
       "whisper (language models are for aeshna generate)",
       config.source(), config.text("model_type", ""));
}

/// "a, b, c and 12 more"
std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < 10; ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > 10 ? formatted("{} and {} more", text, names.size() - 10) : text;
}

bool fits(std::string_view name, std::string_view pattern) {
  if (pattern.starts_with('*')) return name.ends_with(pattern.substr(1));
  if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
  return name == pattern;
}

class Importer {
 public:
  Importer(const fs::path& folder, const ImportOptions& options)
      : options_(options),
        config_(folder / "config.json"),
        read_(require_reader(config_)),
        checkpoint_(folder),
        architecture_(read_(config_, checkpoint_)) {
    config_.finish();
    build();
    match();
  }

  const Architecture& architecture() const { return architecture_; }
  const std::shared_ptr<Graph>& graph() const { return graph_; }
  const std::vector<std::string>& unused() const { return unused_; }

  std::map<std::string, Literal> weights() {
    std::map<std::string, Literal> values;
    const Wanted* weight = nullptr;
    for (const Wanted& wanted : wanted_) {
      if (!wanted.source.norm.empty()) {
        fold(*weight, wanted, values);
      } else if (wanted.folded) {
        weight = &wanted;  // its batch norm comes next
      } else {
        values.emplace(wanted.parameter, value(wanted));
      }
    }
    return values;
  }

 private:
  /// A parameter of the graph and where it is.
  struct Wanted {
    std::string parameter;
    Shape shape;
    Source source;
    bool folded = false;  ///< a batch norm's scale goes into it
  };

  void build() {
    for (const auto& [name, value] : options_.binds)
      fail(ErrorCode::InvalidArgument, "{}: input '{}' cannot be bound", checkpoint_.name(), name);
    Shape shape = architecture_.input_shape;
    for (const auto& [name, given] : options_.shapes) {
      if (name != architecture_.input)
        fail(ErrorCode::InvalidArgument, "{} has no input '{}'; its input is '{}'", checkpoint_.name(), name,
             architecture_.input);
      shape = given;
    }
    if (architecture_.layers > static_cast<std::int64_t>(checkpoint_.tensors().size()))
      fail(ErrorCode::CorruptFile, "{}: {} layers, but {} tensors", checkpoint_.name(), architecture_.layers,
           checkpoint_.tensors().size());
    graph_ = std::make_shared<Graph>();
    try {
      architecture_.build(*graph_, graph_->input(architecture_.input, shape));
    } catch (Error& e) {
      throw e.context(checkpoint_.name());
    }
    const auto count = static_cast<NodeId>(graph_->nodes().size());
    for (NodeId id = 0; id < count; ++id) {
      if (is_parameter(graph_->node(id)) && !options_.trainable) graph_->mutable_node(id).attrs.set("trainable", false);
    }
  }

  // ---- every tensor is accounted for

  void match() {
    for (const Node& node : graph_->nodes()) {
      if (!is_parameter(node)) continue;
      Source source = architecture_.source(node.name);
      if (source.norm.empty()) {
        Shape shape = node.results[0].shape;
        need(source.tensor, source.parts == 1 ? shape : shape.with(0, shape[0] * source.parts));
      } else {
        wanted_.back().folded = true;
        for (const char* part : {".weight", ".bias", ".running_mean", ".running_var"})
          need(source.norm + part, node.results[0].shape);
      }
      wanted_.push_back({node.name, node.results[0].shape, std::move(source)});
    }
    std::vector<std::string> unknown;
    for (const auto& [name, type] : checkpoint_.tensors()) {
      if (used_.contains(name)) continue;
      const bool known =
          std::ranges::any_of(architecture_.unused, [&](const std::string& pattern) { return fits(name, pattern); });
      (known ? unused_ : unknown).push_back(name);
    }
    std::string problems;
    const auto add = [&](std::string_view what, const std::vector<std::string>& names) {
      if (!names.empty()) problems += formatted("\n  {}: {}", what, list(names));
    };
    add("missing", missing_);
    add("of another type", wrong_);
    add("unknown", unknown);
    if (!problems.empty())
      fail(ErrorCode::CorruptFile, "{}: the tensors are not those of the model ({}){}", checkpoint_.name(),
           architecture_.title, problems);
  }

  void need(const std::string& tensor, const Shape& shape) {
    if (!used_.insert(tensor).second) return;  // another part of it
    const TensorType* type = checkpoint_.find(tensor);
    if (type == nullptr) return missing_.push_back(tensor);
    const DType dtype = type->dtype;
    const bool float_type = dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 ||
                            (dtype == DType::f64 && options_.f64_as_f32);
    if (float_type && type->shape == shape) return;
    wrong_.push_back(formatted("{} is {} and should be {}{}", tensor, type->to_string(),
                               float_type || dtype == DType::f64 ? "f32" : "a float, f32", shape.to_string()));
  }

  // ---- values

  std::vector<double> doubles(const std::string& tensor) const { return checkpoint_.literal(tensor).to_doubles(); }

  Literal rounded(const std::string& tensor, const Shape& shape, std::span<const double> values) const {
    for (const double v : values) {
      if (!std::isfinite(static_cast<float>(v)))
        fail(ErrorCode::OutOfRange, "{}: '{}' holds or gives {}, which is no finite f32", checkpoint_.name(), tensor,
             v);
    }
    return Literal::from_doubles({DType::f32, shape}, values);
  }

  Literal value(const Wanted& wanted) {
    const Source& s = wanted.source;
    const auto size = static_cast<std::size_t>(wanted.shape.elements());
    if (s.parts == 1 && checkpoint_.find(s.tensor)->dtype == DType::f32) return checkpoint_.literal(s.tensor);
    if (s.tensor != shared_name_) {  // its parts come one after the other
      shared_ = doubles(s.tensor);
      shared_name_ = s.tensor;
    }
    return rounded(s.tensor, wanted.shape, std::span(shared_).subspan(static_cast<std::size_t>(s.part) * size, size));
  }

  void fold(const Wanted& weight, const Wanted& bias, std::map<std::string, Literal>& values) const {
    const std::string& norm = bias.source.norm;
    std::vector<double> kernel = doubles(weight.source.tensor);
    models::BatchNormValues n{.scale = doubles(norm + ".weight"),
                              .bias = doubles(norm + ".bias"),
                              .mean = doubles(norm + ".running_mean"),
                              .variance = doubles(norm + ".running_var")};
    if (const auto bad = models::fold_batch_norm(kernel, n, architecture_.norm_eps))
      fail(ErrorCode::OutOfRange, "{}: a variance of {} in '{}.running_var'", checkpoint_.name(), n.variance[*bad],
           norm);
    values.emplace(weight.parameter, rounded(weight.source.tensor, weight.shape, kernel));
    values.emplace(bias.parameter, rounded(norm, bias.shape, n.bias));
  }

  const ImportOptions& options_;
  Config config_;
  Read read_;
  SafetensorsFolder checkpoint_;
  Architecture architecture_;
  std::shared_ptr<Graph> graph_;
  std::vector<Wanted> wanted_;
  std::set<std::string, std::less<>> used_;
  std::vector<std::string> missing_, wrong_, unused_;
  std::string shared_name_;
  std::vector<double> shared_;
};

/// The plain values of a JSON object, as they are written; tables of filters and the like are left out.
void describe(const nlohmann::json& object, std::vector<std::pair<std::string, std::string>>& lines) {
  if (!object.is_object()) return;
  for (const auto& item : object.items())
    if (!item.value().is_null() && item.value().size() <= 8)
      lines.emplace_back(item.key(), item.value().dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
}

}  // namespace

std::int64_t classes_of(Config& config, const SafetensorsFolder& checkpoint, std::string_view head) {
  const TensorType* type = checkpoint.find(head);
  if (type == nullptr || type->shape.rank() != 2) return 0;
  const std::int64_t classes = type->shape[0];
  if (const std::size_t labels = config.count("id2label"); labels > 0 && static_cast<std::int64_t>(labels) != classes)
    config.refuse(formatted("{} labels for {} classes", labels, classes));
  return classes;
}

bool replace_prefix(std::string& text, std::string_view from, std::string_view to) {
  if (!text.starts_with(from)) return false;
  text.replace(0, from.size(), to);
  return true;
}

}  // namespace pretrained

bool is_hugging_face(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path / "config.json", error) &&
         !std::filesystem::exists(path / "graph.nnef", error);
}

bool imports_hugging_face(const std::filesystem::path& path) {
  if (!is_hugging_face(path)) return false;
  pretrained::Config config(path / "config.json");
  return pretrained::reader_of(config) != nullptr;
}

ImportedModel import_hugging_face(const std::filesystem::path& folder, const ImportOptions& options) {
  pretrained::Importer importer(folder, options);
  ImportedModel model;
  model.weights = importer.weights();
  model.graph = importer.graph();
  model.inputs = {importer.architecture().input};
  model.producer = importer.architecture().title;
  for (const Graph::Output& output : model.graph->outputs()) model.outputs.push_back(output.name);
  for (const Node& node : model.graph->nodes())
    if (node.op->kind != OpKind::Leaf) ++model.ops[node.op->name];
  return model;
}

HuggingFaceInfo inspect_hugging_face(const std::filesystem::path& folder, const ImportOptions& options) {
  const pretrained::Importer importer(folder, options);
  HuggingFaceInfo info;
  info.architecture = importer.architecture().title;
  const Graph& graph = *importer.graph();
  for (const Node& node : graph.nodes()) {
    if (is_input(node)) info.inputs.push_back({node.name, node.results[0].to_string()});
    if (!is_parameter(node)) continue;
    ++info.weights;
    info.weight_elements += node.results[0].shape.elements();
  }
  for (const Graph::Output& output : graph.outputs())
    info.outputs.push_back({output.name, graph.type(output.value).to_string()});
  info.unused = importer.unused();
  const std::filesystem::path file = folder / "preprocessor_config.json";
  if (std::filesystem::exists(file)) pretrained::describe(read_json(file), info.preprocessing);
  const nlohmann::json config = read_json(folder / "config.json");
  if (const auto found = config.find("pretrained_cfg"); found != config.end())
    pretrained::describe(*found, info.preprocessing);
  return info;
}

}  // namespace aeshna

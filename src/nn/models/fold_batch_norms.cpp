// A batch norm with fixed statistics is a scale and a shift of each channel: the convolution before it takes both (Jacob et al. 2018,
// section 3.2). In double, rounded once.
#include "nn/models/fold_batch_norms.h"

#include <algorithm>
#include <cmath>

#include "aeshna/models.h"
#include "base/fail.h"
#include "base/names.h"
#include "io/safetensors.h"
#include "ir/leaf.h"

namespace aeshna::models {

namespace {

/// A checkpoint whose tensors are taken out one after the other.
class Checkpoint {
 public:
  explicit Checkpoint(const std::filesystem::path& path) : file_(path) {
    for (const SafetensorsEntry& entry : file_.tensors()) left_.push_back(entry.name);
  }

  std::vector<double> take(const std::string& name, const Shape& shape) {
    const SafetensorsEntry* entry = file_.find(name);
    if (entry == nullptr) reject(ErrorCode::NotFound, "has no tensor '{}'{}", name, suggest_names(name, left_));
    if (!is_float(entry->type.dtype))
      reject(ErrorCode::DTypeMismatch, "has {} for '{}', not floats", entry->type.to_string(), name);
    if (entry->type.shape != shape) {
      reject(ErrorCode::ShapeMismatch, "has {} for '{}', where the model has {}", entry->type.to_string(), name,
             shape.to_string());
    }
    std::erase(left_, name);
    return file_.literal(name).to_doubles();
  }

  /// As f32.
  Literal rounded(const std::string& name, const Shape& shape, const std::vector<double>& values) const {
    for (const double v : values) {
      if (!std::isfinite(static_cast<float>(v))) reject(ErrorCode::OutOfRange, "gives {} as a value of '{}'", v, name);
    }
    return Literal::from_doubles({DType::f32, shape}, values);
  }

  /// What is left belongs to another model, except counters of training steps.
  void finish() const {
    for (const std::string& name : left_) {
      if (!name.ends_with(".num_batches_tracked"))
        reject(ErrorCode::InvalidArgument, "has a tensor '{}' that the model does not", name);
    }
  }

  template <class... Args>
  [[noreturn]] void reject(ErrorCode code, std::format_string<Args...> format, Args&&... args) const {
    fail(code, "[models::fold_resnet50_batch_norms] {} {}", file_.name(),
         formatted(format, std::forward<Args>(args)...));
  }

 private:
  SafetensorsFile file_;
  std::vector<std::string> left_;
};

}  // namespace

std::optional<std::size_t> fold_batch_norm(std::vector<double>& weight, BatchNormValues& norm, double eps) {
  const auto bad = std::ranges::find_if(norm.variance, [](double v) { return !(v >= 0); });
  if (bad != norm.variance.end()) return static_cast<std::size_t>(bad - norm.variance.begin());
  const std::size_t fan_in = weight.size() / norm.bias.size();
  for (std::size_t c = 0; c < norm.bias.size(); ++c) {
    const double factor = norm.scale[c] / std::sqrt(norm.variance[c] + eps);
    for (std::size_t i = 0; i < fan_in; ++i) weight[c * fan_in + i] *= factor;
    norm.bias[c] -= norm.mean[c] * factor;
  }
  return std::nullopt;
}

std::map<std::string, Literal> fold_resnet50_batch_norms(const std::filesystem::path& file, const ResNetConfig& config,
                                                         double eps) {
  if (!std::isfinite(eps) || eps < 0)
    fail(ErrorCode::InvalidArgument, "[models::fold_resnet50_batch_norms] needs a finite eps of at least 0, not {}",
         eps);
  Graph graph;
  resnet50(graph.input("images", {1, 3, 32, 32}), config);
  Checkpoint checkpoint(file);
  std::map<std::string, Literal> folded;
  std::string weight_name;  // of the convolution whose bias comes next
  Shape weight_shape;
  for (const Node& node : graph.nodes()) {
    if (!is_parameter(node)) continue;
    const std::string& name = node.name;
    const Shape& shape = node.results[0].shape;
    if (shape.rank() == 4) {
      weight_name = name;
      weight_shape = shape;
      continue;
    }
    constexpr std::string_view fused = ".fused_bias";
    if (!name.ends_with(fused)) {  // of the last layer
      folded.emplace(name, checkpoint.rounded(name, shape, checkpoint.take(name, shape)));
      continue;
    }
    const std::string norm = name.substr(0, name.size() - fused.size());
    std::vector<double> weight = checkpoint.take(weight_name, weight_shape);
    BatchNormValues values;
    values.scale = checkpoint.take(norm + ".weight", shape);
    values.bias = checkpoint.take(norm + ".bias", shape);
    values.mean = checkpoint.take(norm + ".running_mean", shape);
    values.variance = checkpoint.take(norm + ".running_var", shape);
    if (const auto bad = fold_batch_norm(weight, values, eps))
      checkpoint.reject(ErrorCode::OutOfRange, "has a variance of {} in '{}.running_var'", values.variance[*bad], norm);
    folded.emplace(weight_name, checkpoint.rounded(weight_name, weight_shape, weight));
    folded.emplace(name, checkpoint.rounded(name, shape, values.bias));
  }
  checkpoint.finish();
  return folded;
}

}  // namespace aeshna::models

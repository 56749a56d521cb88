// Folding a torchvision ResNet's batch norms, against the model that has them.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "aeshna/models.h"
#include "base/format.h"
#include "io/safetensors.h"
#include "nn/workload_support.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

namespace aeshna::test {
namespace {

const models::ResNetConfig kConfig{.blocks = {1, 2}, .width = 4, .classes = 5};

/// ResNet with its batch norms, as torchvision builds it.
Value with_batch_norms(Value x, const models::ResNetConfig& config) {
  const auto unit = [](Value v, std::int64_t out, std::int64_t extent, std::int64_t stride, const std::string& conv,
                       const std::string& norm) {
    const Value y = nn::conv(v, out, {extent}, conv, {.stride = {stride}, .padding = {extent / 2}, .bias = false});
    return nn::batch_norm(y, norm);
  };
  x = max_pool(relu(unit(x, config.width, 7, 2, "conv1", "bn1")), {.kernel = {3}, .stride = {2}, .padding = {1}});
  std::int64_t planes = config.width;
  for (std::size_t s = 0; s < config.blocks.size(); ++s, planes *= 2) {
    for (std::int64_t b = 0; b < config.blocks[s]; ++b) {
      const std::string name = formatted("layer{}.{}.", s + 1, b);
      const std::int64_t stride = s > 0 && b == 0 ? 2 : 1;
      Value y = relu(unit(x, planes, 1, 1, name + "conv1", name + "bn1"));
      y = relu(unit(y, planes, 3, stride, name + "conv2", name + "bn2"));
      y = unit(y, 4 * planes, 1, 1, name + "conv3", name + "bn3");
      if (b == 0) x = unit(x, 4 * planes, 1, stride, name + "downsample.0", name + "downsample.1");
      x = relu(x + y);
    }
  }
  return nn::linear(mean(x, {2, 3}), config.classes, "fc");
}

class FoldBatchNorms : public testing::Test {
 protected:
  FoldBatchNorms() {
    graph_.output("logits", with_batch_norms(graph_.input("images", {2, 3, 21, 24}), kConfig));
    leaves_ = random_leaves(graph_, 5, -1, 1);
    for (auto& [name, value] : leaves_) {
      if (!name.ends_with("running_var")) continue;
      for (double& v : value.data) v = 0.6 + 0.5 * v;
    }
    for (const auto& [name, value] : leaves_) {
      if (name != "images") tensors_.emplace(name, Literal::from_doubles(value.type, value.data));
    }
    tensors_.emplace("bn1.num_batches_tracked", Literal::scalar(1, DType::i64));
  }

  std::filesystem::path write() const {
    std::vector<SafetensorsTensor> tensors;
    for (const auto& [name, value] : tensors_) tensors.push_back({name, value.type(), value.bytes()});
    write_safetensors(folder_ / "resnet.safetensors", tensors);
    return folder_ / "resnet.safetensors";
  }

  /// The values of a tensor of the file, changed.
  void change(const std::string& name, const std::function<void(std::vector<double>&)>& change) {
    Literal& literal = tensors_.at(name);
    std::vector<double> values = literal.to_doubles();
    change(values);
    literal = Literal::from_doubles(literal.type(), values);
  }

  TempDir folder_;
  Graph graph_;
  TensorMap leaves_;
  std::map<std::string, Literal> tensors_;
};

TEST_F(FoldBatchNorms, GivesTheSameLogits) {
  Graph folded;
  folded.output("logits", models::resnet50(folded.input("images", {2, 3, 21, 24}), kConfig));
  TensorMap leaves = {{"images", leaves_.at("images")}};
  for (const auto& [name, value] : models::fold_resnet50_batch_norms(write(), kConfig))
    leaves.emplace(name, host(value));
  const std::vector<double> got = interpret(folded, leaves).outputs.at("logits").data;
  const std::vector<double> want = interpret(graph_, leaves_).outputs.at("logits").data;
  EXPECT_LT(relative_l2(got, want), 1e-6);
  for (const Node& node : folded.nodes()) {
    if (!is_parameter(node)) continue;
    EXPECT_EQ(leaves.at(node.name).type, node.results[0]) << node.name;
  }
}

TEST_F(FoldBatchNorms, ReadsHalfPrecision) {
  const Literal& weight = tensors_.at("fc.weight");
  tensors_.at("fc.weight") = Literal::from_doubles({DType::f16, weight.type().shape}, weight.to_doubles());
  const auto folded = models::fold_resnet50_batch_norms(write(), kConfig);
  EXPECT_EQ(folded.at("fc.weight").type().dtype, DType::f32);
  EXPECT_EQ(folded.at("fc.weight").to_doubles(), tensors_.at("fc.weight").to_doubles());
}

TEST_F(FoldBatchNorms, UsesEps) {
  change("bn1.running_var", [](auto& v) { v[0] = 0; });
  const double scale = tensors_.at("bn1.weight").at(0), weight = tensors_.at("conv1.weight").at(0);
  const auto folded = models::fold_resnet50_batch_norms(write(), kConfig, 0.25);
  EXPECT_FLOAT_EQ(static_cast<float>(folded.at("conv1.weight").at(0)), static_cast<float>(weight * scale / 0.5));
}

TEST_F(FoldBatchNorms, Errors) {
  const auto original = tensors_;
  const auto refuses = [&](ErrorCode code, std::string_view text) {
    const std::string said = message_of(code, [&] { models::fold_resnet50_batch_norms(write(), kConfig); });
    EXPECT_TRUE(said.starts_with("[models::fold_resnet50_batch_norms] ")) << said;
    EXPECT_HAS(said, "resnet.safetensors");
    EXPECT_HAS(said, text);
    tensors_ = original;
  };
  tensors_.erase("layer2.1.bn3.running_mean");
  refuses(ErrorCode::NotFound, "has no tensor 'layer2.1.bn3.running_mean' (did you mean 'layer");
  tensors_.at("layer1.0.bn2.bias") = Literal::from_doubles({DType::f32, {3}}, std::vector<double>(3));
  refuses(ErrorCode::ShapeMismatch, "has f32[3] for 'layer1.0.bn2.bias', where the model has [4]");
  tensors_.at("bn1.weight") = Literal::from_doubles({DType::i32, {4}}, std::vector<double>(4));
  refuses(ErrorCode::DTypeMismatch, "has i32[4] for 'bn1.weight', not floats");
  change("layer1.0.downsample.1.running_var", [](auto& v) { v[2] = -0.5; });
  refuses(ErrorCode::OutOfRange, "has a variance of -0.5 in 'layer1.0.downsample.1.running_var'");
  change("bn1.running_var", [](auto& v) { v[0] = std::nan(""); });
  refuses(ErrorCode::OutOfRange, "has a variance of nan in 'bn1.running_var'");
  change("layer2.0.bn1.running_mean", [](auto& v) { v[1] = INFINITY; });
  refuses(ErrorCode::OutOfRange, "inf as a value of 'layer2.0.bn1.fused_bias'");
  tensors_.emplace("layer2.2.conv1.weight", Literal::scalar(1));
  refuses(ErrorCode::InvalidArgument, "has a tensor 'layer2.2.conv1.weight' that the model does not");
  EXPECT_ERROR(models::fold_resnet50_batch_norms(folder_ / "none", kConfig), ErrorCode::NotFound, "none");
  EXPECT_ERROR(models::fold_resnet50_batch_norms(write(), kConfig, -1), ErrorCode::InvalidArgument,
               "needs a finite eps");
}

}  // namespace
}  // namespace aeshna::test

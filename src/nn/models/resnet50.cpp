// ResNet-50 (arXiv 1512.03385) in torchvision's form, with the stride on the 3x3 convolutions, after its batch norms were folded.
#include "nn/models/model.h"

namespace aeshna::models {

namespace {

void check(const Model& model, const ResNetConfig& c) {
  model.require_extents({{"width", c.width}, {"number of classes", c.classes}});
  model.require(!c.blocks.empty() && c.blocks.size() <= 8, "needs 1 to 8 stages, not {}", c.blocks.size());
  for (const std::int64_t blocks : c.blocks) model.require_extents({{"number of blocks", blocks}});
}

}  // namespace

ResNetConfig ResNetConfig::small() { return {.blocks = {1, 2, 1, 1}, .width = 8, .classes = 10}; }

Value resnet50(Value images, const ResNetConfig& config, Loc loc) {
  const Model model("resnet50", loc);
  check(model, config);
  model.require_input(images, "images", DType::f32, {-1, 3, -1, -1}, "[batch, 3, H, W]");
  Value x = relu(model.at(biased_conv(images, config.width, 7, 2, "conv1.weight", "bn1.fused_bias", loc)));
  x = max_pool(model.at(x), {.kernel = {3}, .stride = {2}, .padding = {1}});
  for (std::size_t stage = 0; stage < config.blocks.size(); ++stage) {
    const std::int64_t inside = config.width << stage, outside = 4 * inside;
    for (std::int64_t block = 0; block < config.blocks[stage]; ++block) {
      const std::string name = formatted("layer{}.{}.", stage + 1, block);
      const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      const auto convolved = [&](Value v, int number, std::int64_t out, std::int64_t extent, std::int64_t step) {
        return biased_conv(v, out, extent, step, formatted("{}conv{}.weight", name, number),
                           formatted("{}bn{}.fused_bias", name, number), loc);
      };
      Value y = relu(model.at(convolved(x, 1, inside, 1, 1)));
      y = relu(model.at(convolved(y, 2, inside, 3, stride)));
      y = convolved(y, 3, outside, 1, 1);
      const Value shortcut = block > 0 ? x
                                       : biased_conv(x, outside, 1, stride, name + "downsample.0.weight",
                                                     name + "downsample.1.fused_bias", loc);
      x = relu(model.at(add(model.at(y), model.at(shortcut))));
    }
  }
  const Value pooled = global_avg_pool(model.at(x));
  const Value features = reshape(model.at(pooled), {x.shape()[0], x.shape()[1]}, loc);
  return nn::linear(features, config.classes, "fc", {}, loc);
}

}  // namespace aeshna::models

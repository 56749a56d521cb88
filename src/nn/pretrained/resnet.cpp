// ResNets with bottleneck blocks: torchvision's and timm's names are those of models::resnet50, transformers has its own.
#include <numeric>

#include "aeshna/models.h"
#include "nn/pretrained/architecture.h"

namespace aeshna::pretrained {

namespace {

/// "layer2.0.conv3" -> "resnet.encoder.stages.1.layers.0.layer.2.convolution", and so for "bn3", "downsample.0", "downsample.1".
std::string transformers_name(std::string name) {
  if (replace_prefix(name, "conv1", "resnet.embedder.embedder.convolution")) return name;
  if (replace_prefix(name, "bn1", "resnet.embedder.embedder.normalization")) return name;
  if (replace_prefix(name, "fc", "classifier.1")) return name;
  const std::size_t first = name.find('.'), second = name.find('.', first + 1);
  const int stage = name[5] - '1';  // eight at most
  const std::string block = name.substr(first + 1, second - first - 1);
  std::string rest = name.substr(second + 1), place;
  if (replace_prefix(rest, "downsample.0", ".convolution") || replace_prefix(rest, "downsample.1", ".normalization")) {
    place = "shortcut";
  } else {
    const bool conv = rest.starts_with("conv");
    const std::size_t digit = conv ? 4 : 2;
    place = formatted("layer.{}", rest[digit] - '1');
    rest = (conv ? ".convolution" : ".normalization") + rest.substr(digit + 1);
  }
  return formatted("resnet.encoder.stages.{}.layers.{}.{}{}", stage, block, place, rest);
}

Architecture resnet(const models::ResNetConfig& config, std::int64_t image, std::string title, bool transformers) {
  return {.title = std::move(title),
          .input = "pixels",
          .input_shape = {1, 3, image, image},
          .build = [config](Graph& graph, Value pixels) { graph.output("logits", models::resnet50(pixels, config)); },
          .source =
              [transformers](const std::string& parameter) {
                constexpr std::string_view fused = ".fused_bias";
                const bool norm = parameter.ends_with(fused);
                const std::string name = norm ? parameter.substr(0, parameter.size() - fused.size()) : parameter;
                std::string found = transformers ? transformers_name(name) : name;
                return norm ? Source{.tensor = {}, .norm = std::move(found)} : Source{.tensor = std::move(found)};
              },
          .unused = {"*.num_batches_tracked"},
          .layers = std::accumulate(config.blocks.begin(), config.blocks.end(), std::int64_t{0})};
}

std::string depths(const std::vector<std::int64_t>& blocks) {
  std::string text;
  for (const std::int64_t n : blocks) text += formatted("{}{}", text.empty() ? "" : "+", n);
  return text;
}

}  // namespace

Architecture read_resnet(Config& config, const SafetensorsFolder& checkpoint) {
  ignore_common_fields(config);
  models::ResNetConfig c;
  c.blocks = config.sizes("depths", {3, 4, 6, 3});
  c.width = config.size("embedding_size", 64);
  const std::vector<std::int64_t> widths = config.sizes("hidden_sizes", {256, 512, 1024, 2048});
  bool doubling = widths.size() == c.blocks.size() && c.blocks.size() <= 8;
  for (std::size_t i = 0; doubling && i < widths.size(); ++i) doubling = widths[i] == (4 * c.width) << i;
  if (!doubling) config.refuse("hidden_sizes other than 4, 8, 16... times embedding_size");
  if (config.text("layer_type", "bottleneck") != "bottleneck") config.refuse("layer_type other than 'bottleneck'");
  if (config.text("hidden_act", "relu") != "relu") config.refuse("hidden_act other than 'relu'");
  if (config.size("num_channels", 3) != 3) config.refuse("num_channels other than 3");
  config.require("downsample_in_first_stage", false);
  config.require("downsample_in_bottleneck", false);
  const std::int64_t image = config.size("image_size", 224);
  // Without a head it is the missing tensor that is reported.
  if (const std::int64_t classes = classes_of(config, checkpoint, "classifier.1.weight"); classes > 0)
    c.classes = classes;
  return resnet(c, image, formatted("resnet, {} blocks", depths(c.blocks)), true);
}

Architecture timm_resnet(std::string_view name, std::int64_t classes, std::int64_t image) {
  models::ResNetConfig c;
  if (name == "resnet101") c.blocks = {3, 4, 23, 3};
  if (name == "resnet152") c.blocks = {3, 8, 36, 3};
  c.classes = classes;
  return resnet(c, image, std::string(name), false);
}

}  // namespace aeshna::pretrained

// timm names a published architecture, which says all of it: config.json has hardly more than that name.
#include "nn/pretrained/timm.h"

#include <algorithm>

namespace aeshna::pretrained {

Architecture read_timm(Config& config, const SafetensorsFolder&) {
  const std::string name = config.text("architecture", "");
  std::int64_t classes = 0;
  if (config.has("num_classes"))
    classes = static_cast<std::int64_t>(std::min<std::uint64_t>(config.field("num_classes").count(), 1 << 20));
  config.ignore({"num_features", "pretrained_cfg", "label_names", "label_descriptions"});
  if (config.count("model_args") > 0) config.refuse("model_args");
  const bool resnet = name == "resnet50" || name == "resnet101" || name == "resnet152";
  const std::string pool = config.text("global_pool", resnet ? "avg" : "token");
  if (resnet) {
    if (pool != "avg") config.refuse(formatted("global_pool = '{}'", pool));
    if (classes == 0) config.refuse("a model without a head (num_classes)");
    return timm_resnet(name, std::max<std::int64_t>(classes, 1), 224);
  }
  if (auto found = timm_vit(name, classes)) {
    if (pool != "token") config.refuse(formatted("global_pool = '{}'", pool));
    return *std::move(found);
  }
  config.refuse(formatted(
      "the architecture '{}' of timm (resnet50, resnet101, resnet152 and vit_SIZE_patchN_SIZE are supported)", name));
  config.finish();
  return {};
}

}  // namespace aeshna::pretrained

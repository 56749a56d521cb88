#pragma once
#include <optional>

#include "nn/pretrained/architecture.h"

namespace aeshna::pretrained {

/// timm's resnet50, resnet101 and resnet152, whose weights have torchvision's names.
Architecture timm_resnet(std::string_view name, std::int64_t classes, std::int64_t image);
/// timm's plain vision transformers, "vit_small_patch16_224"; nullopt: the name is of none. 0 classes: without a head.
std::optional<Architecture> timm_vit(std::string_view name, std::int64_t classes);

}  // namespace aeshna::pretrained

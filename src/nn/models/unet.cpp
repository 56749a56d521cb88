// A reduced latent-diffusion U-Net (arXiv 2112.10752): residual blocks that see the time, transformers that see the text.
#include <algorithm>

#include "nn/models/model.h"

namespace aeshna::models {

UNetConfig UNetConfig::small() {
  return {.in_channels = 3, .base = 16, .groups = 8, .head_dim = 16, .context_width = 160, .time_dim = 20};
}

namespace {

class UNet {
 public:
  UNet(const Model& model, const UNetConfig& config, Value time, Value text)
      : model_(model), c_(config), time_(time), text_(text) {}

  Value conv(Value x, std::int64_t out, std::int64_t extent, std::string_view name, std::int64_t stride = 1) const {
    return nn::conv(x, out, {extent}, name, {.stride = {stride}, .padding = {extent / 2}, .bias = false}, model_.loc());
  }

  Value group_norm(Value x, std::string_view name) const {
    return nn::group_norm(x, c_.groups, name, {.eps = c_.eps}, model_.loc());
  }

  Value residual_block(Value x, std::int64_t out, const std::string& name) const {
    Value y = conv(silu(at(group_norm(x, name + ".norm1"))), out, 3, name + ".conv1");
    const Value time = nn::linear(time_, out, name + ".time_proj", {}, model_.loc());
    y = add(at(y), at(reshape(at(time), {time.shape()[0], out, 1, 1}, model_.loc())));
    y = conv(silu(at(group_norm(y, name + ".norm2"))), out, 3, name + ".conv2");
    return add(at(y), at(x.shape()[1] == out ? x : conv(x, out, 1, name + ".res_conv")));
  }

  /// Pixels as tokens: among themselves, to the text, through a feed-forward part.
  Value spatial_transformer(Value x, const std::string& name) const {
    const Shape image = x.shape();
    const std::int64_t channels = image[1], heads = channels / c_.head_dim;
    const Loc& loc = model_.loc();
    const std::string part = name + ".transformer.";
    const Value inside = conv(group_norm(x, name + ".norm"), channels, 1, name + ".proj_in");
    Value tokens = reshape(at(inside), {image[0], channels, image[2] * image[3]}, loc);
    tokens = permute(at(tokens), {0, 2, 1}, loc);
    const auto normalized = [&](std::string_view norm) {
      return nn::layer_norm(tokens, part + std::string(norm), {.eps = c_.eps}, loc);
    };
    const Value own = normalized("norm1");
    tokens = add(at(tokens), at(attend(own, own, heads, part + "self_attn", false, loc)));
    tokens = add(at(tokens), at(attend(normalized("norm2"), text_, heads, part + "cross_attn", false, loc)));
    const Value wide = nn::linear(normalized("norm3"), 4 * channels, part + "ff.fc1", {}, loc);
    tokens = add(at(tokens), at(nn::linear(gelu_tanh(at(wide)), channels, part + "ff.fc2", {}, loc)));
    const Value y = reshape(at(permute(at(tokens), {0, 2, 1}, loc)), {image[0], channels, image[2], image[3]}, loc);
    return add(at(conv(y, channels, 1, name + ".proj_out")), at(x));
  }

  /// "<name>.resblock" and, below the first level, "<name>.attn".
  Value stage(Value x, std::int64_t level, const std::string& name) const {
    x = residual_block(x, channels(level), name + ".resblock");
    return level == 0 ? x : spatial_transformer(x, name + ".attn");
  }

  std::int64_t channels(std::int64_t level) const { return c_.base * c_.multipliers[static_cast<std::size_t>(level)]; }

 private:
  Operand at(Value v) const { return model_.at(v); }

  const Model& model_;
  const UNetConfig& c_;
  Value time_, text_;
};

void check(const Model& model, const UNetConfig& c) {
  model.require_extents({{"number of input channels", c.in_channels},
                         {"base width", c.base},
                         {"number of groups", c.groups},
                         {"head_dim", c.head_dim},
                         {"context width", c.context_width},
                         {"time width", c.time_dim}});
  model.require(c.multipliers.size() >= 2 && c.multipliers.size() <= 8, "needs 2 to 8 levels, not {}",
                c.multipliers.size());
  for (std::size_t level = 0; level < c.multipliers.size(); ++level) {
    model.require_extents({{"multiplier", c.multipliers[level]}});
    const std::int64_t channels = c.base * c.multipliers[level];
    model.require(channels % c.groups == 0, "cannot split the {} channels of level {} into {} groups", channels, level,
                  c.groups);
    model.require(level == 0 || channels % c.head_dim == 0, "cannot split the {} channels of level {} into heads of {}",
                  channels, level, c.head_dim);
  }
  model.require_eps(c.eps);
}

}  // namespace

Value unet(Value latent, Value timestep_embedding, Value text_context, const UNetConfig& config, Loc loc) {
  const Model model("unet", loc);
  check(model, config);
  const auto& c = config;
  const std::int64_t last = std::ssize(c.multipliers) - 1;
  model.require_input(latent, "latent", DType::f32, {-1, c.in_channels, -1, -1},
                      formatted("[batch, {}, H, W]", c.in_channels));
  const std::int64_t batch = latent.shape()[0], multiple = std::int64_t{1} << last;
  model.require_shape(latent.shape()[2] % multiple == 0 && latent.shape()[3] % multiple == 0,
                      "needs a latent with H and W multiples of {}, not {}", multiple, latent.type().to_string());
  model.require_input(timestep_embedding, "timestep_embedding", DType::f32, {batch, c.base},
                      formatted("[{}, {}]", batch, c.base));
  model.require_input(text_context, "text_context", DType::f32, {batch, -1, c.context_width},
                      formatted("[{}, tokens, {}]", batch, c.context_width));

  const Value time_inside = silu(model.at(nn::linear(timestep_embedding, c.time_dim, "time_mlp.fc1", {}, loc)));
  const Value time = nn::linear(time_inside, c.time_dim, "time_mlp.fc2", {}, loc);
  const UNet net(model, c, time, text_context);
  std::vector<Value> skips;
  Value x = net.conv(latent, c.base, 3, "conv_in");
  for (std::int64_t level = 0; level <= last; ++level) {
    const std::string name = formatted("encoder.{}", level);
    skips.push_back(x = net.stage(x, level, name));
    if (level < last) x = net.conv(x, net.channels(level), 3, name + ".downsample", 2);
  }
  x = net.residual_block(x, net.channels(last), "middle.resblock");
  x = net.spatial_transformer(x, "middle.attn");
  for (std::int64_t level = last; level >= 0; --level) {
    if (level < last) x = resize(model.at(x), {2 * x.shape()[2], 2 * x.shape()[3]});
    x = concat({x, skips[static_cast<std::size_t>(level)]}, 1, loc);
    x = net.stage(x, level, formatted("decoder.{}", level));
  }
  return net.conv(silu(model.at(net.group_norm(x, "conv_out.norm"))), c.in_channels, 3, "conv_out");
}

}  // namespace aeshna::models

// The vision transformer (arXiv 2010.11929), with what DINOv3 (arXiv 2508.10104) adds: registers, LayerScale (arXiv 2103.17239), and rotary
// positions over the coordinates of the patches' centres.
#include <cmath>
#include <numbers>

#include "nn/heads.h"
#include "nn/models/model.h"

namespace aeshna::models {

namespace {

void check(const Model& model, const VitConfig& c) {
  model.require_extents({{"number of channels", c.channels},
                         {"patch", c.patch},
                         {"image height", c.image_height},
                         {"image width", c.image_width},
                         {"width", c.width},
                         {"number of layers", c.layers},
                         {"number of heads", c.heads},
                         {"feed-forward width", c.ffn}});
  model.require(c.registers >= 0 && c.registers <= 1 << 20, "cannot have {} registers", c.registers);
  model.require(c.width % c.heads == 0, "cannot split a width of {} into {} heads", c.width, c.heads);
  model.require_eps(c.eps);
  if (!c.rope) return;
  model.require(c.width / c.heads % 4 == 0, "needs a head_dim that is a multiple of 4 for rotary positions, not {}",
                c.width / c.heads);
  model.require(std::isfinite(c.rope_base) && c.rope_base > 0, "needs a finite rope_base above 0, not {}", c.rope_base);
}

/// Cosines, and sines with the sign of their half, [tokens, head_dim]: of a patch centre's y and then of its x, head_dim / 4 frequencies each, and
/// the same for the second half. The tokens before the patches do not turn.
struct Turns {
  Value cosines, sines;
};
Turns turns(const Model& model, Graph& graph, const VitConfig& c, std::int64_t rows, std::int64_t columns) {
  const std::int64_t head_dim = c.width / c.heads, half = head_dim / 2, quarter = head_dim / 4;
  const std::int64_t before = 1 + c.registers, tokens = before + rows * columns;
  model.require(tokens <= (std::int64_t{1} << 26) / head_dim, "cannot have tables of positions for {} tokens", tokens);
  std::vector<double> cosines(static_cast<std::size_t>(tokens * head_dim), 1.0), sines(cosines.size(), 0.0);
  for (std::int64_t patch = 0; patch < rows * columns; ++patch) {
    const auto centre = [](std::int64_t at, std::int64_t count) {
      return 2 * (static_cast<double>(at) + 0.5) / static_cast<double>(count) - 1;
    };
    const double y = centre(patch / columns, rows), x = centre(patch % columns, columns);
    for (std::int64_t i = 0; i < half; ++i) {
      const double frequency =
          std::pow(c.rope_base, -4.0 * static_cast<double>(i % quarter) / static_cast<double>(head_dim));
      const double angle = 2 * std::numbers::pi * (i < quarter ? y : x) * frequency;
      const auto first = static_cast<std::size_t>((before + patch) * head_dim + i),
                 second = first + static_cast<std::size_t>(half);
      cosines[first] = cosines[second] = std::cos(angle);
      sines[first] = -std::sin(angle);
      sines[second] = std::sin(angle);
    }
  }
  const auto table = [&](const std::vector<double>& values) {
    return graph.constant(Literal::from_doubles({DType::f32, {tokens, 2, half}}, values), model.loc());
  };
  return {table(cosines), table(sines)};
}

class Vit {
 public:
  Vit(const Model& model, const VitConfig& config, Value images) : m_(model), c_(config), graph_(images.graph()) {}

  Value tokens(Value images) {
    const std::int64_t batch = images.shape()[0], rows = images.shape()[2] / c_.patch,
                       columns = images.shape()[3] / c_.patch;
    Value x = nn::conv(images, c_.width, {c_.patch, c_.patch}, "embeddings.patch_embeddings", {.stride = {c_.patch}},
                       m_.loc());
    x = reshape(m_.at(x), {batch, c_.width, rows * columns}, m_.loc());
    std::vector<Value> parts = {token("cls_token", 1, batch)};
    if (c_.registers > 0) parts.push_back(token("register_tokens", c_.registers, batch));
    parts.push_back(permute(m_.at(x), {0, 2, 1}, m_.loc()));
    if (!c_.rope) {  // which the registers have none of
      const Value positions = graph_.parameter("embeddings.position_embeddings", {1, 1 + rows * columns, c_.width},
                                               {.init = Init::normal(0, 0.02)}, m_.loc());
      parts.front() = add(m_.at(parts.front()), m_.at(slice(m_.at(positions), {1}, {0}, {1})));
      parts.back() = add(m_.at(parts.back()), m_.at(slice(m_.at(positions), {1}, {1}, {1 + rows * columns})));
    } else {
      turns_ = turns(m_, graph_, c_, rows, columns);
    }
    x = concat(parts, 1, m_.loc());
    for (std::int64_t i = 0; i < c_.layers; ++i) {
      const std::string name = formatted("layer.{}.", i);
      x = residual(x, attention_of(norm(x, name + "norm1"), name + "attention."), name + "layer_scale1.lambda1");
      x = residual(x, feed_forward(norm(x, name + "norm2"), name + "mlp."), name + "layer_scale2.lambda1");
    }
    return norm(x, "norm");
  }

 private:
  Value token(const std::string& name, std::int64_t count, std::int64_t batch) {
    const Value value =
        graph_.parameter("embeddings." + name, {1, count, c_.width}, {.init = Init::normal(0, 0.02)}, m_.loc());
    return expand(m_.at(value), {batch, count, c_.width}, m_.loc());
  }
  Value norm(Value x, const std::string& name) const { return nn::layer_norm(x, name, {.eps = c_.eps}, m_.loc()); }
  Value linear(Value x, std::int64_t out, const std::string& name, bool bias) const {
    return nn::linear(x, out, name, {.bias = bias}, m_.loc());
  }

  Value residual(Value x, Value update, const std::string& scale) {
    if (c_.layer_scale)
      update = mul(m_.at(update), m_.at(graph_.parameter(scale, {c_.width}, {.init = Init::constant(1)}, m_.loc())));
    return add(m_.at(x), m_.at(update));
  }

  /// x [B, heads, tokens, head_dim]: (a, b) -> (a cos - b sin, b cos + a sin) for its halves.
  Value turned(Value x) const {
    if (!c_.rope) return x;
    const Shape shape = x.shape();
    const Value halves = reshape(m_.at(x), {shape[0], shape[1], shape[2], 2, shape[3] / 2}, m_.loc());
    const Value swapped = flip(m_.at(halves), {3});
    const Value sum =
        add(m_.at(mul(m_.at(halves), m_.at(turns_.cosines))), m_.at(mul(m_.at(swapped), m_.at(turns_.sines))));
    return reshape(m_.at(sum), {shape[0], shape[1], shape[2], shape[3]}, m_.loc());
  }

  Value attention_of(Value x, const std::string& name) const {
    const auto heads = [&](const char* part, bool bias) {
      return nn::split_heads(linear(x, c_.width, name + part, bias), c_.heads, c_.width / c_.heads, m_.loc());
    };
    const Value q = turned(heads("q_proj", c_.query_bias)), k = turned(heads("k_proj", c_.key_bias));
    const Value v = heads("v_proj", c_.value_bias);
    const Value seen = attention(m_.at(q), m_.at(k), m_.at(v));
    return linear(nn::join_heads(seen, m_.loc()), c_.width, name + "o_proj", c_.out_bias);
  }

  Value feed_forward(Value x, const std::string& name) const {
    const Value up = linear(x, c_.ffn, name + "up_proj", c_.mlp_bias);
    Value inner = up;
    if (c_.gated) {
      const Value gate = nn::activate(linear(x, c_.ffn, name + "gate_proj", c_.mlp_bias), c_.activation, m_.loc());
      inner = mul(m_.at(gate), m_.at(up));
    } else {
      inner = nn::activate(up, c_.activation, m_.loc());
    }
    return linear(inner, c_.width, name + "down_proj", c_.mlp_bias);
  }

  const Model& m_;
  const VitConfig& c_;
  Graph& graph_;
  Turns turns_;
};

}  // namespace

VitConfig VitConfig::dinov3_vits16() {
  return {.registers = 4, .classes = 0, .eps = 1e-5, .rope = true, .layer_scale = true, .key_bias = false};
}

VitConfig VitConfig::small() {
  return {
      .patch = 4, .image_height = 12, .image_width = 8, .width = 24, .layers = 2, .heads = 3, .ffn = 40, .classes = 5};
}

Value vit(Value images, const VitConfig& config, Loc loc) {
  const Model model("vit", loc);
  check(model, config);
  const VitConfig& c = config;
  if (c.rope) {
    model.require_input(images, "images", DType::f32, {-1, c.channels, -1, -1},
                        formatted("[batch, {}, H, W]", c.channels));
    model.require_shape(images.shape()[2] % c.patch == 0 && images.shape()[3] % c.patch == 0,
                        "cannot cut images {} into patches of {} x {}", images.type().to_string(), c.patch, c.patch);
  } else {
    model.require(c.image_height % c.patch == 0 && c.image_width % c.patch == 0,
                  "cannot cut images of {} x {} into patches of {} x {}", c.image_height, c.image_width, c.patch,
                  c.patch);
    model.require_input(images, "images", DType::f32, {-1, c.channels, c.image_height, c.image_width},
                        formatted("[batch, {}, {}, {}]", c.channels, c.image_height, c.image_width));
  }
  return Vit(model, c, images).tokens(images);
}

Value vit_logits(Value tokens, const VitConfig& config, Loc loc) {
  const Model model("vit_logits", loc);
  model.require_extents({{"number of classes", config.classes}});
  model.require_input(tokens, "tokens", DType::f32, {-1, -1, config.width},
                      formatted("[batch, tokens, {}]", config.width));
  const Value first = slice(model.at(tokens), {1}, {0}, {1});
  return nn::linear(reshape(model.at(first), {tokens.shape()[0], config.width}, loc), config.classes, "classifier", {},
                    loc);
}

}  // namespace aeshna::models

// Models of the benchmark written again in plain loops, as their publications have them, against the graphs in the interpreter.
// ResNet-50 has its second form in fold_batch_norms_test.cpp.
#include <gtest/gtest.h>

#include <functional>

#include "base/format.h"
#include "nn/plain_math.h"
#include "nn/workload_support.h"

namespace aeshna::test {
namespace {

using models::Phase;
using models::Workload;

Rows swiglu(const PlainMath& m, const Rows& x, const std::string& name) {
  const Rows gate = each(m.linear(x, name + "gate_proj"), plain_silu);
  return m.linear(zip(gate, m.linear(x, name + "up_proj"), std::multiplies()), name + "down_proj");
}

/// Half-split pairs of each head, at positions 0, 1, ...
Rows rotated(Rows x, std::size_t heads, double base) {
  const std::size_t d = x[0].size() / heads;
  for (std::size_t position = 0; position < x.size(); ++position) {
    for (std::size_t i = 0; i < heads * d; ++i) {
      if (i % d >= d / 2) continue;
      const double angle =
          static_cast<double>(position) * std::pow(base, -2.0 * static_cast<double>(i % d) / static_cast<double>(d));
      double &a = x[position][i], &b = x[position][i + d / 2];
      const double first = a;
      a = first * std::cos(angle) - b * std::sin(angle);
      b = b * std::cos(angle) + first * std::sin(angle);
    }
  }
  return x;
}

Rows plain_smollm2(const PlainMath& m) {
  Rows x;
  const Rows table = m.rows("model.embed_tokens.weight");
  for (const double id : m.values("ids")) x.push_back(table[static_cast<std::size_t>(id)]);
  for (int i = 0; i < 2; ++i) {
    const std::string name = formatted("model.layers.{}.", i);
    const Rows h = m.rms_norm(x, name + "input_layernorm");
    const Rows q = rotated(m.linear(h, name + "self_attn.q_proj"), 6, 1e5);
    const Rows k = rotated(m.linear(h, name + "self_attn.k_proj"), 2, 1e5);
    const Rows v = m.linear(h, name + "self_attn.v_proj");
    x = sum(x, m.linear(PlainMath::attention(q, k, v, 6, 2, true), name + "self_attn.o_proj"));
    x = sum(x, swiglu(m, m.rms_norm(x, name + "post_attention_layernorm"), name + "mlp."));
  }
  return m.linear(m.rms_norm(x, "model.norm"), "model.embed_tokens");
}

Rows plain_smolvla(const PlainMath& m) {
  const Rows time = each(m.linear(m.rows("timestep"), "model.action_time_mlp_in"), plain_silu);
  Rows x = sum(m.linear(m.rows("noisy_actions"), "model.action_in_proj"), m.linear(time, "model.action_time_mlp_out"));
  for (int i = 0; i < 3; ++i) {
    const std::string name = formatted("model.vlm_with_expert.lm_expert.layers.{}.", i), attn = name + "self_attn.";
    const Rows h = m.rms_norm(x, name + "input_layernorm"), source = i % 2 == 0 ? h : m.rows("vlm_kv");
    const Rows a = PlainMath::attention(m.linear(h, attn + "q_proj"), m.linear(source, attn + "k_proj"),
                                        m.linear(source, attn + "v_proj"), 6, 2, i % 2 == 0);
    x = sum(x, m.linear(a, attn + "o_proj"));
    x = sum(x, swiglu(m, m.rms_norm(x, name + "post_attention_layernorm"), name + "mlp."));
  }
  return m.linear(x, "model.action_out_proj");
}

Rows attend(const PlainMath& m, const Rows& x, const Rows& source, std::size_t heads, const std::string& name) {
  const Rows a = PlainMath::attention(m.linear(x, name + ".q_proj"), m.linear(source, name + ".k_proj"),
                                      m.linear(source, name + ".v_proj"), heads, heads, false);
  return m.linear(a, name + ".out_proj");
}

Rows plain_whisper(const PlainMath& m) {
  const std::string encoder = "model.encoder.";
  Image sound{1, m.values("mel").size() / 10, m.rows("mel")};
  for (const int stride : {1, 2}) {
    const std::string name = formatted("{}conv{}.", encoder, stride);
    sound = m.conv(sound, name + "weight", stride);
    for (std::size_t c = 0; c < sound.planes.size(); ++c) {
      for (double& v : sound.planes[c]) v = plain_gelu(v + m.values(name + "fused_bias")[c]);
    }
  }
  Rows x = sum(transposed(sound.planes), m.rows(encoder + "embed_positions.weight"));
  for (int i = 0; i < 2; ++i) {
    const std::string name = formatted("{}layers.{}.", encoder, i);
    const Rows h = m.layer_norm(x, name + "self_attn_layer_norm");
    x = sum(x, attend(m, h, h, 3, name + "self_attn"));
    const Rows wide = each(m.linear(m.layer_norm(x, name + "final_layer_norm"), name + "fc1"), plain_gelu);
    x = sum(x, m.linear(wide, name + "fc2"));
  }
  return m.layer_norm(x, encoder + "layer_norm");
}

class PlainUNet {
 public:
  explicit PlainUNet(const PlainMath& m) : m_(m) {
    const Row& step = m.values("timestep_embedding");
    time_ = m.linear(each(m.linear({step}, "time_mlp.fc1"), plain_silu), "time_mlp.fc2");
  }

  Rows output() const {
    const Image e0 = res(m_.conv(m_.image("latent"), "conv_in.weight", 1), "encoder.0");
    const Image e1 = transformer(res(m_.conv(e0, "encoder.0.downsample.weight", 2), "encoder.1"), "encoder.1");
    const Image e2 = transformer(res(m_.conv(e1, "encoder.1.downsample.weight", 2), "encoder.2"), "encoder.2");
    const Image middle = transformer(res(e2, "middle"), "middle");
    const Image d2 = transformer(res(joined(middle, e2), "decoder.2"), "decoder.2");
    const Image d1 = transformer(res(joined(doubled(d2), e1), "decoder.1"), "decoder.1");
    const Image d0 = res(joined(doubled(d1), e0), "decoder.0");
    return m_.conv(active(d0, "conv_out.norm"), "conv_out.weight", 1).planes;
  }

 private:
  Image active(const Image& x, const std::string& norm) const {
    Image y = m_.group_norm(x, 8, norm);
    y.planes = each(y.planes, plain_silu);
    return y;
  }

  Image res(const Image& x, const std::string& level) const {
    const std::string name = level + ".resblock.";
    Image y = m_.conv(active(x, name + "norm1"), name + "conv1.weight", 1);
    const Row shift = m_.linear(time_, name + "time_proj")[0];
    for (std::size_t c = 0; c < y.planes.size(); ++c) {
      for (double& v : y.planes[c]) v += shift[c];
    }
    y = m_.conv(active(y, name + "norm2"), name + "conv2.weight", 1);
    const bool same = x.planes.size() == y.planes.size();
    y.planes = sum(y.planes, same ? x.planes : m_.conv(x, name + "res_conv.weight", 1).planes);
    return y;
  }

  Image transformer(const Image& x, const std::string& level) const {
    const std::string name = level + ".attn.", part = name + "transformer.";
    const std::size_t heads = x.planes.size() / 16;
    Image y = m_.conv(m_.group_norm(x, 8, name + "norm"), name + "proj_in.weight", 1);
    Rows t = transposed(y.planes);
    const Rows h = m_.layer_norm(t, part + "norm1");
    t = sum(t, attend(m_, h, h, heads, part + "self_attn"));
    t = sum(t, attend(m_, m_.layer_norm(t, part + "norm2"), m_.rows("text_context"), heads, part + "cross_attn"));
    const Rows wide = each(m_.linear(m_.layer_norm(t, part + "norm3"), part + "ff.fc1"), plain_gelu_tanh);
    t = sum(t, m_.linear(wide, part + "ff.fc2"));
    y.planes = transposed(t);
    y = m_.conv(y, name + "proj_out.weight", 1);
    y.planes = sum(y.planes, x.planes);
    return y;
  }

  static Image joined(Image x, const Image& skip) {
    x.planes.insert(x.planes.end(), skip.planes.begin(), skip.planes.end());
    return x;
  }

  static Image doubled(const Image& x) {
    Image y{2 * x.height, 2 * x.width};
    for (const Row& plane : x.planes) {
      Row& large = y.planes.emplace_back();
      for (std::size_t i = 0; i < y.height * y.width; ++i)
        large.push_back(plane[i / y.width / 2 * x.width + i % y.width / 2]);
    }
    return y;
  }

  const PlainMath& m_;
  Rows time_;
};

Rows plain_unet(const PlainMath& m) { return PlainUNet(m).output(); }

TEST(PlainModels, GiveTheSameOutputs) {
  const std::pair<const char*, Rows (*)(const PlainMath&)> all[] = {
      {"smollm2", plain_smollm2}, {"smolvla", plain_smolvla}, {"unet", plain_unet}, {"whisper", plain_whisper}};
  for (const auto& [name, plain] : all) {
    const Workload& w = models::find_workload(name, true);
    const TensorMap leaves = random_samples(w, 1);
    Row want;
    for (const Row& row : plain(PlainMath(leaves))) want.insert(want.end(), row.begin(), row.end());
    const TensorMap got = interpret(*workload_graph(w, Phase::Full, 1), leaves).outputs;
    // Tables of the rotation and the tanh GELU's factor are f32.
    EXPECT_LT(relative_l2(got.at("output").data, want), 1e-6) << name;
  }
}

}  // namespace
}  // namespace aeshna::test

#pragma once
// What bench_ops measures: ops at the shapes of real models. The list goes into the results, from which bench/ops.py takes it, so that
// both sides do the same work on the same numbers.
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include "aeshna/graph.h"
#include "aeshna/ops.h"
#include "base/format.h"

namespace aeshna::bench {

/// Filled with hashed numbers (see fill() in ops.cpp): f32 in [-1, 1) * scale + shift, i32 in [0, below).
struct BenchInput {
  std::string name;
  std::vector<std::int64_t> shape;
  double scale = 1, shift = 0;
  std::int64_t below = 0;  ///< > 0: i32
};

struct BenchCase {
  std::string family;  ///< "softmax"
  std::string name;    ///< "128x49152"
  std::string op;      ///< a function of bench/ops.py
  nlohmann::json attrs = nlohmann::json::object();
  std::vector<BenchInput> inputs;
  bool forward = true;
  /// Names of backward passes, and the inputs whose gradients each computes.
  std::vector<std::pair<std::string, std::vector<std::string>>> backward;
  std::function<Value(Graph&, const std::vector<Value>&)> build;
  int count = 1;  ///< how often the model has it
};

/// Families of the vocabulary that this build has no op for; the results say so.
struct AbsentFamily {
  std::string family, why;
};

inline std::string dims_name(const std::vector<std::int64_t>& dims) {
  std::string name;
  for (const std::int64_t d : dims) name += (name.empty() ? "" : "x") + std::to_string(d);
  return name;
}

inline void add_matmul(std::vector<BenchCase>& cases) {
  struct Shape {
    std::vector<std::int64_t> batch;
    std::int64_t m, n, k;
  };
  const Shape shapes[] = {{{}, 1500, 1536, 384}, {{}, 128, 1536, 576}, {{16}, 512, 512, 64}};
  for (const Shape& s : shapes) {
    std::vector<std::int64_t> a = s.batch, b = s.batch;
    a.insert(a.end(), {s.m, s.k});
    b.insert(b.end(), {s.k, s.n});
    cases.push_back({.family = "matmul",
                     .name = dims_name(a) + " " + dims_name(b),
                     .op = "matmul",
                     .inputs = {{"a", a}, {"b", b}},
                     .backward = {{"backward", {"a", "b"}}},
                     .build = [](Graph&, const std::vector<Value>& in) { return matmul(in[0], in[1]); }});
  }
}

inline void add_reductions(std::vector<BenchCase>& cases) {
  const std::pair<std::vector<std::int64_t>, Axes> shapes[] = {
      {{4096, 4096}, {1}}, {{4096, 4096}, {0}}, {{16777216}, {0}}, {{4, 256, 56, 56}, {0, 2, 3}}};
  for (const auto& [shape, axes] : shapes) {
    cases.push_back({.family = "reduction",
                     .name = "sum " + dims_name(shape) + " over " + dims_name(axes),
                     .op = "sum",
                     .attrs = {{"axes", axes}},
                     .inputs = {{"x", shape}},
                     .backward = {},
                     .build = [axes](Graph&, const std::vector<Value>& in) { return sum(in[0], axes); }});
  }
}

inline void add_softmax(std::vector<BenchCase>& cases) {
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{128, 49152}, {6, 1500, 1500}}) {
    cases.push_back({.family = "softmax",
                     .name = dims_name(shape),
                     .op = "softmax",
                     .inputs = {{"x", shape, 4}},
                     .backward = {{"backward", {"x"}}},
                     .build = [](Graph&, const std::vector<Value>& in) { return softmax(in[0]); }});
  }
}

inline void add_cross_entropy(std::vector<BenchCase>& cases) {
  for (const std::int64_t rows : {128, 1024}) {
    cases.push_back({.family = "cross_entropy",
                     .name = std::to_string(rows) + "x49152",
                     .op = "cross_entropy",
                     .inputs = {{"logits", {rows, 49152}, 4}, {.name = "labels", .shape = {rows}, .below = 49152}},
                     .backward = {{"backward", {"logits"}}},
                     .build = [](Graph&, const std::vector<Value>& in) { return cross_entropy(in[0], in[1]); }});
  }
}

/// The distinct convolutions of ResNet-50 (torchvision's: the stride is that of the 3x3) at batch 4, pictures of 224x224.
inline void add_convolutions(std::vector<BenchCase>& cases) {
  struct Shape {
    std::int64_t in, side, out, kernel, stride;
    int count;
  };
  constexpr Shape shapes[] = {
      {3, 224, 64, 7, 2, 1},                                                                          // stem
      {64, 56, 64, 1, 1, 1},     {64, 56, 64, 3, 1, 3},    {64, 56, 256, 1, 1, 4},                       // stage 1,
      {256, 56, 64, 1, 1, 2},                                                                         // shortcut included
      {256, 56, 128, 1, 1, 1},   {128, 56, 128, 3, 2, 1},  {128, 28, 512, 1, 1, 4},                      // stage 2
      {256, 56, 512, 1, 2, 1},   {512, 28, 128, 1, 1, 3},  {128, 28, 128, 3, 1, 3},                      //
      {512, 28, 256, 1, 1, 1},   {256, 28, 256, 3, 2, 1},  {256, 14, 1024, 1, 1, 6},                     // stage 3
      {512, 28, 1024, 1, 2, 1},  {1024, 14, 256, 1, 1, 5}, {256, 14, 256, 3, 1, 5},                      //
      {1024, 14, 512, 1, 1, 1},  {512, 14, 512, 3, 2, 1},  {512, 7, 2048, 1, 1, 3},                      // stage 4
      {1024, 14, 2048, 1, 2, 1}, {2048, 7, 512, 1, 1, 2},  {512, 7, 512, 3, 1, 2},
  };
  for (const Shape& c : shapes) {
    const std::int64_t padding = c.kernel / 2;
    const double scale = 1 / std::sqrt(static_cast<double>(c.in * c.kernel * c.kernel));
    cases.push_back({.family = "convolution",
                     .name = formatted("{} of 4x{}x{}x{} to {}{}", dims_name({c.kernel, c.kernel}), c.in, c.side,
                                       c.side, c.out, c.stride > 1 ? formatted(", stride {}", c.stride) : ""),
                     .op = "conv2d",
                     .attrs = {{"stride", c.stride}, {"padding", padding}},
                     .inputs = {{"x", {4, c.in, c.side, c.side}}, {"w", {c.out, c.in, c.kernel, c.kernel}, scale}},
                     .backward = {{"dgrad", {"x"}}, {"wgrad", {"w"}}},
                     .build =
                         [stride = c.stride, padding](Graph&, const std::vector<Value>& in) {
                           return conv(in[0], in[1], {.stride = {stride}, .padding = {padding}});
                         },
                     .count = c.count});
  }
}

/// Whisper tiny's encoder, SmolLM-135M, and a long causal sequence. Operands and result are [B, length, heads, 64], as the products
/// before and behind have them.
inline void add_attention(std::vector<BenchCase>& cases) {
  struct Shape {
    std::int64_t length, heads, kv_heads;
    bool causal;
  };
  for (const Shape& c : {Shape{1500, 6, 6, false}, {128, 9, 3, true}, {4096, 16, 16, true}}) {
    const std::vector<std::int64_t> kv = {1, c.length, c.kv_heads, 64};
    cases.push_back({.family = "attention",
                     .name = formatted("{} x {}/{} x 64{}", c.length, c.heads, c.kv_heads, c.causal ? ", causal" : ""),
                     .op = "attention",
                     .attrs = {{"causal", c.causal}},
                     .inputs = {{"q", {1, c.length, c.heads, 64}, 2}, {"k", kv, 2}, {"v", kv}},
                     .backward = {{"backward", {"q", "k", "v"}}},
                     .build = [causal = c.causal](Graph&, const std::vector<Value>& in) {
                       const auto heads_first = [](const Value& x) { return permute(x, {0, 2, 1, 3}); };
                       return heads_first(attention(heads_first(in[0]), heads_first(in[1]), heads_first(in[2]), {.causal = causal}));
                     }});
  }
}

// ---- normalization: Whisper tiny 1500x384, SmolLM 128x576, a U-Net of Stable Diffusion at 64x64, ResNet-50's second stage

inline void add_norms(std::vector<BenchCase>& cases) {
  const auto passes = [](std::vector<std::string> names) {
    return std::vector<std::pair<std::string, std::vector<std::string>>>{{"backward", std::move(names)}};
  };
  cases.push_back({.family = "layer_norm",
                   .name = "1500x384",
                   .op = "layer_norm",
                   .attrs = {{"eps", 1e-5}},
                   .inputs = {{"x", {1500, 384}}, {"scale", {384}, 0.25, 1}, {"bias", {384}}},
                   .backward = passes({"x", "scale", "bias"}),
                   .build = [](Graph&, const std::vector<Value>& in) { return layer_norm(in[0], in[1], in[2], 1e-5); }});
  cases.push_back({.family = "rms_norm",
                   .name = "128x576",
                   .op = "rms_norm",
                   .attrs = {{"eps", 1e-6}},
                   .inputs = {{"x", {128, 576}}, {"scale", {576}, 0.25, 1}},
                   .backward = passes({"x", "scale"}),
                   .build = [](Graph&, const std::vector<Value>& in) { return rms_norm(in[0], in[1], 1e-6); }});
  for (const auto& [n, c, side] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{1, 64, 32}, {1, 320, 64}}) {
    cases.push_back({.family = "group_norm",
                     .name = dims_name({n, c, side, side}) + ", 32 groups",
                     .op = "group_norm",
                     .attrs = {{"eps", 1e-5}, {"groups", 32}},
                     .inputs = {{"x", {n, c, side, side}}, {"scale", {c}, 0.25, 1}, {"bias", {c}}},
                     .backward = passes({"x", "scale", "bias"}),
                     .build = [](Graph&, const std::vector<Value>& in) {
                       return group_norm(in[0], 32, in[1], in[2], 1e-5);
                     }});
  }
  cases.push_back({.family = "batch_norm",
                   .name = "4x256x56x56, training",
                   .op = "batch_norm_training",
                   .attrs = {{"eps", 1e-5}, {"momentum", 0.1}},
                   .inputs = {{"x", {4, 256, 56, 56}}, {"scale", {256}, 0.25, 1}, {"bias", {256}}},
                   .backward = passes({"x", "scale", "bias"}),
                   .build = [](Graph& g, const std::vector<Value>& in) {
                     return batch_norm_training(in[0], g.state("running_mean", {256}), g.state("running_variance", {256}, DType::f32, Init::constant(1)),
                                                in[1], in[2]);
                   }});
}

/// SmolLM-135M and Qwen2.5-0.5B.
inline void add_embedding(std::vector<BenchCase>& cases) {
  struct Shape {
    std::int64_t vocabulary, width, tokens;
  };
  for (const Shape& c : {Shape{49152, 576, 128}, {151936, 896, 2048}}) {
    cases.push_back(
        {.family = "embedding",
         .name = formatted("{}x{}, {} tokens", c.vocabulary, c.width, c.tokens),
         .op = "embedding",
         .inputs = {{"table", {c.vocabulary, c.width}}, {.name = "ids", .shape = {c.tokens}, .below = c.vocabulary}},
         .backward = {{"backward", {"table"}}},
         .build = [](Graph&, const std::vector<Value>& in) { return embedding(in[0], in[1]); }});
  }
}

/// ResNet-50's two, and a halving of a feature map.
inline void add_pooling(std::vector<BenchCase>& cases) {
  cases.push_back({.family = "pooling",
                   .name = "max 3x3 of 4x64x112x112, stride 2",
                   .op = "max_pool2d",
                   .attrs = {{"kernel", 3}, {"stride", 2}, {"padding", 1}},
                   .inputs = {{"x", {4, 64, 112, 112}}},
                   .backward = {{"backward", {"x"}}},
                   .build = [](Graph&, const std::vector<Value>& in) {
                     return max_pool(in[0], {.kernel = {3}, .stride = {2}, .padding = {1}});
                   }});
  cases.push_back({.family = "pooling",
                   .name = "mean 2x2 of 1x320x64x64",
                   .op = "avg_pool2d",
                   .attrs = {{"kernel", 2}, {"stride", 2}, {"padding", 0}},
                   .inputs = {{"x", {1, 320, 64, 64}}},
                   .backward = {{"backward", {"x"}}},
                   .build = [](Graph&, const std::vector<Value>& in) { return avg_pool(in[0], {.kernel = {2}}); }});
  cases.push_back({.family = "pooling",
                   .name = "mean of 4x2048x7x7",
                   .op = "global_avg_pool",
                   .inputs = {{"x", {4, 2048, 7, 7}}},
                   .backward = {{"backward", {"x"}}},
                   .build = [](Graph&, const std::vector<Value>& in) { return global_avg_pool(in[0]); }});
}

/// An upsampling step of a U-Net.
inline void add_resize(std::vector<BenchCase>& cases) {
  cases.push_back({.family = "resize",
                   .name = "1x640x32x32, nearest, twice as large",
                   .op = "resize_nearest",
                   .attrs = {{"factor", 2}},
                   .inputs = {{"x", {1, 640, 32, 32}}},
                   .backward = {{"backward", {"x"}}},
                   .build = [](Graph&, const std::vector<Value>& in) {
                     return resize(in[0], {64, 64}, {.coordinates = ResizeCoordinates::Asymmetric, .rounding = NearestRounding::Floor});
                   }});
}

/// Running sums, whole sorts, and sampling from vocabularies.
inline void add_orders(std::vector<BenchCase>& cases) {
  const auto add = [&](std::string family, std::vector<std::int64_t> shape, std::string name, nlohmann::json attrs, auto build) {
    cases.push_back({.family = family,
                     .name = dims_name(shape) + name,
                     .op = family,
                     .attrs = std::move(attrs),
                     .inputs = {{"x", std::move(shape)}},
                     .backward = {{"backward", {"x"}}},
                     .build = build});
  };
  for (const auto& [shape, axis] : {std::pair<std::vector<std::int64_t>, std::int64_t>{{16777216}, 0}, {{4096, 4096}, 1}, {{4096, 4096}, 0}}) {
    add("cumsum", shape, formatted(" along {}", axis), {{"axis", axis}},
        [axis = axis](Graph&, const std::vector<Value>& in) { return cumsum(in[0], axis); });
  }
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{1048576}, {1024, 4096}, {8192, 64}})
    add("sort", shape, "", nlohmann::json::object(), [](Graph&, const std::vector<Value>& in) { return sort(in[0]).values; });
  for (const auto& [rows, k] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {1, 50}, {32, 128}}) {
    add("topk", {rows, 151936}, formatted(", k = {}", k), {{"k", k}},
        [k = k](Graph&, const std::vector<Value>& in) { return topk(in[0], k).values; });
  }
}

inline std::vector<BenchCase> bench_cases() {
  std::vector<BenchCase> cases;
  add_convolutions(cases);
  add_attention(cases);
  add_norms(cases);
  add_softmax(cases);
  add_cross_entropy(cases);
  add_embedding(cases);
  add_pooling(cases);
  add_resize(cases);
  add_matmul(cases);
  add_reductions(cases);
  add_orders(cases);
  return cases;
}

inline std::vector<AbsentFamily> absent_families() { return {}; }

}  // namespace aeshna::bench

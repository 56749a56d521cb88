#pragma once
// What bench_ops measures: ops at the shapes of real models. The list goes into the results, from which bench/ops.py takes it, so that
// both sides do the same work on the same numbers.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "aeshna/graph.h"
#include "aeshna/ops.h"

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

inline std::vector<BenchCase> bench_cases() {
  std::vector<BenchCase> cases;
  add_matmul(cases);
  add_reductions(cases);
  add_softmax(cases);
  add_cross_entropy(cases);
  return cases;
}

inline std::vector<AbsentFamily> absent_families() {
  const char* const why = "no such op in this build";
  return {{"convolution", why}, {"attention", why}, {"layer_norm", why}, {"rms_norm", why}, {"group_norm", why},
          {"batch_norm", why}, {"embedding", why}, {"pooling", why}, {"resize", why}};
}

}  // namespace aeshna::bench

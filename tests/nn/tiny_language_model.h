#pragma once
// Small language models with random weights as GGUF files, and what they must compute: plain loops over the file's tensors in double,
// written from the papers and from nothing of src/nn.
#include <cmath>
#include <filesystem>
#include <map>
#include <numbers>
#include <random>

#include "aeshna/quantize.h"
#include "base/format.h"
#include "base/quant.h"
#include "io/gguf.h"
#include "nn/tokenizers/fixtures.h"

namespace aeshna::test {

struct TinyModel {
  std::string architecture;
  bool llama3_scaling = false;
  bool all_f32 = false;
  std::int64_t hidden = 256, heads = 8, kv_heads = 2, head_dim = 64, ffn = 512, layers = 2, window = 0, context = 64;
  double eps = 1e-5, base = 10000;
  bool gemma() const { return architecture.starts_with("gemma"); }
  bool is(std::string_view name) const { return architecture == name; }
};

inline TinyModel tiny_model(std::string architecture) {
  TinyModel m{.architecture = std::move(architecture)};
  if (m.is("gemma2")) m.layers = 3, m.window = 3;
  if (m.is("gemma3")) m.layers = 7, m.window = 3, m.base = 1e6;
  if (m.is("phi3")) m.window = 4;
  return m;
}

/// The divisors of Llama 3.1's frequencies for a factor of 8.
inline std::vector<double> llama3_factors(const TinyModel& m) {
  std::vector<double> factors;
  for (std::int64_t i = 0; i < m.head_dim / 2; ++i) {
    const double frequency = std::pow(m.base, -2.0 * static_cast<double>(i) / static_cast<double>(m.head_dim));
    const double wave = 2 * std::numbers::pi / frequency;
    if (wave < 8192.0 / 4) {
      factors.push_back(1);
    } else if (wave > 8192.0) {
      factors.push_back(8);
    } else {
      const double smooth = (8192 / wave - 1) / 3;
      factors.push_back(1 / ((1 - smooth) / 8 + smooth));
    }
  }
  return factors;
}

inline GgufMetadata tiny_metadata(const TinyModel& m) {
  GgufMetadata metadata = {{"general.architecture", GgufValue::text(m.architecture)}};
  const auto integer = [&](const char* key, std::int64_t value) {
    metadata.emplace_back(m.architecture + "." + key, GgufValue::integer(static_cast<std::uint32_t>(value)));
  };
  const auto number = [&](const char* key, double value) {
    metadata.emplace_back(m.architecture + "." + key, GgufValue::number(static_cast<float>(value)));
  };
  integer("context_length", m.context);
  integer("embedding_length", m.hidden);
  integer("block_count", m.layers);
  integer("feed_forward_length", m.ffn);
  integer("attention.head_count", m.heads);
  integer("attention.head_count_kv", m.kv_heads);
  integer("attention.key_length", m.head_dim);
  integer("attention.value_length", m.head_dim);
  integer("rope.dimension_count", m.head_dim);
  number("attention.layer_norm_rms_epsilon", m.eps);
  number("rope.freq_base", m.base);
  if (m.window > 0) integer("attention.sliding_window", m.window);
  if (m.is("gemma2")) number("attn_logit_softcapping", 5), number("final_logit_softcapping", 3);
  if (m.is("gemma3")) {
    metadata.emplace_back("gemma3.rope.scaling.type", GgufValue::text("linear"));
    number("rope.scaling.factor", 8);
  }
  for (auto& item : gguf_of("gpt2", "gpt-2")) metadata.push_back(std::move(item));
  metadata.emplace_back("tokenizer.chat_template", GgufValue::text("{{ '<|im_start|>' }}"));
  return metadata;
}

inline std::vector<std::pair<std::string, Literal>> tiny_tensors(const TinyModel& m, unsigned seed = 1) {
  std::vector<std::pair<std::string, Literal>> tensors;
  std::mt19937 random(seed);
  const auto uniform = [&] { return static_cast<double>(random() % 20001) / 10000 - 1; };
  static constexpr DType kinds[] = {DType::q8_0, DType::f16,  DType::q4_K, DType::q5_0, DType::f32,
                                    DType::q6_K, DType::bf16, DType::q4_0, DType::q4_1};
  std::size_t next = seed;
  const auto matrix = [&](std::string name, std::int64_t out, std::int64_t in) {
    std::vector<double> values(static_cast<std::size_t>(out * in));
    const double scale = 2 / std::sqrt(static_cast<double>(in));
    for (double& v : values) v = uniform() * scale;
    const DType dtype = m.all_f32 ? DType::f32 : kinds[next++ % std::size(kinds)];
    const Literal f32 = Literal::from_doubles({DType::f32, {out, in}}, values);
    tensors.emplace_back(std::move(name), dtype == DType::f32   ? f32
                                          : is_quantized(dtype) ? quantize(f32, dtype)
                                                                : Literal::from_doubles({dtype, {out, in}}, values));
  };
  const auto vector = [&](std::string name, std::int64_t size, double around) {
    std::vector<double> values(static_cast<std::size_t>(size));
    for (double& v : values) v = around + 0.2 * uniform();
    tensors.emplace_back(std::move(name), Literal::from_doubles({DType::f32, {size}}, values));
  };
  const auto vocab = static_cast<std::int64_t>(gguf_of("gpt2", "gpt-2")[2].second.size());
  matrix("token_embd.weight", vocab, m.hidden);
  vector("output_norm.weight", m.hidden, 1);
  if (m.is("llama") || m.is("phi3")) matrix("output.weight", vocab, m.hidden);
  if (m.llama3_scaling)
    tensors.emplace_back("rope_freqs.weight", Literal::from_doubles({DType::f32, {m.head_dim / 2}}, llama3_factors(m)));
  const std::int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  for (std::int64_t i = 0; i < m.layers; ++i) {
    const std::string layer = formatted("blk.{}.", i);
    vector(layer + "attn_norm.weight", m.hidden, 1);
    if (m.is("phi3")) {
      matrix(layer + "attn_qkv.weight", q + 2 * kv, m.hidden);
      matrix(layer + "ffn_up.weight", 2 * m.ffn, m.hidden);
    } else {
      matrix(layer + "attn_q.weight", q, m.hidden);
      matrix(layer + "attn_k.weight", kv, m.hidden);
      matrix(layer + "attn_v.weight", kv, m.hidden);
      matrix(layer + "ffn_gate.weight", m.ffn, m.hidden);
      matrix(layer + "ffn_up.weight", m.ffn, m.hidden);
    }
    if (m.is("qwen2")) {
      vector(layer + "attn_q.bias", q, 0);
      vector(layer + "attn_k.bias", kv, 0);
      vector(layer + "attn_v.bias", kv, 0);
    }
    if (m.is("qwen3") || m.is("gemma3")) {
      vector(layer + "attn_q_norm.weight", m.head_dim, 1);
      vector(layer + "attn_k_norm.weight", m.head_dim, 1);
    }
    matrix(layer + "attn_output.weight", m.hidden, q);
    vector(layer + "ffn_norm.weight", m.hidden, 1);
    matrix(layer + "ffn_down.weight", m.hidden, m.ffn);
    if (m.gemma()) {
      vector(layer + "post_attention_norm.weight", m.hidden, 1);
      vector(layer + "post_ffw_norm.weight", m.hidden, 1);
    }
  }
  return tensors;
}

inline GgufTensor gguf_tensor(const std::string& name, const Literal& value) {
  return {name, value.type(), [value] { return std::vector<std::byte>(value.bytes().begin(), value.bytes().end()); }};
}

inline void write_tiny_gguf(const std::filesystem::path& path, const TinyModel& m, unsigned seed = 1) {
  std::vector<GgufTensor> tensors;
  for (const auto& [name, value] : tiny_tensors(m, seed)) tensors.push_back(gguf_tensor(name, value));
  write_gguf(path, tensors, tiny_metadata(m));
}

/// The reference.
class TinyReference {
 public:
  using Row = std::vector<double>;
  using Rows = std::vector<Row>;

  TinyReference(const TinyModel& model, const std::vector<std::pair<std::string, Literal>>& tensors) : m(model) {
    for (const auto& [name, value] : tensors) {
      values[name] = is_quantized(value.type().dtype) ? dequantize(value).to_doubles() : value.to_doubles();
    }
  }

  /// Logits of each position.
  Rows logits(const std::vector<std::int32_t>& ids) const {
    Rows x;
    for (const std::int32_t id : ids) {
      const auto at = values.at("token_embd.weight").begin() + id * m.hidden;
      x.emplace_back(at, at + m.hidden);
      if (m.gemma())
        for (double& v : x.back()) v *= std::sqrt(static_cast<double>(m.hidden));
    }
    for (std::int64_t i = 0; i < m.layers; ++i) {
      const std::string l = formatted("blk.{}.", i);
      Rows update = attention(norm(x, l + "attn_norm.weight"), i);
      if (m.gemma()) update = norm(update, l + "post_attention_norm.weight");
      add(x, update);
      update = feed_forward(norm(x, l + "ffn_norm.weight"), l);
      if (m.gemma()) update = norm(update, l + "post_ffw_norm.weight");
      add(x, update);
    }
    Rows y = product(norm(x, "output_norm.weight"),
                     values.contains("output.weight") ? "output.weight" : "token_embd.weight");
    if (m.is("gemma2"))
      for (Row& row : y)
        for (double& v : row) v = 3 * std::tanh(v / 3);
    return y;
  }

 private:
  static void add(Rows& x, const Rows& y) {
    for (std::size_t t = 0; t < x.size(); ++t)
      for (std::size_t j = 0; j < x[t].size(); ++j) x[t][j] += y[t][j];
  }
  Row normalized(const Row& x, const std::string& name) const {
    double squares = 0;
    for (const double v : x) squares += v * v;
    Row y = x;
    for (std::size_t j = 0; j < y.size(); ++j)
      y[j] = x[j] / std::sqrt(squares / static_cast<double>(x.size()) + static_cast<float>(m.eps)) * values.at(name)[j];
    return y;
  }
  Rows norm(const Rows& x, const std::string& name) const {
    Rows y;
    for (const Row& row : x) y.push_back(normalized(row, name));
    return y;
  }
  Rows product(const Rows& x, const std::string& name, std::int64_t first = 0, std::int64_t count = -1) const {
    const std::vector<double>& w = values.at(name);
    const std::size_t in = x[0].size();
    const std::size_t out = count < 0 ? w.size() / in : static_cast<std::size_t>(count);
    Rows y;
    for (const Row& row : x) {
      Row& r = y.emplace_back(out, 0.0);
      for (std::size_t o = 0; o < out; ++o)
        for (std::size_t k = 0; k < in; ++k) r[o] += row[k] * w[(static_cast<std::size_t>(first) + o) * in + k];
    }
    return y;
  }
  Rows projection(const Rows& x, const std::string& l, char which) const {
    const std::int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
    if (m.is("phi3"))
      return product(x, l + "attn_qkv.weight", which == 'q' ? 0 : which == 'k' ? q : q + kv, which == 'q' ? q : kv);
    Rows y = product(x, l + "attn_" + which + ".weight");
    if (m.is("qwen2"))
      for (Row& row : y)
        for (std::size_t j = 0; j < row.size(); ++j) row[j] += values.at(l + "attn_" + which + ".bias")[j];
    return y;
  }
  void rotate(Row& head, std::int64_t position, bool windowed) const {
    const double base = m.is("gemma3") && windowed ? 10000 : m.base;
    const std::vector<double> factors = m.llama3_scaling ? llama3_factors(m)
                                                         : std::vector<double>(static_cast<std::size_t>(m.head_dim / 2),
                                                                               m.is("gemma3") && !windowed ? 8.0 : 1.0);
    for (std::int64_t i = 0; i < m.head_dim / 2; ++i) {
      const double angle = static_cast<double>(position) *
                           std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(m.head_dim)) /
                           factors[static_cast<std::size_t>(i)];
      double& a = head[static_cast<std::size_t>(m.is("llama") ? 2 * i : i)];
      double& b = head[static_cast<std::size_t>(m.is("llama") ? 2 * i + 1 : i + m.head_dim / 2)];
      const double x = a, y = b;
      a = x * std::cos(angle) - y * std::sin(angle);
      b = x * std::sin(angle) + y * std::cos(angle);
    }
  }
  Rows attention(const Rows& x, std::int64_t layer) const {
    const std::string l = formatted("blk.{}.", layer);
    const bool windowed =
        m.window > 0 && (m.is("phi3") || (m.is("gemma2") && layer % 2 == 0) || (m.is("gemma3") && layer % 6 != 5));
    const auto dim = static_cast<std::size_t>(m.head_dim);
    const auto heads = [&](char which, std::int64_t count) {
      const Rows flat = projection(x, l, which);
      std::vector<Rows> split(static_cast<std::size_t>(count));
      for (std::size_t t = 0; t < flat.size(); ++t) {
        for (std::size_t h = 0; h < split.size(); ++h) {
          const auto at = flat[t].begin() + static_cast<std::ptrdiff_t>(h * dim);
          Row head(at, at + static_cast<std::ptrdiff_t>(dim));
          if (which != 'v') {
            if (m.is("qwen3") || m.is("gemma3")) head = normalized(head, l + "attn_" + which + "_norm.weight");
            rotate(head, static_cast<std::int64_t>(t), windowed);
          }
          split[h].push_back(std::move(head));
        }
      }
      return split;
    };
    const auto q = heads('q', m.heads), k = heads('k', m.kv_heads), v = heads('v', m.kv_heads);
    Rows joined(x.size());
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t h = 0; h < q.size(); ++h) {
        const std::size_t g = h / (q.size() / k.size());
        const std::size_t first =
            windowed && t + 1 > static_cast<std::size_t>(m.window) ? t + 1 - static_cast<std::size_t>(m.window) : 0;
        std::vector<double> weights;
        double largest = -1e300, total = 0;
        for (std::size_t s = first; s <= t; ++s) {
          double score = 0;
          for (std::size_t d = 0; d < dim; ++d) score += q[h][t][d] * k[g][s][d];
          score /= std::sqrt(static_cast<double>(dim));
          if (m.is("gemma2")) score = 5 * std::tanh(score / 5);
          weights.push_back(score);
          largest = std::max(largest, score);
        }
        for (double& w : weights) total += w = std::exp(w - largest);
        Row out(dim, 0.0);
        for (std::size_t s = first; s <= t; ++s)
          for (std::size_t d = 0; d < dim; ++d) out[d] += weights[s - first] / total * v[g][s][d];
        joined[t].insert(joined[t].end(), out.begin(), out.end());
      }
    }
    return product(joined, l + "attn_output.weight");
  }
  Rows feed_forward(const Rows& x, const std::string& l) const {
    Rows gate = m.is("phi3") ? product(x, l + "ffn_up.weight", 0, m.ffn) : product(x, l + "ffn_gate.weight");
    const Rows up = m.is("phi3") ? product(x, l + "ffn_up.weight", m.ffn, m.ffn) : product(x, l + "ffn_up.weight");
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t j = 0; j < gate[t].size(); ++j) {
        const double a = gate[t][j];
        const double active =
            m.gemma() ? 0.5 * a * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (a + 0.044715 * a * a * a)))
                      : a / (1 + std::exp(-a));
        gate[t][j] = active * up[t][j];
      }
    }
    return product(gate, l + "ffn_down.weight");
  }

  TinyModel m;
  std::map<std::string, std::vector<double>> values;
};

}  // namespace aeshna::test

#pragma once
// What models are made of in plain loops over one sample, in double: a second way to the same numbers.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <string>
#include <vector>

#include "ir/interpreter.h"

namespace aeshna::test {

using Row = std::vector<double>;
using Rows = std::vector<Row>;  ///< tokens of features

struct Image {
  std::size_t height = 0, width = 0;
  Rows planes = {};  ///< channels of pixels
};

/// Layers by the names of their parameters.
class PlainMath {
 public:
  explicit PlainMath(const TensorMap& leaves) : leaves_(leaves) {}

  const Row& values(const std::string& leaf) const { return leaves_.at(leaf).data; }
  Rows rows(const std::string& leaf) const { return rows_of(values(leaf), extent(leaf, -1)); }
  Image image(const std::string& leaf) const {
    const std::size_t height = extent(leaf, -2), width = extent(leaf, -1);
    return {height, width, rows_of(values(leaf), height * width)};
  }

  /// x W^T, plus a bias if there is one.
  Rows linear(const Rows& x, const std::string& name) const {
    const Row& w = values(name + ".weight");
    const std::size_t in = x[0].size(), out = w.size() / in;
    Rows y(x.size(), Row(out));
    for (std::size_t s = 0; s < x.size(); ++s) {
      for (std::size_t o = 0; o < out; ++o) {
        for (std::size_t i = 0; i < in; ++i) y[s][o] += x[s][i] * w[o * in + i];
        if (leaves_.contains(name + ".bias")) y[s][o] += values(name + ".bias")[o];
      }
    }
    return y;
  }

  Rows rms_norm(Rows x, const std::string& name) const {
    for (Row& row : x) {
      double squares = 0;
      for (const double v : row) squares += v * v;
      const double factor = 1 / std::sqrt(squares / static_cast<double>(row.size()) + 1e-5);
      for (std::size_t i = 0; i < row.size(); ++i) row[i] *= factor * values(name + ".weight")[i];
    }
    return x;
  }

  Rows layer_norm(Rows x, const std::string& name) const {
    for (Row& row : x) {
      standardize({&row});
      for (std::size_t i = 0; i < row.size(); ++i) affine(row[i], name, i);
    }
    return x;
  }

  Image group_norm(Image x, std::size_t groups, const std::string& name) const {
    const std::size_t size = x.planes.size() / groups;
    for (std::size_t g = 0; g < groups; ++g) {
      std::vector<Row*> group;
      for (std::size_t c = g * size; c < (g + 1) * size; ++c) group.push_back(&x.planes[c]);
      standardize(group);
    }
    for (std::size_t c = 0; c < x.planes.size(); ++c) {
      for (double& v : x.planes[c]) affine(v, name, c);
    }
    return x;
  }

  /// Weight [out, in, kernel] over an image of height 1 or [out, in, kernel, kernel]; padded by half of the kernel.
  Image conv(const Image& x, const std::string& weight, std::ptrdiff_t stride) const {
    const Shape& shape = leaves_.at(weight).type.shape;
    const Row& w = values(weight);
    const std::ptrdiff_t kw = shape[shape.rank() - 1], kh = shape.rank() == 4 ? kw : 1;
    const auto height = static_cast<std::ptrdiff_t>(x.height), width = static_cast<std::ptrdiff_t>(x.width);
    const std::ptrdiff_t sy = kh == 1 && height == 1 ? 1 : stride;
    Image y{static_cast<std::size_t>((height - 1) / sy + 1), static_cast<std::size_t>((width - 1) / stride + 1)};
    for (std::int64_t o = 0; o < shape[0]; ++o) {
      Row& plane = y.planes.emplace_back();
      for (std::ptrdiff_t py = 0; py < height; py += sy) {
        for (std::ptrdiff_t px = 0; px < width; px += stride) {
          double sum = 0;
          for (std::size_t c = 0; c < x.planes.size(); ++c) {
            for (std::ptrdiff_t ky = 0; ky < kh; ++ky) {
              for (std::ptrdiff_t kx = 0; kx < kw; ++kx) {
                const std::ptrdiff_t at_y = py + ky - kh / 2, at_x = px + kx - kw / 2;
                if (at_y < 0 || at_y >= height || at_x < 0 || at_x >= width) continue;
                const std::ptrdiff_t at_w = ((o * shape[1] + static_cast<std::ptrdiff_t>(c)) * kh + ky) * kw + kx;
                sum += x.planes[c][static_cast<std::size_t>(at_y * width + at_x)] * w[static_cast<std::size_t>(at_w)];
              }
            }
          }
          plane.push_back(sum);
        }
      }
    }
    return y;
  }

  /// Row vectors of q [S, heads * d], k and v [T, kv_heads * d] -> [S, heads * d].
  static Rows attention(const Rows& q, const Rows& k, const Rows& v, std::size_t heads, std::size_t kv_heads,
                        bool causal) {
    const std::size_t d = q[0].size() / heads;
    Rows out(q.size(), Row(q[0].size()));
    for (std::size_t h = 0; h < heads; ++h) {
      const std::size_t kv = h / (heads / kv_heads);
      for (std::size_t s = 0; s < q.size(); ++s) {
        const std::size_t seen = causal ? s + 1 : k.size();
        Row weights(seen);
        double total = 0;
        for (std::size_t t = 0; t < seen; ++t) {
          double score = 0;
          for (std::size_t i = 0; i < d; ++i) score += q[s][h * d + i] * k[t][kv * d + i];
          total += weights[t] = std::exp(score / std::sqrt(static_cast<double>(d)));
        }
        for (std::size_t t = 0; t < seen; ++t) {
          for (std::size_t i = 0; i < d; ++i) out[s][h * d + i] += weights[t] / total * v[t][kv * d + i];
        }
      }
    }
    return out;
  }

 private:
  std::size_t extent(const std::string& leaf, std::int64_t axis) const {
    const Shape& shape = leaves_.at(leaf).type.shape;
    return static_cast<std::size_t>(shape[shape.axis(axis)]);
  }

  static Rows rows_of(const Row& flat, std::size_t width) {
    Rows rows;
    for (auto at = flat.begin(); at != flat.end(); at += static_cast<std::ptrdiff_t>(width))
      rows.emplace_back(at, at + static_cast<std::ptrdiff_t>(width));
    return rows;
  }

  /// To mean 0 and variance 1, all rows together.
  static void standardize(const std::vector<Row*>& rows) {
    double sum = 0, squares = 0, count = 0;
    for (const Row* row : rows) {
      for (const double v : *row) sum += v;
      count += static_cast<double>(row->size());
    }
    for (const Row* row : rows) {
      for (const double v : *row) squares += (v - sum / count) * (v - sum / count);
    }
    for (Row* row : rows) {
      for (double& v : *row) v = (v - sum / count) / std::sqrt(squares / count + 1e-5);
    }
  }

  void affine(double& v, const std::string& name, std::size_t i) const {
    v = v * values(name + ".weight")[i] + values(name + ".bias")[i];
  }

  const TensorMap& leaves_;
};

template <class F>
Rows each(Rows x, F f) {
  for (Row& row : x) std::ranges::transform(row, row.begin(), f);
  return x;
}

/// Element by element; a single row of b counts for every row.
template <class F>
Rows zip(Rows a, const Rows& b, F f) {
  for (std::size_t s = 0; s < a.size(); ++s) std::ranges::transform(a[s], b[b.size() == 1 ? 0 : s], a[s].begin(), f);
  return a;
}
inline Rows sum(Rows a, const Rows& b) { return zip(std::move(a), b, std::plus()); }

inline double plain_silu(double x) { return x / (1 + std::exp(-x)); }
inline double plain_gelu(double x) { return x * (1 + std::erf(x / std::numbers::sqrt2)) / 2; }
inline double plain_gelu_tanh(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

inline Rows transposed(const Rows& x) {
  Rows y(x[0].size(), Row(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t j = 0; j < x[0].size(); ++j) y[j][i] = x[i][j];
  }
  return y;
}

}  // namespace aeshna::test

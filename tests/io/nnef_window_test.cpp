// Sliding windows of NNEF against plain loops over their definition: every border, padding, stride, dilation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "support/expect_error.h"
#include "support/nnef_model.h"

namespace aeshna {
namespace {

using namespace test;
using Ints = std::vector<std::int64_t>;

struct Geometry {
  Ints extents, size, stride, dilation, before, after;  ///< after auto padding
  bool automatic = false;
  std::string border = "constant";
};

std::string list(const Ints& values) {
  std::string text = "[";
  for (const std::int64_t v : values) text += (text.size() == 1 ? "" : ", ") + std::to_string(v);
  return text + "]";
}

std::string arguments(const Geometry& s, std::size_t skip = 0) {
  const auto behind = [&](const Ints& v) { return list(Ints(v.begin() + static_cast<std::ptrdiff_t>(skip), v.end())); };
  std::string text = "border = '" + s.border + "', stride = " + behind(s.stride) + ", dilation = " + behind(s.dilation);
  if (s.automatic) return text;
  text += ", padding = [";
  for (std::size_t i = skip; i < s.size.size(); ++i)
    text += (i == skip ? "" : ", ") + formatted("({}, {})", s.before[i], s.after[i]);
  return text + "]";
}

/// The element at i of an axis of n with this border; nullopt: it does not exist.
std::optional<std::int64_t> position(std::int64_t i, std::int64_t n, const std::string& border) {
  if (border == "replicate") return std::clamp<std::int64_t>(i, 0, n - 1);
  if (border == "reflect" || border == "reflect-even") {
    while (i < 0 || i >= n) {
      if (border == "reflect")
        i = i < 0 ? -i : 2 * (n - 1) - i;
      else
        i = i < 0 ? -1 - i : 2 * n - 1 - i;
    }
    return i;
  }
  return i >= 0 && i < n ? std::optional(i) : std::nullopt;
}

Ints outputs(const Geometry& s) {
  Ints out;
  for (std::size_t i = 0; i < s.size.size(); ++i)
    out.push_back((s.extents[i] + s.before[i] + s.after[i] - (s.size[i] - 1) * s.dilation[i] - 1) / s.stride[i] + 1);
  return out;
}

template <class F>
void each(const Ints& extents, F f) {
  Ints at(extents.size(), 0);
  for (;;) {
    f(at);
    std::size_t d = extents.size();
    while (d > 0 && ++at[d - 1] == extents[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

std::int64_t offset(const Ints& at, const Ints& extents) {
  std::int64_t o = 0;
  for (std::size_t i = 0; i < at.size(); ++i) o = o * extents[i] + at[i];
  return o;
}

enum class Pool { Sum, Average, Max };

std::vector<double> pooled(const Geometry& s, const std::vector<double>& x, Pool kind) {
  std::vector<double> result;
  each(outputs(s), [&](const Ints& o) {
    double sum = 0, best = -INFINITY, seen = 0, volume = 0;
    each(s.size, [&](const Ints& k) {
      Ints at;
      for (std::size_t i = 0; i < k.size(); ++i) {
        const auto p = position(o[i] * s.stride[i] + k[i] * s.dilation[i] - s.before[i], s.extents[i], s.border);
        if (p) at.push_back(*p);
      }
      ++volume;
      if (at.size() == k.size()) {
        const double v = x[static_cast<std::size_t>(offset(at, s.extents))];
        sum += v;
        best = std::max(best, v);
        ++seen;
      } else if (s.border == "constant") {
        best = std::max(best, 0.0);
      }
    });
    if (kind == Pool::Average) sum /= s.border == "ignore" ? std::max(seen, 1.0) : volume;
    result.push_back(kind == Pool::Max ? best : sum);
  });
  return result;
}

Geometry random_geometry(std::mt19937& random, std::size_t rank, std::size_t fixed) {
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  static const char* const borders[] = {"constant", "ignore", "replicate", "reflect", "reflect-even"};
  Geometry s;
  s.automatic = draw(0, 2) == 0;
  s.border = borders[draw(0, 4)];
  for (std::size_t i = 0; i < rank; ++i) {
    const bool still = i < fixed;
    s.extents.push_back(still ? draw(1, 2) : draw(4, 8));
    s.size.push_back(still ? 1 : draw(1, 3));
    s.stride.push_back(still ? 1 : draw(1, 3));
    s.dilation.push_back(still ? 1 : draw(1, 2));
    const std::int64_t span = (s.size[i] - 1) * s.dilation[i] + 1;
    if (s.automatic) {
      const std::int64_t count = (s.extents[i] + s.stride[i] - 1) / s.stride[i];
      const std::int64_t total = std::max<std::int64_t>((count - 1) * s.stride[i] + span - s.extents[i], 0);
      s.before.push_back(total / 2);
      s.after.push_back(total - total / 2);
    } else {
      s.before.push_back(still ? 0 : draw(0, 3));
      s.after.push_back(still ? 0 : draw(0, 3));
    }
  }
  return s;
}

std::vector<double> random_values(std::mt19937& random, std::size_t n) {
  std::vector<double> values;
  for (std::size_t i = 0; i < n; ++i)
    values.push_back(std::round(std::uniform_real_distribution<double>(-8, 8)(random) * 64) / 64);
  return values;
}

Shape shape_of(const Ints& dims) { return Shape(std::span<const std::int64_t>(dims)); }

std::int64_t volume(const Ints& dims) {
  std::int64_t n = 1;
  for (const std::int64_t d : dims) n *= d;
  return n;
}

void expect_values(const HostTensor& got, const Ints& dims, const std::vector<double>& want, const std::string& what) {
  ASSERT_EQ(got.type.shape, shape_of(dims)) << what;
  EXPECT_LE(difference(got, tensor(shape_of(dims), want)), 1e-9) << what;
}

TEST(NnefWindows, PoolsOfEveryGeometry) {
  std::mt19937 random(1);
  for (int round = 0; round < 150; ++round) {
    const std::size_t rank = 1 + static_cast<std::size_t>(round) % 4;
    const Geometry s = random_geometry(random, rank, rank == 4 ? static_cast<std::size_t>(round / 4 % 3) : 0);
    const HostTensor x =
        tensor(shape_of(s.extents), random_values(random, static_cast<std::size_t>(volume(s.extents))));
    const std::string call = "size = " + list(s.size) + ", " + arguments(s);
    const std::string shape = list(s.extents);
    SCOPED_TRACE("round " + std::to_string(round) + ": " + shape + " " + call);
    expect_values(run_one(shape, "y = box(x, " + call + ");", x), outputs(s), pooled(s, x.data, Pool::Sum), "box");
    expect_values(run_one(shape, "y = avg_pool(x, " + call + ");", x), outputs(s), pooled(s, x.data, Pool::Average),
                  "avg_pool");
    const std::vector<double> best = pooled(s, x.data, Pool::Max);
    expect_values(run_one(shape, "y = max_pool(x, " + call + ");", x), outputs(s), best, "max_pool");
    // The largest that a window sees is what sample finds at its position.
    if (s.border != "ignore" || std::ranges::all_of(best, [](double v) { return std::isfinite(v); })) {
      expect_values(run_one(shape, "i = argmax_pool(x, " + call + "); y = sample(x, i, " + call + ");", x), outputs(s),
                    best, "sample");
      expect_values(run_one(shape, "y, i = max_pool_with_index(x, " + call + ");", x), outputs(s), best,
                    "max_pool_with_index");
    }
  }
}

TEST(NnefWindows, ConvolutionsOfEveryGeometry) {
  std::mt19937 random(2);
  for (int round = 0; round < 80; ++round) {
    const std::size_t axes = 1 + static_cast<std::size_t>(round) % 2;
    Geometry s = random_geometry(random, 2 + axes, 2);
    const std::int64_t groups = 1 + round % 3 % 2, each_in = 1 + round / 2 % 2, each_out = 2;
    s.extents[1] = groups * each_in;
    Ints filter = {groups * each_out, each_in};
    filter.insert(filter.end(), s.size.begin() + 2, s.size.end());
    const HostTensor x =
        tensor(shape_of(s.extents), random_values(random, static_cast<std::size_t>(volume(s.extents))));
    const std::vector<double> w = random_values(random, static_cast<std::size_t>(volume(filter)));
    Ints out = outputs(s);
    out[1] = filter[0];
    std::vector<double> want;
    each(out, [&](const Ints& o) {
      double total = static_cast<double>(o[1]);  // the bias
      Ints inner(filter.begin() + 1, filter.end());
      each(inner, [&](const Ints& k) {
        Ints at = {o[0], o[1] / each_out * each_in + k[0]};
        for (std::size_t i = 2; i < o.size(); ++i) {
          if (const auto p =
                  position(o[i] * s.stride[i] + k[i - 1] * s.dilation[i] - s.before[i], s.extents[i], s.border))
            at.push_back(*p);
        }
        Ints tap = k;
        tap.insert(tap.begin(), o[1]);
        if (at.size() == o.size())
          total += x.data[static_cast<std::size_t>(offset(at, s.extents))] *
                   w[static_cast<std::size_t>(offset(tap, filter))];
      });
      want.push_back(total);
    });
    std::string values, bias;
    for (const double v : w) values += (values.empty() ? "" : ", ") + formatted("{:.6f}", v);
    for (std::int64_t i = 0; i < filter[0]; ++i) bias += (i == 0 ? "" : ", ") + std::to_string(i) + ".0";
    const std::string body = "w = constant(shape = " + list(filter) + ", value = [" + values +
                             "]);\nb = constant(shape = [1, " + std::to_string(filter[0]) + "], value = [" + bias +
                             "]);\ny = conv(x, w, b, groups = " + std::to_string(groups) + ", " + arguments(s, 2) +
                             ");";
    SCOPED_TRACE("round " + std::to_string(round) + ": " + body);
    expect_values(run_one(list(s.extents), body, x), out, want, "conv");
  }
}

/// y = deconv(x) is the adjoint of x = conv(y): every element adds to what its window saw.
TEST(NnefWindows, TransposesOfEveryGeometry) {
  std::mt19937 random(3);
  int done = 0;
  for (int round = 0; round < 200; ++round) {
    const std::size_t axes = 1 + static_cast<std::size_t>(round) % 2;
    Geometry s = random_geometry(random, 2 + axes, 2);  // extents: of the result
    s.border = round % 2 == 0 ? "constant" : "ignore";
    Ints in = outputs(s);
    bool fits = true;
    for (std::size_t i = 2; i < in.size(); ++i)
      fits = fits && in[i] >= 1 && s.extents[i] + s.before[i] + s.after[i] >= (s.size[i] - 1) * s.dilation[i] + 1;
    if (!fits) continue;
    ++done;
    const std::int64_t groups = s.extents[1], from = groups * 2;  // [N, 2 groups] -> [N, groups * 1]
    Ints filter = {from, 1};
    filter.insert(filter.end(), s.size.begin() + 2, s.size.end());
    in[1] = from;
    const HostTensor x = tensor(shape_of(in), random_values(random, static_cast<std::size_t>(volume(in))));
    const std::vector<double> w = random_values(random, static_cast<std::size_t>(volume(filter)));
    std::vector<double> want(static_cast<std::size_t>(volume(s.extents)), 0.5),
        boxes(static_cast<std::size_t>(volume(s.extents)), 0);
    each(in, [&](const Ints& o) {
      Ints inner(filter.begin() + 2, filter.end());
      each(inner, [&](const Ints& k) {
        Ints at = {o[0], o[1] / 2};
        for (std::size_t i = 2; i < o.size(); ++i) {
          const std::int64_t p = o[i] * s.stride[i] + k[i - 2] * s.dilation[i] - s.before[i];
          if (p >= 0 && p < s.extents[i]) at.push_back(p);
        }
        Ints tap = {o[1], 0};
        tap.insert(tap.end(), k.begin(), k.end());
        if (at.size() != o.size()) return;
        const double v = x.data[static_cast<std::size_t>(offset(o, in))];
        want[static_cast<std::size_t>(offset(at, s.extents))] += v * w[static_cast<std::size_t>(offset(tap, filter))];
        if (o[1] % 2 == 0) boxes[static_cast<std::size_t>(offset(at, s.extents))] += v;
      });
    });
    std::string values;
    for (const double v : w) values += (values.empty() ? "" : ", ") + formatted("{:.6f}", v);
    const std::string body = "w = constant(shape = " + list(filter) + ", value = [" + values +
                             "]);\ny = deconv(x, w, 0.5, groups = " + std::to_string(groups) +
                             ", output_shape = " + list(s.extents) + ", " + arguments(s, 2) + ");";
    SCOPED_TRACE("round " + std::to_string(round) + ": " + body);
    expect_values(run_one(list(in), body, x), s.extents, want, "deconv");
    const std::string sums = "even = reshape(slice(reshape(x, shape = [" + std::to_string(groups) +
                             ", 2], axis_start = 1, axis_count = 1), axes = [2], begin = [0], end = [1]), shape = [" +
                             std::to_string(groups) +
                             "], axis_start = 1, axis_count = 2);\ny = debox(even, size = " + list(s.size) +
                             ", output_shape = " + list(s.extents) + ", " + arguments(s) + ");";
    expect_values(run_one(list(in), sums, x), s.extents, boxes, sums);
  }
  EXPECT_GT(done, 100);
}

TEST(NnefWindows, DeconvolutionsWithoutAnOutputShape) {
  const HostTensor x = tensor({1, 1, 3}, {1, 2, 3});
  const auto with = [&](const std::string& more) {
    return run_one("[1, 1, 3]",
                   "w = constant(shape = [1, 1, 3], value = [1.0, 10.0, 100.0]);\ny = deconv(x, w" + more + ");", x)
        .data;
  };
  EXPECT_EQ(with(", padding = [(0, 0)]"), (std::vector<double>{1, 12, 123, 230, 300}));
  EXPECT_EQ(with(""), (std::vector<double>{12, 123, 230}));
  EXPECT_EQ(with(", stride = [2], padding = [(0, 0)]"), (std::vector<double>{1, 10, 102, 20, 203, 30, 300}));
  EXPECT_EQ(with(", stride = [2]"), (std::vector<double>{1, 10, 102, 20, 203, 30}));  // all of the padding lies behind
}

TEST(NnefWindows, SeparableConvolutionsAreTwo) {
  const HostTensor x = tensor({1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  const std::string weights =
      "p = constant(shape = [2, 1, 3], value = [1.0, 2.0, 1.0, 0.5, -1.0, 0.5]);\nq = constant(shape = [3, 2, 1], "
      "value = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);\n";
  EXPECT_EQ(run_one("[1, 2, 4]", weights + "y = separable_conv(x, p, q, 1.0, stride = [2]);", x).data,
            run_one("[1, 2, 4]", weights + "y = conv(conv(x, p, stride = [2], groups = 0), q, 1.0);", x).data);
  const std::string back =
      "p = constant(shape = [3, 1, 3], value = [1.0, 2.0, 1.0, 0.5, -1.0, 0.5, 1.0, 0.0, 2.0]);\nq = constant(shape = "
      "[2, 3, 1], value = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);\n";
  EXPECT_EQ(run_one("[1, 2, 4]", back + "y = separable_deconv(x, p, q, 1.0, stride = [2]);", x).data,
            run_one("[1, 2, 4]", back + "y = deconv(deconv(x, q), p, 1.0, stride = [2], groups = 0);", x).data);
}

TEST(NnefWindows, DesampleUndoesSample) {
  const HostTensor x = tensor({1, 1, 4, 5}, {1, 9, 2, 3, 4, 5, 6, 7, 8, 0, 3, 1, 4, 1, 5, 9, 2, 6, 5, 3});
  const std::string call =
      "size = [1, 1, 2, 2], stride = [1, 1, 2, 2], padding = [(0, 0), (0, 0), (0, 0), (0, 1)], border = 'ignore'";
  const HostTensor y = run_one(
      "[1, 1, 4, 5]",
      "i = argmax_pool(x, " + call + "); m = sample(x, i, " + call + ");\ny = desample(m, i, " + call + ");", x);
  EXPECT_EQ(y.type.shape, (Shape{1, 1, 4, 5}));
  EXPECT_EQ(y.data, (std::vector<double>{0, 9, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0, 0, 0, 5, 9, 0, 6, 0, 0}));
  // Gaps between windows, and padding before.
  const std::string wide =
      "size = [1, 1, 1, 2], stride = [1, 1, 2, 3], padding = [(0, 0), (0, 0), (0, 0), (1, 0)], border = 'ignore', ";
  const HostTensor z = run_one("[1, 1, 4, 5]",
                               "i = argmax_pool(x, " + wide + "dilation = []); m = sample(x, i, " + wide +
                                   "dilation = []);\ny = desample(m, i, " + wide + "output_shape = [1, 1, 4, 5]);",
                               x);
  EXPECT_EQ(z.data, (std::vector<double>{1, 0, 0, 3, 0, 0, 0, 0, 0, 0, 3, 0, 4, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(NnefWindows, Padding) {
  const HostTensor x = tensor({1, 3}, {1, 2, 3});
  const auto with = [&](const std::string& more) {
    return run_one("[1, 3]", "y = pad(x, padding = [(0, 0), (2, 3)], " + more + ");", x).data;
  };
  EXPECT_EQ(with("value = 7.0"), (std::vector<double>{7, 7, 1, 2, 3, 7, 7, 7}));
  EXPECT_EQ(with("border = 'replicate'"), (std::vector<double>{1, 1, 1, 2, 3, 3, 3, 3}));
  EXPECT_EQ(with("border = 'reflect'"), (std::vector<double>{3, 2, 1, 2, 3, 2, 1, 2}));
  EXPECT_EQ(with("border = 'reflect-even'"), (std::vector<double>{2, 1, 1, 2, 3, 3, 2, 1}));
  EXPECT_EQ(run_one("[1, 3]", "y = pad(x, padding = [(1, 0), (-1, 1)]);", x).data,
            (std::vector<double>{0, 0, 0, 2, 3, 0}));
  EXPECT_ERROR(run_one("[1, 3]", "y = pad(x, padding = [(0, 0), (-2, -1)]);", x), ErrorCode::CorruptFile,
               "pad: padding (-2, -1) leaves nothing of axis 1 of extent 3");
}

}  // namespace
}  // namespace aeshna

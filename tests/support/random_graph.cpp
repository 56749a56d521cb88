#include "support/random_graph.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "aeshna/ops.h"
#include "base/format.h"
#include "base/philox.h"
#include "ir/leaf.h"
#include "ir/op.h"
#include "support/graph_values.h"

namespace aeshna::test {

namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kMaxElements = 1500;
constexpr double kMaxMagnitude = 8;

/// A value and an interval that holds it.
struct Item {
  Value v;
  double low = 0, high = 0;
  double magnitude() const { return std::max(std::fabs(low), std::fabs(high)); }
};

class Generator {
 public:
  Generator(Graph& g, TensorMap& leaves, std::uint64_t seed, const RandomGraphOptions& options)
      : g_(g), leaves_(leaves), rng_(seed, 0x72676E), seed_(seed), options_(options) {}

  void run() {
    const int starts = 2 + below(3);
    for (int i = 0; i < starts; ++i) keep(new_float(random_shape(), true));
    for (int i = 0; i < options_.ops; ++i) step();
    outputs();
  }

 private:
  // ---- chance

  int below(int n) { return static_cast<int>(rng_.next_below(static_cast<std::uint64_t>(n))); }
  bool chance(int percent) { return below(100) < percent; }
  double between(double low, double high) { return low + (high - low) * rng_.next_uniform(); }
  template <class T>
  const T& one_of(const std::vector<T>& values) {
    return values[static_cast<std::size_t>(below(static_cast<int>(values.size())))];
  }

  // ---- leaves and the pool

  std::int64_t extent() { return chance(3) ? 0 : one_of<std::int64_t>({1, 1, 3, 3, 5, 7, 17}); }
  Shape random_shape(int min_rank = 0) {
    Shape shape;
    do {
      Ints dims(static_cast<std::size_t>(min_rank + below(4 - min_rank % 4)));
      for (std::int64_t& d : dims) d = extent();
      shape = Shape(dims);
    } while (shape.elements() > kMaxElements);
    return shape;
  }

  void fill(Value leaf, double low, double high) {
    HostTensor values(leaf.type());
    for (double& v : values.data) {
      v = is_float(leaf.dtype()) ? round_to(leaf.dtype(), between(low, high))
                                 : low + below(static_cast<int>(high - low) + 1);
    }
    leaves_.insert_or_assign(leaf.node().name, std::move(values));
  }
  Item new_float(const Shape& shape, bool parameter) {
    const double low = chance(30) ? 0.5 : -2, high = 2;
    const std::string name = formatted("{}{}", parameter ? "p" : "x", leaves_.size());
    const Value leaf = parameter ? g_.parameter(name, shape) : g_.input(name, shape);
    fill(leaf, low, high);
    return {leaf, low, high};
  }
  Item new_labels(const Shape& shape, std::int64_t classes) {
    const Value leaf = g_.input(formatted("i{}", leaves_.size()), shape, DType::i32);
    fill(leaf, 0, static_cast<double>(classes - 1));
    return {leaf, 0, static_cast<double>(classes - 1)};
  }
  Item new_bool(const Shape& shape) {
    const Value leaf = g_.input(formatted("b{}", leaves_.size()), shape, DType::boolean);
    fill(leaf, 0, 1);
    return {leaf, 0, 1};
  }

  void keep(Item item) {
    if (item.v.shape().elements() > kMaxElements) return;
    if (item.v.dtype() == DType::boolean) {
      bools_.push_back(item);
    } else if (is_float(item.v.dtype())) {
      floats_.push_back(bounded(item, kMaxMagnitude));
    } else {
      ints_.push_back(item);
    }
  }
  /// Recent values are taken more often, so that graphs become deep.
  const Item& pick(const std::vector<Item>& pool) {
    const int n = static_cast<int>(pool.size());
    return pool[static_cast<std::size_t>(chance(60) ? n - 1 - below(std::min(n, 4)) : below(n))];
  }
  Item any_float() { return pick(floats_); }
  Item any_bool() { return bools_.empty() || chance(20) ? new_bool(random_shape()) : pick(bools_); }
  Item float_of_rank(int min_rank, bool nonempty = false) {
    for (int i = 0; i < 8; ++i) {
      const Item item = any_float();
      if (item.v.shape().rank() >= min_rank && !(nonempty && item.v.shape().elements() == 0)) return item;
    }
    for (;;) {
      const Shape shape = random_shape(min_rank);
      if (!(nonempty && shape.elements() == 0)) return new_float(shape, chance(50));
    }
  }
  static bool broadcastable(const Shape& a, const Shape& b) {
    for (int i = 1; i <= std::min(a.rank(), b.rank()); ++i) {
      const std::int64_t x = a[a.rank() - i], y = b[b.rank() - i];
      if (x != y && x != 1 && y != 1) return false;
    }
    return broadcast_shapes(a, b).elements() <= kMaxElements;
  }
  /// A value that broadcasts against `shape`.
  Item partner(const Shape& shape) {
    for (int i = 0; i < 6; ++i) {
      const Item item = any_float();
      if (broadcastable(item.v.shape(), shape)) return item;
    }
    const int drop = below(shape.rank() + 1);
    Ints dims(shape.begin() + drop, shape.end());
    for (std::int64_t& d : dims) d = chance(30) ? 1 : d;
    return new_float(Shape(dims), chance(50));
  }

  // ---- ranges

  Item bounded(Item x, double limit) {
    if (x.magnitude() <= limit) return x;
    const double factor = std::exp2(-std::ceil(std::log2(x.magnitude() / limit)));
    return {x.v * factor, x.low * factor, x.high * factor};
  }
  Item positive(Item x) {
    if (x.low >= 0.25) return x;
    if (chance(50)) {
      x = bounded(x, 2);
      return {x.v * x.v + 0.5, 0.5, x.magnitude() * x.magnitude() + 0.5};
    }
    return {abs(x.v) + 0.5, 0.5, x.magnitude() + 0.5};
  }
  static Item monotone(Item x, Value v, double (*f)(double)) { return {v, f(x.low), f(x.high)}; }

  // ---- ops

  void unary() {
    const Item x = any_float(), small = bounded(x, 3);
    switch (below(24)) {
      case 0:
        return keep({-x.v, -x.high, -x.low});
      case 1:
        return keep({abs(x.v), 0, x.magnitude()});
      case 2:
        return keep({sign(x.v), -1, 1});
      case 3:
        return keep(monotone(small, exp(small.v), std::exp));
      case 4: {
        const Item p = positive(x);
        return keep(monotone(p, log(p.v), std::log));
      }
      case 5: {
        const Item p = positive(x);
        return keep(monotone(p, log1p(p.v), std::log1p));
      }
      case 6:
        return keep(monotone(small, expm1(small.v), std::expm1));
      case 7: {
        const Item p = positive(x);
        return keep(monotone(p, sqrt(p.v), std::sqrt));
      }
      case 8: {
        const Item p = positive(x);
        return keep({rsqrt(p.v), 1 / std::sqrt(p.high), 1 / std::sqrt(p.low)});
      }
      case 9: {
        const Item p = positive(x);
        return keep({recip(p.v), 1 / p.high, 1 / p.low});
      }
      case 10:
        return keep({sin(x.v), -1, 1});
      case 11:
        return keep({cos(x.v), -1, 1});
      case 12:
        return keep({tanh(x.v), -1, 1});
      case 13:
        return keep({sigmoid(x.v), 0, 1});
      case 14:
        return keep({erf(x.v), -1, 1});
      case 15:
        return keep({relu(x.v), 0, std::max(x.high, 0.0)});
      case 16:
        return keep({silu(x.v), -0.3, std::max(x.high, 0.0)});
      case 17:
        return keep({gelu_erf(x.v), -0.2, std::max(x.high, 0.0)});
      case 18:
        return keep({gelu_tanh(x.v), -0.2, std::max(x.high, 0.0)});
      case 19:
        return keep({softplus(x.v), 0, std::max(x.high, 0.0) + 0.7});
      case 20:
        return keep({floor(x.v), x.low - 1, x.high});
      case 21:
        return keep({ceil(x.v), x.low, x.high + 1});
      case 22:
        return keep({round(x.v), x.low - 1, x.high + 1});
      default:
        return options_.stop_gradient ? keep({stop_gradient(x.v), x.low, x.high}) : keep({tanh(x.v), -1, 1});
    }
  }

  void binary() {
    Item a = any_float(), b = partner(a.v.shape());
    if (chance(50)) std::swap(a, b);
    switch (below(9)) {
      case 0:
        return keep({a.v + b.v, a.low + b.low, a.high + b.high});
      case 1:
        return keep({a.v - b.v, a.low - b.high, a.high - b.low});
      case 2: {
        const double m = a.magnitude() * b.magnitude();
        return keep({a.v * b.v, -m, m});
      }
      case 3: {
        b = positive(b);
        const double m = a.magnitude() / b.low;
        return keep({a.v / b.v, -m, m});
      }
      case 4: {
        a = bounded(positive(a), 4);
        if (a.low < 0.25) a = {a.v + 0.25, a.low + 0.25, a.high + 0.25};
        if (chance(50)) {
          const double exponent = one_of<double>({2, 3, 1, 0.5, -1});
          return keep({pow(a.v, exponent), 0, std::max(std::pow(a.low, exponent), std::pow(a.high, exponent))});
        }
        b = bounded(b, 2);
        return keep({pow(a.v, b.v), 0, 16});
      }
      case 5:
        return keep({maximum(a.v, b.v), std::max(a.low, b.low), std::max(a.high, b.high)});
      case 6:
        return keep({minimum(a.v, b.v), std::min(a.low, b.low), std::min(a.high, b.high)});
      case 7:
        b = positive(b);
        return keep({mod(a.v, b.v), 0, b.high});
      default:
        b = positive(b);
        return keep({fmod(a.v, b.v), -b.high, b.high});
    }
  }

  void with_number() {
    const Item x = any_float();
    const double c = one_of<double>({1, -1, 0, 0.5, 2, -3});
    switch (below(4)) {
      case 0:
        return keep({x.v + c, x.low + c, x.high + c});
      case 1:
        return keep({c - x.v, c - x.high, c - x.low});
      case 2: {
        const double m = x.magnitude() * std::fabs(c);
        return keep({x.v * c, -m, m});
      }
      default:
        return keep({clamp(x.v, -1, 0.75), std::max(x.low, -1.0), std::min(std::max(x.high, -1.0), 0.75)});
    }
  }

  void logic() {
    const Item a = any_float(), b = partner(a.v.shape()), p = any_bool();
    switch (below(11)) {
      case 0:
        return keep({less(a.v, b.v), 0, 1});
      case 1:
        return keep({less_equal(a.v, b.v), 0, 1});
      case 2:
        return keep({greater(a.v, b.v), 0, 1});
      case 3:
        return keep({greater_equal(a.v, b.v), 0, 1});
      case 4:
        return keep({chance(50) ? equal(a.v, b.v) : not_equal(a.v, b.v), 0, 1});
      case 5:
        return keep({is_finite(a.v), 0, 1});
      case 6:
        return keep({logical_not(p.v), 0, 1});
      case 7: {
        const Value q = new_bool(p.v.shape()).v;
        const int kind = below(3);
        return keep({kind == 0 ? logical_and(p.v, q) : kind == 1 ? logical_or(p.v, q) : logical_xor(p.v, q), 0, 1});
      }
      case 8:
        return keep({cast(p.v, DType::f32), 0, 1});
      default: {
        const Value condition =
            broadcastable(p.v.shape(), broadcast_shapes(a.v.shape(), b.v.shape())) ? p.v : less(a.v, b.v);
        return keep({select(condition, a.v, b.v), std::min(a.low, b.low), std::max(a.high, b.high)});
      }
    }
  }

  void integers() {
    if (ints_.empty() || chance(30)) {
      const Shape shape = random_shape(1);
      const int axis = below(shape.rank());
      return keep({iota(g_, shape, axis), 0, static_cast<double>(shape[axis])});
    }
    const Item x = pick(ints_);
    switch (below(5)) {
      case 0:
        return keep({cast(x.v, DType::f32), x.low, x.high});
      case 1:
        return keep({clamp(x.v + 3, 0, 9), 0, 9});
      case 2:
        return keep({mod(x.v * 5, 7), 0, 6});
      case 3:
        return keep({less(x.v, 4), 0, 1});
      default: {
        const Item f = any_float();
        return keep({cast(f.v, DType::i32), f.low - 1, f.high + 1});
      }
    }
  }

  Ints some_axes(const Shape& shape) {
    Ints axes;
    for (int d = 0; d < shape.rank(); ++d) {
      if (chance(45)) axes.push_back(d);
    }
    if (axes.empty() && shape.rank() > 0) axes.push_back(below(shape.rank()));
    return axes;
  }

  void reduction() {
    const Item x = float_of_rank(chance(90) ? 1 : 0, true);
    const Shape shape = x.v.shape();
    const Ints axes = some_axes(shape);
    const bool keepdims = chance(40);
    double n = 1;
    for (const std::int64_t axis : axes) n *= static_cast<double>(shape[static_cast<int>(axis)]);
    switch (below(8)) {
      case 0:
        return keep({sum(x.v, axes, keepdims), n * x.low, n * x.high});
      case 1:
        return keep({mean(x.v, axes, keepdims), x.low, x.high});
      case 2:
        return keep({reduce_max(x.v, axes, keepdims), x.low, x.high});
      case 3:
        return keep({reduce_min(x.v, axes, keepdims), x.low, x.high});
      case 4: {
        const Value near_one = tanh(x.v) * 0.05 + 1;
        return n > 40 ? keep({near_one, 0.9, 1.1}) : keep({prod(near_one, axes, keepdims), 0, 7});
      }
      case 5:
        return keep({logsumexp(x.v, axes, keepdims), x.low + std::log(n), x.high + std::log(n)});
      case 6:
        return keep({sum(float_of_rank(0).v, {}, keepdims), -kMaxMagnitude * kMaxElements,
                     kMaxMagnitude * kMaxElements});  // empty ones too
      default: {
        if (shape.rank() == 0) return;
        const int axis = below(shape.rank());
        return keep({chance(50) ? argmax(x.v, axis, keepdims) : argmin(x.v, axis, keepdims), 0,
                     static_cast<double>(shape[axis])});
      }
    }
  }

  void product() {
    const Item a = float_of_rank(2);
    const Shape shape = a.v.shape();
    const int last = shape.rank() - 1;
    const bool ta = chance(25), tb = chance(50);
    const std::int64_t k = shape[ta ? last - 1 : last], n = extent();
    Ints dims;
    if (chance(40)) {  // a batch of its own, or one that broadcasts
      for (int d = below(last); d < last - 1; ++d) dims.push_back(chance(30) ? 1 : shape[d]);
    }
    dims.push_back(tb ? n : k);
    dims.push_back(tb ? k : n);
    if (Shape(dims).elements() > kMaxElements) return;
    const Item b = new_float(Shape(dims), chance(70));
    const double m = std::max(1.0, static_cast<double>(k)) * a.magnitude() * b.magnitude();
    if (!ta && tb && dims.size() == 2 && chance(50)) {
      const Item bias = new_float({n}, true);
      return keep({linear(a.v, b.v, bias.v), -m - 2, m + 2});
    }
    keep({matmul(a.v, b.v, ta, tb), -m, m});
  }

  /// Of new leaves: extents that windows, strides and groups fit.
  void convolution() {
    const int n = 1 + below(2);
    const std::int64_t groups = chance(30) ? 2 : 1, per_group = 1 + below(3), outputs = groups * (1 + below(3));
    Ints x_dims{1 + below(2), groups * per_group}, w_dims{outputs, per_group};
    ConvOptions options{.groups = groups};
    for (int i = 0; i < n; ++i) {
      const std::int64_t kernel = 1 + below(3), dilation = 1 + below(2), before = below(3), after = below(2);
      const std::int64_t span = dilation * (kernel - 1) + 1;
      x_dims.push_back(std::max<std::int64_t>(span - before - after, 1) + below(6));
      w_dims.push_back(kernel);
      options.stride.push_back(1 + below(3));
      options.dilation.push_back(dilation);
      options.padding.push_back(before);
      options.padding_after.push_back(after);
    }
    const Item w = new_float(Shape(w_dims), chance(70));
    const double terms = static_cast<double>(w.v.shape().elements());
    if (chance(30)) {
      Ints y_dims = x_dims;
      y_dims[1] = outputs;
      for (std::int64_t& p : options.padding) p = 0;
      for (std::int64_t& p : options.padding_after) p = 0;
      const Item y = new_float(Shape(y_dims), chance(50));
      const double m = terms * w.magnitude() * y.magnitude();
      return keep({conv_transpose(y.v, w.v, options), -m, m});
    }
    const Item x = new_float(Shape(x_dims), chance(50));
    double m = terms * w.magnitude() * x.magnitude();
    const Value y = conv(x.v, w.v, options);
    if (chance(30)) {
      const Item dy = new_float(y.shape(), false);
      m = static_cast<double>(y.shape().elements()) * dy.magnitude() * x.magnitude();
      Attrs attrs = y.node().attrs;
      attrs.set("kernel", Ints(w_dims.begin() + 2, w_dims.end()));
      const Value operands[] = {x.v, dy.v};
      return keep({g_.add("conv_weight_gradient", operands, attrs, SourceLine(Loc::current())), -m, m});
    }
    keep({y, -m, m});
  }

  void attention_op() {
    const std::int64_t kv = 1 + below(2), batch = 1 + below(2), heads = kv * (1 + below(2)), d = 1 + below(9);
    const std::int64_t queries = 1 + below(9), keys = chance(50) ? queries : 1 + below(17);
    const Item q = new_float({batch, heads, queries, d}, chance(50)), k = new_float({batch, kv, keys, d}, chance(50)),
               v = new_float({batch, kv, keys, d}, chance(50));
    AttentionOptions options;
    options.causal = chance(50);
    if (options.causal && keys != queries) options.query_offset = below(4);
    if (options.causal && chance(40)) options.window = 1 + below(4);
    if (chance(30)) options.mask = new_float({queries, keys}, chance(50)).v;
    const double m = v.magnitude();
    keep({attention(q.v, k.v, v.v, options), -m, m});
  }

  void order() {
    const Item x = float_of_rank(1);
    const int axis = below(x.v.shape().rank());
    const std::int64_t count = x.v.shape()[axis];
    const double m = x.magnitude() * static_cast<double>(std::max<std::int64_t>(count, 1));
    switch (below(5)) {
      case 0:
        return keep({cumsum(x.v, axis, chance(50), chance(50)), -m, m});
      case 1: {
        const SortResult sorted = sort(x.v, axis, chance(50));
        return keep({sorted.values, x.low, x.high});
      }
      case 2: {
        if (count == 0) return;
        return keep({topk(x.v, 1 + below(static_cast<int>(count)), axis, chance(50)).values, x.low, x.high});
      }
      case 3: {
        const Item rows = new_float({1 + below(2), 1 + below(5), 2 * (1 + below(4))}, chance(50));
        const double bound = 1.5 * rows.magnitude();
        return keep({rope(rows.v, {.interleaved = chance(50), .offset = below(9)}), -bound, bound});
      }
      default: {
        const std::int64_t batch = 1 + below(2), heads = 1 + below(2), capacity = 3 + below(4), width = 1 + below(5), count_new = 1 + below(3);
        const Item cache = new_float({batch, heads, capacity, width}, chance(50)), fresh = new_float({batch, heads, count_new, width}, chance(50));
        const bool ring = chance(50);
        const Value position = g_.input(formatted("position{}", leaves_.size()), {batch}, DType::i32);
        fill(position, 0, static_cast<double>(capacity - count_new));
        const Value written = cache_write(cache.v, fresh.v, position, ring);
        const double bound = std::max(cache.magnitude(), fresh.magnitude());
        keep({written, -bound, bound});
        if (chance(60)) keep({cache_read(written, position, count_new, ring), -bound, bound});
      }
    }
  }

  void view() {
    const Item x = float_of_rank(1);
    if (chance(40)) return keep({flip(x.v, {below(x.v.shape().rank())}), x.low, x.high});
    WindowOptions options;
    std::int64_t elements = x.v.shape().elements();
    const int n = 1 + below(std::min(2, x.v.shape().rank()));
    for (int i = 0; i < n; ++i) {
      const std::int64_t extent = x.v.shape()[x.v.shape().rank() - n + i];
      const std::int64_t kernel = 1 + below(3), dilation = 1 + below(2), before = below(2), stride = 1 + below(3);
      const std::int64_t after = std::max<std::int64_t>(dilation * (kernel - 1) + 1 - extent - before, below(2));
      options.kernel.push_back(kernel);
      options.dilation.push_back(dilation);
      options.stride.push_back(stride);
      options.before.push_back(before);
      options.after.push_back(after);
      elements *= kernel * (before + after + 1);
    }
    if (elements > kMaxElements || x.v.shape().rank() + n > 5) return;
    keep({windows(x.v, options), std::min(x.low, 0.0), std::max(x.high, 0.0)});
  }

  void rows() {
    const Item x = float_of_rank(1, true);
    const int axis = below(x.v.shape().rank());
    const double n = static_cast<double>(x.v.shape()[axis]);
    if (chance(50)) return keep({softmax(x.v, axis), 0, 1});
    keep({log_softmax(x.v, axis), x.low - x.high - std::log(n), 0});
  }

  void pools() {
    const int spatial = 1 + below(2);
    Ints dims{1 + below(2), 1 + below(3)};
    PoolOptions options;
    for (int d = 0; d < spatial; ++d) {
      dims.push_back(one_of<std::int64_t>({3, 4, 5, 7}));
      options.kernel.push_back(1 + below(3));
      options.stride.push_back(1 + below(3));
      options.padding.push_back(below(static_cast<int>(options.kernel.back()) / 2 + 1));
    }
    options.ceil_mode = chance(40);
    options.count_include_pad = chance(50);
    const Shape shape(dims);
    const Item flat = float_of_rank(0, true);
    const Item x = flat.v.shape().elements() == shape.elements() ? Item{reshape(flat.v, dims), flat.low, flat.high}
                                                                 : new_float(shape, chance(50));
    const double m = x.magnitude();
    if (chance(50)) return keep({avg_pool(x.v, options), -m, m});
    const MaxPoolResult y = max_pool_with_indices(x.v, options);
    if (chance(20)) keep({y.indices, 0, static_cast<double>(shape.elements())});
    keep({y.values, x.low, x.high});
  }

  void norms() {
    const double eps = 0.5;  // rows of nearly equal values keep a bounded slope
    const int kind = below(6);
    const Item x = float_of_rank(kind < 2 ? 1 : kind == 3 ? 3 : 2, true);
    const Shape shape = x.v.shape();
    const auto parameter = [&](Shape params) { return new_float(params, chance(70)); };
    const auto kept = [&](Value y, double rows, double scale) {  // |x - mean| / deviation is at most sqrt(count)
      const double m = std::sqrt(rows) * scale + 2;
      keep({y, -m, m});
    };
    const double count = static_cast<double>(shape.elements());
    if (kind < 2) {
      const int axes = 1 + below(shape.rank());
      const Shape params(shape.dims().last(static_cast<std::size_t>(axes)));
      const Item scale = parameter(params);
      if (kind == 0) return kept(rms_norm(x.v, scale.v, eps, axes), count, scale.magnitude());
      std::optional<Value> bias;
      if (chance(50)) bias = parameter(params).v;
      return kept(layer_norm(x.v, scale.v, bias, eps, axes), count, scale.magnitude());
    }
    const Item scale = parameter({shape[1]}), bias = parameter({shape[1]});
    if (kind == 2) return kept(group_norm(x.v, chance(50) ? 1 : shape[1], scale.v, bias.v, eps), count, scale.magnitude());
    if (kind == 3) return kept(instance_norm(x.v, scale.v, bias.v, eps), count, scale.magnitude());
    if (kind == 4 && shape.elements() > shape[1]) {
      const Value operands[] = {x.v, scale.v, bias.v};
      return kept(g_.add("batch_norm_training", operands, {{"epsilon", eps}}, SourceLine(Loc::current())), count,
                  scale.magnitude());
    }
    const Item mean = parameter({shape[1]}), variance = positive(parameter({shape[1]}));
    kept(batch_norm(x.v, mean.v, variance.v, scale.v, bias.v, eps), 1, (x.magnitude() + 2) * scale.magnitude() * 2);
  }

  void loss_op() {
    const Reduction reduction = one_of<Reduction>({Reduction::Mean, Reduction::Sum, Reduction::None});
    const Item x = float_of_rank(1, true);
    const Shape shape = x.v.shape();
    const double n = reduction == Reduction::Sum ? static_cast<double>(shape.elements()) : 1;
    const int kind = below(5);
    if (kind < 2) {
      const int last = shape.rank() - 1;
      if (kind == 0) {
        const Item labels = new_labels(Shape(shape.dims().first(static_cast<std::size_t>(last))), shape[last]);
        return keep({cross_entropy(x.v, labels.v, reduction, chance(30) ? 0 : -100), 0, n * (2 * x.magnitude() + 3)});
      }
      const Value p = softmax(new_float(shape, false).v);
      return keep({cross_entropy(x.v, p, reduction), 0, n * (2 * x.magnitude() + 3)});
    }
    const Item t = new_float(shape, false);
    const double m = x.magnitude() + 2;
    if (kind == 2) return keep({mse(x.v, t.v, reduction), 0, n * m * m});
    if (kind == 3) return keep({l1(x.v, t.v, reduction), 0, n * m});
    keep({bce_with_logits(x.v, sigmoid(t.v), reduction), 0, n * m});
  }

  void movement() {
    const Item x = any_float();
    const Shape shape = x.v.shape();
    const auto same = [&](Value v) { keep({v, x.low, x.high}); };
    switch (below(6)) {
      case 0:
        return same(reshape(x.v, reshaped(shape)));
      case 1: {
        Ints axes;
        for (int d = 0; d < shape.rank(); ++d) axes.insert(axes.begin() + below(d + 1), d);
        return same(permute(x.v, axes));
      }
      case 2: {
        const Ints axes = some_axes(shape);
        if (axes.empty()) return;
        Ints starts, ends, steps;
        for (const std::int64_t axis : axes) {
          const int e = static_cast<int>(shape[static_cast<int>(axis)]);
          const int start = e == 0 ? 0 : below(e);
          starts.push_back(start);
          ends.push_back(start + below(e - start + 1));
          if (chance(70)) ends.back() = e;
          steps.push_back(1 + below(3));
        }
        return same(slice(x.v, axes, starts, ends, steps));
      }
      case 3: {
        if (shape.rank() == 0) return;
        const int axis = below(shape.rank());
        const Item y = new_float(shape.with(axis, extent()), chance(50));
        if (x.v.shape().elements() + y.v.shape().elements() > kMaxElements) return;
        const double low = std::min(x.low, y.low), high = std::max(x.high, y.high);
        return keep({chance(70) ? concat({x.v, y.v}, axis) : concat({y.v, x.v, x.v}, axis), low, high});
      }
      case 4: {
        Ints dims(shape.begin(), shape.end());
        for (std::int64_t& d : dims) d = d == 1 && chance(60) ? extent() : d;
        if (chance(50) && dims.size() < 5) dims.insert(dims.begin(), extent());
        if (Shape(dims).elements() > kMaxElements) return;
        return same(expand(x.v, dims));
      }
      default: {
        Ints before, after;
        for (int d = 0; d < shape.rank(); ++d) {
          before.push_back(below(3));
          after.push_back(below(3));
        }
        const double value = one_of<double>({0, 1.5});
        return keep({pad(x.v, before, after, value), std::min(x.low, value), std::max(x.high, value)});
      }
    }
  }
  /// Another shape with as many elements: flat, split, joined or with ones put in.
  Ints reshaped(const Shape& shape) {
    Ints dims(shape.begin(), shape.end());
    if (dims.size() >= 2 && chance(60)) {
      const auto at = static_cast<std::size_t>(below(static_cast<int>(dims.size()) - 1));
      dims[at] *= dims[at + 1];
      dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    if (dims.size() < 5 && chance(50)) {
      for (std::size_t i = 0; i < dims.size(); ++i) {
        for (const std::int64_t f : {3, 5, 7}) {
          if (dims[i] > f && dims[i] % f == 0) {
            dims[i] /= f;
            dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(i), f);
            return dims;
          }
        }
      }
      dims.insert(dims.begin() + below(static_cast<int>(dims.size()) + 1), 1);
    }
    return dims;
  }

  void indexing() {
    const Item x = float_of_rank(1, true);
    const Shape shape = x.v.shape();
    const int axis = below(shape.rank());
    const std::int64_t n = 1 + below(5), extent_of_axis = shape[axis];
    const auto lanes = [&] {  // indices of one list, or of lists that vary along some axes
      Shape index = shape.with(axis, n);
      for (int d = 0; d < index.rank(); ++d) {
        if (d != axis && chance(50)) index = index.with(d, 1);
      }
      return new_labels(index, extent_of_axis).v;
    };
    switch (below(7)) {
      case 0:
        return keep({gather(x.v, new_labels(chance(50) ? Shape{n} : Shape{n, 2}, extent_of_axis).v, axis), x.low, x.high});
      case 1:
        return keep({gather_elements(x.v, lanes(), axis), x.low, x.high});
      case 2: {
        const Value rows = reshape(x.v, {shape[0], -1});
        return keep({embedding(rows, new_labels({n, 2}, shape[0]).v), x.low, x.high});
      }
      case 3:
        return keep({one_hot(new_labels({n}, 4).v, 4), 0, 1});
      case 4: {
        const Item u = new_float(shape.with(axis, n), chance(50));
        return keep({scatter(x.v, lanes(), u.v, axis), std::min(x.low, u.low), std::max(x.high, u.high)});
      }
      case 5: {
        const Item u = new_float(shape.with(axis, n), chance(50));
        const double m = static_cast<double>(n) * 2;
        return keep({scatter_add(x.v, lanes(), u.v, axis), x.low - m, x.high + m});
      }
      default: {
        Ints sizes = {1 + below(9)};
        if (shape.rank() > 1 && chance(50)) sizes.push_back(1 + below(9));
        const auto mode = one_of<ResizeMode>({ResizeMode::Nearest, ResizeMode::Linear, ResizeMode::Cubic});
        return keep({resize(x.v, sizes, {.mode = mode}), -4 * x.magnitude(), 4 * x.magnitude()});
      }
    }
  }

  void random_numbers() {
    if (!options_.random) return;
    const Shape shape = random_shape();
    if (chance(50)) return keep({random_uniform(g_, shape), 0, 1});
    if (chance(30)) {
      const Item x = any_float();
      return keep({dropout(x.v, 0.25, true), std::min(x.low, 0.0) * 4 / 3, std::max(x.high, 0.0) * 4 / 3});
    }
    if (!ints_.empty() && chance(50)) {
      const Value word = cast(pick(ints_).v, DType::u32), operands[] = {word, word + 7, word * 3};
      return keep({cast(mod(g_.add("philox", operands, {}, SourceLine()), 1000), DType::f32) * 1e-3, 0, 1});
    }
    const Value normal = random_normal(g_, shape);
    keep({clamp(normal, -3, 3), -3, 3});
  }

  void step() {
    const int kind = below(100);
    if (kind < 26) return unary();
    if (kind < 45) return binary();
    if (kind < 50) return with_number();
    if (kind < 58) return logic();
    if (kind < 62) return integers();
    if (kind < 73) return reduction();
    if (kind < 80) return chance(30) ? convolution() : options_.attention && chance(25) ? attention_op() : product();
    if (kind < 84) return chance(30) ? pools() : chance(50) ? norms() : rows();
    if (kind < 87) return loss_op();
    if (kind < 94) return chance(20) ? view() : movement();
    if (kind < 96) return indexing();
    if (kind < 98) return order();
    random_numbers();
  }

  void outputs() {
    const int n = 1 + below(3);
    for (int i = 0; i < n; ++i)
      g_.output(formatted("y{}", i),
                floats_[floats_.size() - 1 -
                        static_cast<std::size_t>(below(static_cast<int>(std::min<std::size_t>(floats_.size(), 6))))]
                    .v);
    if (!ints_.empty()) g_.output("int", pick(ints_).v);
    if (!bools_.empty()) g_.output("bool", pick(bools_).v);
    if (options_.loss) {
      const Value w = new_float({}, true).v;
      Value loss = w * w * 0.5;
      for (int i = 0; i < 4; ++i) {
        const Item x = any_float();
        if (x.v.shape().elements() > 0) loss = loss + mean(x.v) * (i % 2 == 0 ? w : w.graph().constant(0.5));
      }
      g_.output("loss", loss);
    }
    for (const Node& node : g_.nodes()) {  // states that random ops made
      if (is_state(node) && !leaves_.contains(node.name)) {
        HostTensor zero(node.results[0]);
        if (node.name == "aeshna.seed")
          zero.data = {static_cast<double>(seed_ & 0xFFFFFFFFu), static_cast<double>(seed_ >> 32)};
        leaves_.emplace(node.name, std::move(zero));
      }
    }
  }

  Graph& g_;
  TensorMap& leaves_;
  PhiloxStream rng_;
  std::uint64_t seed_;
  RandomGraphOptions options_;
  std::vector<Item> floats_, ints_, bools_;
};

// ---- expectation

double largest(const HostTensor& t) {
  double m = 0;
  for (const double v : t.data) m = std::max(m, std::isfinite(v) ? std::fabs(v) : 0);
  return m;
}

/// Absolute error that f32 execution may make in a value: a multiple of what rounding after each node made. Of one element
/// (a loss, the difference of two numbers thirty times as large) one sample of that error can vanish by luck: hence two.
double allowed_error(const HostTensor& exact, const HostTensor& nearest, const HostTensor& upward) {
  double error = 0;
  for (std::size_t i = 0; i < exact.data.size(); ++i) {
    for (const HostTensor* rounded : {&nearest, &upward}) {
      const double e = std::fabs(exact.data[i] - rounded->data[i]);
      if (std::isfinite(e)) error = std::max(error, e);
    }
  }
  return 16 * error + 3e-6 * largest(exact) + 1e-7;
}

double to_integer(double x) { return std::fabs(x - std::nearbyint(x)); }

/// Least distance of a node's arguments from where its result jumps; exact hits (a tie by construction) do not count.
double distance_to_jump(const Node& node, const std::vector<const HostTensor*>& in, const HostTensor& out) {
  const std::string& op = node.op->name;
  double least = std::numeric_limits<double>::infinity();
  const auto note = [&](double d) {
    if (d > 0) least = std::min(least, d);
  };
  if (in.empty() || !is_float(in[0]->type.dtype)) return least;
  const auto& a = in[0]->data;
  if (op == "floor" || op == "ceil" || (op == "cast" && !is_float(out.type.dtype))) {
    for (const double x : a) note(to_integer(x));
  } else if (op == "round") {
    for (const double x : a) note(to_integer(x - 0.5));
  } else if (op == "sign") {
    for (const double x : a) note(std::fabs(x));
  } else if (node.op->kind == OpKind::Pointwise && node.op->pointwise.boolean_result && in.size() == 2) {
    // Differences on the broadcast grid, by the op that makes them.
    HostTensor difference({DType::f32, out.type.shape});
    const Node sub{.op = &find_op("sub"),
                   .inputs = {},
                   .attrs = {},
                   .results = {difference.type},
                   .name = {},
                   .line = {},
                   .origins = {}};
    sub.op->eval(EvalContext{sub, in, {&difference, 1}});
    for (const double d : difference.data) note(std::fabs(d));
  } else if (op == "mod" || op == "fmod") {
    HostTensor quotient({DType::f32, out.type.shape});
    const Node div{.op = &find_op("div"),
                   .inputs = {},
                   .attrs = {},
                   .results = {quotient.type},
                   .name = {},
                   .line = {},
                   .origins = {}};
    div.op->eval(EvalContext{div, in, {&quotient, 1}});
    for (const double q : quotient.data) note(to_integer(q));
  } else if (op == "argmax" || op == "argmin") {
    std::vector<double> sorted = a;  // of the whole tensor, which is at most too careful
    std::ranges::sort(sorted);
    for (std::size_t i = 1; i < sorted.size(); ++i) note(sorted[i] - sorted[i - 1]);
  }
  return least;
}

}  // namespace

RandomGraph random_graph(std::uint64_t seed, const RandomGraphOptions& options) {
  RandomGraph result{std::make_unique<Graph>(), {}};
  Generator(*result.graph, result.leaves, seed, options).run();
  return result;
}

Expectation expectation(const Graph& graph, const TensorMap& leaves) {
  const InterpreterResult exact = interpret(graph, leaves, Rounding::Exact, true),
                          nearest = interpret(graph, leaves, Rounding::Storage, true),
                          upward = interpret(graph, leaves, Rounding::Upward, true);
  const auto allowed = [&](NodeId node, std::size_t r) {
    return allowed_error(exact.values[node][r], nearest.values[node][r], upward.values[node][r]);
  };
  Expectation result;
  std::vector<bool> undecided(graph.nodes().size(), false);
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    std::vector<const HostTensor*> inputs;
    double error = 0;
    for (const ValueId& id : node.inputs) {
      undecided[i] = undecided[i] || undecided[id.node];
      inputs.push_back(&exact.values[id.node][id.result]);
      error += allowed(id.node, id.result);
    }
    if (node.results.empty() || undecided[i]) continue;
    undecided[i] = distance_to_jump(node, inputs, exact.values[i][0]) <= error;
  }
  for (const Graph::Output& output : graph.outputs()) {
    const auto& [node, r] = output.value;
    result.tolerance[output.name] = allowed(node, r);
    if (undecided[node]) result.undecided.insert(output.name);
  }
  result.exact = exact.outputs;
  return result;
}

}  // namespace aeshna::test

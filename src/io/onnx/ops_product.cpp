// Products: matrices, Einstein sums, convolutions.
#include <algorithm>
#include <array>
#include <map>

#include "base/format.h"
#include "io/onnx/product.h"
#include "io/onnx/window.h"

namespace aeshna::onnx {

Value product(Value a, Value b) {
  if (is_float(a.dtype())) return matmul(a, b);
  if (a.shape().rank() < 1 || b.shape().rank() < 1) throw Refusal{"a product of a scalar"};
  // Integers: every product, then their sum.
  a = widen(a), b = widen(b);
  const bool row = a.shape().rank() == 1, column = b.shape().rank() == 1;
  if (row) a = reshape(a, {1, a.shape()[0]});
  if (column) b = reshape(b, {b.shape()[0], 1});
  Ints left = dims_of(a.shape()), right = dims_of(b.shape());
  left.push_back(1);
  right.insert(right.end() - 2, 1);
  Value y = sum(mul(reshape(a, left), reshape(b, right)), {-2});
  Ints dims = dims_of(y.shape());
  if (column) dims.pop_back();
  if (row) dims.erase(dims.end() - (column ? 1 : 2));
  return reshaped(y, dims);
}

namespace {

Values matmul_op(Context& c) { return {product(c.in(0), c.in(1))}; }

Values gemm(Context& c) {
  const double alpha = c.number("alpha", 1), beta = c.number("beta", 1);
  const bool ta = c.flag("transA", false), tb = c.flag("transB", false);
  c.ignore("broadcast");  // before opset 7; broadcasting is what came of it
  const Value a = c.in(0), b = c.in(1);
  if (a.shape().rank() != 2 || b.shape().rank() != 2) c.refuse("the operands are no matrices");
  Value y = is_float(a.dtype()) ? matmul(a, b, ta, tb) : product(ta ? transpose(a) : a, tb ? transpose(b) : b);
  if (alpha != 1) y = mul(y, alpha);
  if (c.has(2)) y = y + (beta != 1 ? mul(c.in(2), beta) : c.in(2));
  return {y};
}

// ---- Einstein sums

/// A tensor whose axes have names; letters, and for "..." the numbers of the axes it stands for, counted from the end.
struct Labelled {
  Value value;
  std::string labels;
  std::int64_t extent(char label) const { return value.shape()[static_cast<int>(labels.find(label))]; }
};

Labelled ordered(const Labelled& x, const std::string& labels) {
  Ints perm;
  for (const char l : labels) perm.push_back(static_cast<std::int64_t>(x.labels.find(l)));
  return {x.labels == labels ? x.value : permute(x.value, perm), labels};
}

/// The diagonal where a label stands twice.
Labelled diagonals(Labelled x, Context& c) {
  for (std::size_t i = 0; i < x.labels.size(); ++i) {
    const std::size_t j = x.labels.find(x.labels[i], i + 1);
    if (j == std::string::npos) continue;
    const std::int64_t n = x.value.shape()[static_cast<int>(i)];
    if (x.value.shape()[static_cast<int>(j)] != n)
      c.refuse(formatted("'{}' has two extents in one operand", x.labels[i]));
    Ints perm, dims;
    std::string rest;
    for (std::size_t k = 0; k < x.labels.size(); ++k) {
      if (k == i || k == j) continue;
      perm.push_back(static_cast<std::int64_t>(k));
      dims.push_back(x.value.shape()[static_cast<int>(k)]);
      rest += x.labels[k];
    }
    perm.push_back(static_cast<std::int64_t>(i));
    perm.push_back(static_cast<std::int64_t>(j));
    dims.push_back(n * n);
    const auto last = static_cast<std::int64_t>(dims.size()) - 1;
    x = {slice(reshape(permute(x.value, perm), dims), {last}, {0}, {n * n}, {n + 1}), rest + x.labels[i]};
    return diagonals(x, c);
  }
  return x;
}

/// Sums over the labels that nothing else needs.
Labelled summed(Labelled x, const std::string& needed) {
  Axes axes;
  std::string kept;
  for (std::size_t i = 0; i < x.labels.size(); ++i) {
    if (needed.find(x.labels[i]) == std::string::npos) {
      axes.push_back(static_cast<std::int64_t>(i));
    } else {
      kept += x.labels[i];
    }
  }
  return axes.empty() ? x : Labelled{sum(x.value, axes), kept};
}

Labelled contracted(const Labelled& a, const Labelled& b, const std::string& needed, Context& c) {
  std::string batch, rows, columns, inner;
  for (const char l : a.labels) {
    const bool shared = b.labels.find(l) != std::string::npos, kept = needed.find(l) != std::string::npos;
    (shared ? kept ? batch : inner : rows) += l;
  }
  for (const char l : b.labels) {
    if (a.labels.find(l) == std::string::npos) columns += l;
  }
  // A shared axis may have one element in one of them.
  const auto expanded = [&](const Labelled& x, const Labelled& other) {
    Ints dims = dims_of(x.value.shape());
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (other.labels.find(x.labels[i]) == std::string::npos) continue;
      const std::int64_t e = other.extent(x.labels[i]);
      if (dims[i] != e && dims[i] != 1 && e != 1)
        c.refuse(formatted("'{}' has {} and {} elements", x.labels[i], dims[i], e));
      dims[i] = std::max(dims[i], e);
    }
    return Labelled{dims == dims_of(x.value.shape()) ? x.value : expand(x.value, dims), x.labels};
  };
  const Labelled l = ordered(expanded(a, b), batch + rows + inner),
                 r = ordered(expanded(b, a), batch + inner + columns);
  const auto count = [](const Labelled& x, const std::string& labels) {
    std::int64_t n = 1;
    for (const char label : labels) n *= x.extent(label);
    return n;
  };
  const std::int64_t n = count(l, batch), k = count(l, inner);
  const Value y = product(reshape(l.value, {n, count(l, rows), k}), reshape(r.value, {n, k, count(r, columns)}));
  Ints dims;
  for (const char label : batch + rows) dims.push_back(l.extent(label));
  for (const char label : columns) dims.push_back(r.extent(label));
  return {reshape(y, dims), batch + rows + columns};
}

Values einsum(Context& c) {
  std::string equation;
  for (const char l : c.text("equation", "")) {
    if (l != ' ') equation += l;
  }
  const std::size_t arrow = equation.find("->");
  std::vector<std::string> terms = {""};
  for (const char l : equation.substr(0, arrow)) {
    if (l == ',') {
      terms.emplace_back();
    } else {
      terms.back() += l;
    }
  }
  if (terms.size() != c.inputs())
    c.refuse(formatted("the equation '{}' has {} terms for {} operands", equation, terms.size(), c.inputs()));
  std::string dots;  // the labels of "..." of the operand that has most there, outermost first
  std::map<char, int> uses;
  const auto labels_of = [&](const std::string& term, int rank) {
    std::string labels;
    for (std::size_t i = 0; i < term.size(); ++i) {
      if (term.compare(i, 3, "...") == 0) {
        const int hidden = rank < 0 ? static_cast<int>(dots.size()) : rank - static_cast<int>(term.size()) + 3;
        if (hidden < 0) c.refuse(formatted("the term '{}' has more labels than its operand axes", term));
        std::string some;
        for (int d = hidden; d-- > 0;) some += static_cast<char>('0' + d);
        if (some.size() > dots.size()) dots = some;
        labels += some;
        i += 2;
      } else if ((term[i] | 32) >= 'a' && (term[i] | 32) <= 'z') {
        labels += term[i];
      } else {
        c.refuse(formatted("the equation '{}'", equation));
      }
    }
    if (rank >= 0 && static_cast<int>(labels.size()) != rank)
      c.refuse(formatted("the term '{}' for an operand of rank {}", term, rank));
    return labels;
  };
  std::vector<Labelled> operands;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const std::string labels = labels_of(terms[i], c.rank(i));
    for (const char l : labels) ++uses[l];
    operands.push_back(diagonals({c.in(i), labels}, c));
  }
  std::string result;
  if (arrow != std::string::npos) {
    result = labels_of(equation.substr(arrow + 2), -1);
  } else {
    result = dots;
    for (const auto& [label, n] : uses) {
      if (n == 1 && label > '9') result += label;
    }
  }
  for (const char l : result) {
    if (!uses.contains(l) || std::ranges::count(result, l) != 1)
      c.refuse(formatted("the result of the equation '{}'", equation));
  }
  Labelled y = operands[0];
  for (std::size_t i = 0; i < operands.size(); ++i) {
    std::string needed = result;
    for (std::size_t j = i + 1; j < operands.size(); ++j) needed += operands[j].labels;
    if (i == 0) {
      y = summed(y, needed);
    } else {
      y = contracted(y, summed(operands[i], needed + y.labels), needed, c);
    }
  }
  return {ordered(y, result).value};
}

// ---- convolutions

Values conv_op(Context& c) {
  const Shape& x = c.shape(0);
  if (x.rank() < 3 || x.rank() > 5 || c.rank(1) != x.rank())
    c.refuse(formatted("{} spatial axes; 1 to 3 are supported", x.rank() - 2));
  const Geometry g = window_geometry(c, kernel_of(c, c.shape(1)), spatial(x));
  Value y = convolution(c.in(0), c.in(1), g, c.integer("group", 1));
  if (c.has(2)) {
    Ints dims(static_cast<std::size_t>(y.shape().rank()), 1);
    dims[1] = c.shape(2).elements();
    y = y + reshape(c.in(2), dims);
  }
  return {y};
}

/// Zeros between the elements of an axis: n become (n - 1) stride + 1.
Value spread(Value x, int axis, std::int64_t stride) {
  if (stride == 1) return x;
  const std::int64_t n = x.shape()[axis];
  Ints dims = dims_of(x.shape()), zero(dims.size() + 1, 0), more = zero;
  const Ints before = dims;
  dims.insert(dims.begin() + axis + 1, 1);
  more[static_cast<std::size_t>(axis) + 1] = stride - 1;
  Ints joined = before;
  joined[static_cast<std::size_t>(axis)] = n * stride;
  return slice(reshape(pad(reshape(x, dims), zero, more), joined), {axis}, {0}, {(n - 1) * stride + 1});
}

/// The transposed convolution over three axes: one over two for each depth of the kernel.
Value transposed_3d(Value x, Value w, const Geometry& g, const Ints& extra, std::int64_t groups) {
  const Shape s = x.shape();
  const std::int64_t n = s[0], c = s[1], depth = s[2];
  const Value flat = reshape(permute(x, {0, 2, 1, 3, 4}), {n * depth, c, s[3], s[4]});
  const ConvOptions options{.stride = {g.stride[1], g.stride[2]},
                            .padding = {g.before[1], g.before[2]},
                            .dilation = {g.dilation[1], g.dilation[2]},
                            .padding_after = {g.after[1], g.after[2]},
                            .output_padding = {extra[1], extra[2]},
                            .groups = groups};
  const std::int64_t full = (depth - 1) * g.stride[0] + g.span(0) + extra[0];
  Value y;
  for (std::int64_t k = 0; k < g.kernel[0]; ++k) {
    const Shape& ws = w.shape();
    const Value wk = reshape(slice(w, {2}, {k}, {k + 1}), {ws[0], ws[1], ws[3], ws[4]});
    Value part = conv_transpose(flat, wk, options);
    const Shape ps = part.shape();
    part = spread(reshape(part, {n, depth, ps[1], ps[2], ps[3]}), 1, g.stride[0]);
    const std::int64_t before = k * g.dilation[0], after = full - before - part.shape()[1];
    part = pad(part, {0, before, 0, 0, 0}, {0, after, 0, 0, 0});
    y = y ? y + part : part;
  }
  return permute(slice(y, {1}, {g.before[0]}, {full - g.after[0]}), {0, 2, 1, 3, 4});
}

Values conv_transpose_op(Context& c) {
  const Shape& x = c.shape(0);
  if (x.rank() < 3 || x.rank() > 5 || c.rank(1) != x.rank())
    c.refuse(formatted("{} spatial axes; 1 to 3 are supported", x.rank() - 2));
  const Ints extents = spatial(x);
  const std::size_t axes = extents.size();
  const Ints kernel = kernel_of(c, c.shape(1));
  const Ints one(axes, 1), zero(axes, 0);
  Geometry g{kernel, c.ints("strides", one), c.ints("dilations", one), zero, zero};
  Ints extra = c.ints("output_padding", zero);
  const Ints wanted = c.ints("output_shape"), pads = c.ints("pads");
  const std::string automatic = c.text("auto_pad", "NOTSET");
  const std::int64_t groups = c.integer("group", 1);
  if (g.stride.size() != axes || g.dilation.size() != axes || extra.size() != axes)
    c.refuse("strides, dilations or output_padding do not fit");
  for (std::size_t i = 0; i < axes; ++i) {
    if (g.stride[i] < 1 || g.dilation[i] < 1 || extra[i] < 0)
      c.refuse("a stride, dilation or output_padding is too small");
    const auto least = [&](const Ints& v) { return v.empty() ? 0 : *std::ranges::min_element(v); };
    const auto most = [&](const Ints& v) { return v.empty() ? 0 : *std::ranges::max_element(v); };
    if (std::max({extents[i], g.stride[i], g.dilation[i], extra[i], most(wanted), most(pads)}) > INT32_MAX ||
        std::min(least(wanted), least(pads)) < 0)
      c.refuse("a size, stride, dilation or pad is negative or above 2^31");
    const std::int64_t full = g.stride[i] * (extents[i] - 1) + extra[i] + g.span(i);
    if (!wanted.empty() || automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
      if (!wanted.empty() && wanted.size() != axes && wanted.size() != axes + 2) c.refuse("output_shape does not fit");
      const std::int64_t target = wanted.empty() ? extents[i] * g.stride[i] : wanted[wanted.size() - axes + i];
      const std::int64_t total = full - target;
      const std::int64_t half = total >= 0 ? total / 2 : -((1 - total) / 2);  // rounded down
      g.before[i] = automatic == "SAME_UPPER" ? half : total - half;
      g.after[i] = total - g.before[i];
      if (g.after[i] < 0) {  // more than there is: zeros at the end
        extra[i] -= g.after[i];
        g.after[i] = 0;
      }
    } else if (automatic == "NOTSET") {
      if (!pads.empty() && pads.size() != 2 * axes) c.refuse("pads do not fit");
      if (!pads.empty()) g.before[i] = pads[i], g.after[i] = pads[axes + i];
    } else if (automatic != "VALID") {
      c.refuse("auto_pad is '" + automatic + "'");
    }
    if (g.before[i] < 0 || g.after[i] < 0) c.refuse("negative padding");
  }
  Value y;
  if (axes == 3) {
    y = transposed_3d(c.in(0), c.in(1), g, extra, groups);
  } else {
    y = conv_transpose(c.in(0), c.in(1),
                       {.stride = g.stride,
                        .padding = g.before,
                        .dilation = g.dilation,
                        .padding_after = g.after,
                        .output_padding = extra,
                        .groups = groups});
  }
  if (c.has(2)) {
    Ints dims(axes + 2, 1);
    dims[1] = c.shape(2).elements();
    y = y + reshape(c.in(2), dims);
  }
  return {y};
}

}  // namespace

Ints kernel_of(Context& c, const Shape& weight) {
  const Ints own = spatial(weight);
  if (c.ints("kernel_shape", own) != own) c.refuse("kernel_shape is not that of the weight");
  return own;
}

Value convolution(Value x, Value w, const Geometry& g, std::int64_t groups) {
  if (g.axes() < 3) {
    return conv(x, w,
                {.stride = g.stride,
                 .padding = g.before,
                 .dilation = g.dilation,
                 .padding_after = g.after,
                 .output_padding = {},
                 .groups = groups});
  }
  // Over three axes: the sum of one over two for each depth of the kernel; the depths of the result become a part of the batch.
  const Shape s = x.shape();
  const std::int64_t n = s[0], c = s[1], depths = g.windows(0, s[2]);
  x = pad(x, {0, 0, g.before[0], 0, 0}, {0, 0, g.after[0], 0, 0});
  const ConvOptions options{.stride = {g.stride[1], g.stride[2]},
                            .padding = {g.before[1], g.before[2]},
                            .dilation = {g.dilation[1], g.dilation[2]},
                            .padding_after = {g.after[1], g.after[2]},
                            .output_padding = {},
                            .groups = groups};
  Value y;
  for (std::int64_t k = 0; k < g.kernel[0]; ++k) {
    const std::int64_t start = k * g.dilation[0];
    Value part = slice(x, {2}, {start}, {start + (depths - 1) * g.stride[0] + 1}, {g.stride[0]});
    part = reshape(permute(part, {0, 2, 1, 3, 4}), {n * depths, c, s[3], s[4]});
    const Shape& ws = w.shape();
    part = conv(part, reshape(slice(w, {2}, {k}, {k + 1}), {ws[0], ws[1], ws[3], ws[4]}), options);
    y = y ? y + part : part;
  }
  const Shape ys = y.shape();
  return permute(reshape(y, {n, depths, ys[1], ys[2], ys[3]}), {0, 2, 1, 3, 4});
}

std::span<const Op> product_ops() {
  static constexpr std::array table = {
      Op{"Conv", conv_op, 1, false}, Op{"ConvTranspose", conv_transpose_op, 1, false},
      Op{"Einsum", einsum, 12},      Op{"Gemm", gemm},
      Op{"MatMul", matmul_op},
  };
  return table;
}

}  // namespace aeshna::onnx

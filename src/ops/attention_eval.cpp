// The specification of attention and its gradients: plain loops in double, one row of scores at a time.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/attention.h"

namespace aeshna {

namespace {

/// One evaluation; elements by their coordinates.
class Evaluation {
 public:
  Evaluation(const EvalContext& ctx, std::size_t required)
      : p(AttentionProblem::of(types(ctx), ctx.node.attrs, required)), ctx_(ctx) {}

  const AttentionProblem p;

  /// f(batch, head, query) for every row of scores.
  template <class F>
  void rows(F f) const {
    for (std::int64_t b = 0; b < p.batch; ++b) {
      for (std::int64_t h = 0; h < p.heads; ++h) {
        for (std::int64_t i = 0; i < p.queries; ++i) f(b, h, i);
      }
    }
  }

  /// Rows of head_dim elements of q, k or v: operand [B, heads of the operand, rows, D].
  const double* heads_row(std::size_t operand, std::int64_t b, std::int64_t head, std::int64_t row) const {
    const Shape& shape = ctx_.inputs[operand]->type.shape;
    return &ctx_.inputs[operand]->data[index(((b * shape[1] + head) * shape[2] + row) * p.head_dim)];
  }
  /// Offset of a row in a tensor [B, rows, heads, D].
  std::size_t sequence_row(std::int64_t b, std::int64_t rows, std::int64_t row, std::int64_t heads, std::int64_t h) const {
    return index(((b * rows + row) * heads + h) * p.head_dim);
  }
  double lse(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return ctx_.inputs[4]->data[index((b * p.heads + h) * p.queries + i)];
  }
  double delta(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return ctx_.inputs[5]->data[index((b * p.queries + i) * p.heads + h)];
  }

  /// Scores of one row, -inf where masked.
  const std::vector<double>& scores(std::int64_t b, std::int64_t h, std::int64_t i) {
    scores_.assign(index(p.keys), -std::numeric_limits<double>::infinity());
    const double* q = heads_row(0, b, h, i);
    std::int64_t first = p.query_offset;
    if (p.position) first = static_cast<std::int64_t>(ctx_.inputs[*p.position]->data[index(b)]);
    first = std::clamp(first, -kMaxPositions, kMaxPositions);
    for (std::int64_t j = 0; j < p.keys; ++j) {
      if (!p.sees(first + i, j, first + p.queries - 1)) continue;
      const double* k = heads_row(1, b, h / p.group(), j);
      double s = 0;
      for (std::int64_t d = 0; d < p.head_dim; ++d) s += q[d] * k[d];
      s *= p.scale;
      if (p.mask) s += mask(b, h, i, j);
      if (!(s <= kMaskedScore)) scores_[index(j)] = s;
    }
    return scores_;
  }

  /// exp(score - lse), 0 where masked.
  static double weight(double score, double lse) {
    return score == -std::numeric_limits<double>::infinity() ? 0 : std::exp(score - lse);
  }

  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

 private:
  static std::vector<TensorType> types(const EvalContext& ctx) {
    std::vector<TensorType> types;
    for (const HostTensor* input : ctx.inputs) types.push_back(input->type);
    return types;
  }
  double mask(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const HostTensor& mask = *ctx_.inputs[*p.mask];
    const std::int64_t at[] = {b, h, i, j};
    std::int64_t element = 0;
    for (int d = 0; d < 4; ++d) element = element * mask.type.shape[d] + (mask.type.shape[d] == 1 ? 0 : at[d]);
    return mask.data[index(element)];
  }

  const EvalContext& ctx_;
  std::vector<double> scores_;
};

}  // namespace

void eval_attention(const EvalContext& ctx) {
  Evaluation e(ctx, kAttentionOperands);
  const AttentionProblem& p = e.p;
  auto &out = ctx.results[0].data, &lse = ctx.results[1].data;
  e.rows([&](std::int64_t b, std::int64_t h, std::int64_t i) {
    const std::vector<double>& s = e.scores(b, h, i);
    double shift = -std::numeric_limits<double>::infinity(), sum = 0;
    for (const double score : s) shift = std::isnan(score) ? score : std::max(shift, score);
    for (const double score : s) sum += Evaluation::weight(score, shift);
    double* o = &out[e.sequence_row(b, p.queries, i, p.heads, h)];
    for (std::int64_t j = 0; j < p.keys; ++j) {
      const double weight = Evaluation::weight(s[Evaluation::index(j)], shift);
      if (weight == 0) continue;
      const double* v = e.heads_row(2, b, h / p.group(), j);
      for (std::int64_t d = 0; d < p.head_dim; ++d) o[d] += weight / sum * v[d];
    }
    lse[Evaluation::index((b * p.heads + h) * p.queries + i)] = shift + std::log(sum);  // no key: -inf
  });
}

namespace {

/// f(b, h, i, j, weight, gradient of the score) for every visible pair, queries in order.
template <class F>
void score_gradients(Evaluation& e, const EvalContext& ctx, F f) {
  const AttentionProblem& p = e.p;
  e.rows([&](std::int64_t b, std::int64_t h, std::int64_t i) {
    const std::vector<double>& s = e.scores(b, h, i);
    const double* dout = &ctx.inputs[3]->data[e.sequence_row(b, p.queries, i, p.heads, h)];
    for (std::int64_t j = 0; j < p.keys; ++j) {
      const double weight = Evaluation::weight(s[Evaluation::index(j)], e.lse(b, h, i));
      if (weight == 0) continue;
      const double* v = e.heads_row(2, b, h / p.group(), j);
      double dp = 0;
      for (std::int64_t d = 0; d < p.head_dim; ++d) dp += dout[d] * v[d];
      f(b, h, i, j, weight, weight * (dp - e.delta(b, h, i)), dout);
    }
  });
}

}  // namespace

void eval_attention_dq(const EvalContext& ctx) {
  Evaluation e(ctx, kGradientOperands);
  const AttentionProblem& p = e.p;
  score_gradients(e, ctx, [&](auto b, auto h, auto i, auto j, double, double ds, const double*) {
    double* dq = &ctx.results[0].data[e.sequence_row(b, p.queries, i, p.heads, h)];
    const double* k = e.heads_row(1, b, h / p.group(), j);
    for (std::int64_t d = 0; d < p.head_dim; ++d) dq[d] += p.scale * ds * k[d];
  });
}

void eval_attention_dkv(const EvalContext& ctx) {
  Evaluation e(ctx, kGradientOperands);
  const AttentionProblem& p = e.p;
  score_gradients(e, ctx, [&](auto b, auto h, auto i, auto j, double weight, double ds, const double* dout) {
    const std::size_t at = e.sequence_row(b, p.keys, j, p.kv_heads, h / p.group());
    const double* q = e.heads_row(0, b, h, i);
    for (std::int64_t d = 0; d < p.head_dim; ++d) {
      ctx.results[0].data[at + Evaluation::index(d)] += p.scale * ds * q[d];
      ctx.results[1].data[at + Evaluation::index(d)] += weight * dout[d];
    }
  });
}

}  // namespace aeshna

#include "aeshna/sample.h"

#include "nn/layer.h"

namespace aeshna::nn {

namespace {

class Sampling : public Call {
 public:
  Sampling(std::string_view name, Value logits, const Loc& loc)
      : Call(formatted("[nn::{}]", name), loc), logits_(logits) {
    const TensorType& type = logits.type();
    if (type.dtype != DType::f32)
      reject(ErrorCode::DTypeMismatch, formatted("needs logits in f32, not {}", type.to_string()));
    require_shape(type.shape.rank() == 2 && type.shape[1] > 0, "needs logits [batch, vocab], not {}",
                  type.shape.to_string());
    batch_ = type.shape[0];
    vocab_ = type.shape[1];
  }

  Value most_likely() {
    const Value best = argmax(at(logits_), 1, true);
    return checked(best, gather_elements(at(logits_), at(best), 1));
  }

  Value sample(const SampleOptions& o) {
    check(o);
    const SortResult sorted = sort(at(penalized(o)), 1, true);
    const Value best = slice(at(sorted.values), {1}, {0}, {1});
    const Value rank = iota(logits_.graph(), {batch_, vocab_}, 1, loc());
    const Value first = equal(at(rank), at(0));

    const Value temperature = column(o.temperature), top_p = column(o.top_p), top_k = column(o.top_k);
    const Value greedy = equal(at(temperature), at(0));
    const Value candidates = select(
        at(greedy), at(1), at(select(at(greater(at(top_k), at(0))), at(top_k), at(static_cast<double>(vocab_)))));
    const Value scaled = div(at(sub(at(sorted.values), at(best))), at(select(at(greedy), at(1), at(temperature))));
    const Value weight = select(at(less(at(rank), at(candidates))), at(exp(at(scaled))), at(0));
    const Value together = cumsum(at(weight), 1);
    const Value total = slice(at(together), {1}, {vocab_ - 1}, {vocab_});

    // What is kept is a prefix of the order. Tokens of no weight never are, so that no rounding can choose one.
    const Value in_nucleus = logical_or(at(greater_equal(at(top_p), at(1))),
                                        at(less(at(sub(at(together), at(weight))), at(mul(at(top_p), at(total))))));
    const Value likely =
        logical_and(at(greater_equal(at(weight), at(column(o.min_p)))), at(greater(at(weight), at(0))));
    const Value kept = logical_or(at(first), at(logical_and(at(in_nucleus), at(likely))));
    const Value count = rows(kept);
    const Value mass = reduce_max(at(select(at(kept), at(together), at(0))), {1}, true);

    const Value below = less_equal(at(together), at(mul(at(uniform(o)), at(mass))));
    const Value chosen = minimum(at(rows(logical_and(at(kept), at(below)))), at(sub(at(count), at(1))));
    return checked(gather_elements(at(sorted.indices), at(chosen), 1), best);
  }

 private:
  using Call::at;

  void check(const SampleOptions& o) const {
    const auto need = [&](const Value& v, std::string_view name, DType dtype, const Shape& shape) {
      if (!v) reject(ErrorCode::InvalidArgument, formatted("needs {}", name));
      if (v.dtype() != dtype)
        reject(ErrorCode::DTypeMismatch,
               formatted("needs {} as {}, not {}", name, dtype_name(dtype), v.type().to_string()));
      require_shape(v.shape() == shape, "needs {} of shape {}, not {}", name, shape.to_string(), v.shape().to_string());
    };
    need(o.repetition_penalty, "repetition_penalty", DType::f32, {batch_});
    need(o.temperature, "temperature", DType::f32, {batch_});
    need(o.top_k, "top_k", DType::i32, {batch_});
    need(o.top_p, "top_p", DType::f32, {batch_});
    need(o.min_p, "min_p", DType::f32, {batch_});
    need(o.seed, "seed", DType::i32, {batch_, 2});
    need(o.draw, "draw", DType::i32, {batch_});
    const std::int64_t window = o.recent && o.recent.shape().rank() == 2 ? o.recent.shape()[1] : 1;
    need(o.recent, "recent", DType::i32, {batch_, window});
    require_shape(window > 0, "needs a window of recent tokens of at least 1");
  }

  Value column(Value v) const { return reshape(at(v), {batch_, 1}, loc()); }
  /// How many elements of each row are true: i32 [B, 1].
  Value rows(Value condition) const { return sum(at(cast(at(condition), DType::i32)), {1}, true); }

  /// Each distinct token of `recent` once: entries that name none repeat another one, with the same value.
  Value penalized(const SampleOptions& o) const {
    const Value some = reduce_max(at(o.recent), {1}, true);
    const Value ids = maximum(at(select(at(less(at(o.recent), at(0))), at(some), at(o.recent))), at(0));
    const Value penalty = column(o.repetition_penalty);
    const Value score = gather_elements(at(logits_), at(ids), 1);
    const Value lower =
        select(at(greater(at(score), at(0))), at(div(at(score), at(penalty))), at(mul(at(score), at(penalty))));
    const Value applies = logical_and(at(greater_equal(at(some), at(0))), at(not_equal(at(penalty), at(1))));
    return scatter(at(logits_), at(ids), at(select(at(applies), at(lower), at(score))), 1);
  }

  /// f32 [B, 1] in [0, 1).
  Value uniform(const SampleOptions& o) const {
    const auto half = [&](std::int64_t i) { return cast(at(slice(at(o.seed), {1}, {i}, {i + 1})), DType::u32); };
    const Value operands[] = {half(0), half(1), cast(at(column(o.draw)), DType::u32)};
    const Value bits = logits_.graph().add("philox", operands, {}, loc());
    return mul(at(cast(at(div(at(bits), at(256))), DType::f32)), at(0x1p-24));
  }

  /// `ids` [B, 1] as [B], with -1 where the best score is not finite.
  Value checked(Value ids, Value best) const {
    return reshape(at(select(at(is_finite(at(best))), at(ids), at(-1))), {batch_}, loc());
  }

  Value logits_;
  std::int64_t batch_ = 0, vocab_ = 0;
};

}  // namespace

Value most_likely(Value logits, Loc loc) { return Sampling("most_likely", logits, loc).most_likely(); }

Value sample(Value logits, const SampleOptions& options, Loc loc) {
  return Sampling("sample", logits, loc).sample(options);
}

}  // namespace aeshna::nn

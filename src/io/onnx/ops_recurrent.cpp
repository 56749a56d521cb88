// LSTM, GRU and RNN, unrolled: lengths are static here.
#include <algorithm>
#include <array>
#include <functional>

#include "base/format.h"
#include "io/onnx/translate.h"

namespace aeshna::onnx {
namespace {

constexpr std::int64_t kMaxSteps = 1024;

using Activation = std::function<Value(Value)>;

/// The activation functions, gate by gate and direction by direction.
class Activations {
 public:
  Activations(Context& c, std::size_t directions, std::vector<std::string> defaults)
      : c_(c), per_direction_(defaults.size()) {
    names_ = c.texts("activations");
    const std::vector<double> alphas = c.numbers("activation_alpha"), betas = c.numbers("activation_beta");
    if (names_.empty()) {
      for (std::size_t d = 0; d < directions; ++d) names_.insert(names_.end(), defaults.begin(), defaults.end());
    }
    if (names_.size() != directions * per_direction_) c.refuse(formatted("{} activations", names_.size()));
    // The numbers are listed for the functions that take them, in order.
    std::size_t a = 0, b = 0;
    for (const std::string& name : names_) {
      const Numbers n = numbers(name);
      alpha_.push_back(n.alpha && a < alphas.size() ? alphas[a++] : n.default_alpha);
      beta_.push_back(n.beta && b < betas.size() ? betas[b++] : n.default_beta);
    }
  }

  Value apply(std::size_t direction, std::size_t gate, Value x) const {
    const std::size_t i = direction * per_direction_ + gate;
    const std::string& name = names_[i];
    const double alpha = alpha_[i], beta = beta_[i];
    if (name == "Sigmoid") return sigmoid(x);
    if (name == "Tanh") return tanh(x);
    if (name == "Relu") return relu(x);
    if (name == "Affine") return add(mul(x, alpha), beta);
    if (name == "LeakyRelu") return select(less(x, 0), mul(x, alpha), x);
    if (name == "ThresholdedRelu") return select(greater(x, alpha), x, 0);
    if (name == "ScaledTanh") return mul(tanh(mul(x, beta)), alpha);
    if (name == "HardSigmoid") return clamp(add(mul(x, alpha), beta), 0, 1);
    if (name == "Elu") return select(less(x, 0), mul(expm1(minimum(x, 0)), alpha), x);
    if (name == "Softsign") return x / add(abs(x), 1);
    if (name == "Softplus") return softplus(x);
    c_.refuse("activation '" + name + "'");
  }

 private:
  struct Numbers {
    bool alpha = false, beta = false;
    double default_alpha = 0, default_beta = 0;
  };
  static Numbers numbers(const std::string& name) {
    if (name == "Affine") return {true, true, 1, 0};
    if (name == "LeakyRelu") return {true, false, 0.01, 0};
    if (name == "ThresholdedRelu") return {true, false, 1, 0};
    if (name == "ScaledTanh") return {true, true, 1, 1};
    if (name == "HardSigmoid") return {true, true, 0.2, 0.5};
    if (name == "Elu") return {true, false, 1, 0};
    return {};
  }
  Context& c_;
  std::size_t per_direction_;
  std::vector<std::string> names_;
  std::vector<double> alpha_, beta_;
};

/// What the three have in common: operands X, W, R, B, sequence_lens, initial_h.
struct Recurrent {
  Context& c;
  std::int64_t gates, hidden = 0, steps = 0, batch = 0, directions = 1;
  bool batch_first = false, backward_only = false;
  double clip = 0;
  Value x;                       ///< [steps, batch, in]
  std::optional<Value> lengths;  ///< i32 [batch]

  Recurrent(Context& context, std::int64_t gate_count) : c(context), gates(gate_count) {
    const std::string direction = c.text("direction", "forward");
    if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
      c.refuse("direction is '" + direction + "'");
    directions = direction == "bidirectional" ? 2 : 1;
    backward_only = direction == "reverse";
    batch_first = c.flag("layout", false);
    clip = c.number("clip", 0);
    x = c.in(0);
    if (x.shape().rank() != 3 || c.rank(1) != 3 || c.rank(2) != 3) c.refuse("X, W or R has not three axes");
    if (batch_first) x = permute(x, {1, 0, 2});
    hidden = c.shape(2)[2];
    if (c.integer("hidden_size", hidden) != hidden) c.refuse("hidden_size does not fit R");
    steps = x.shape()[0];
    batch = x.shape()[1];
    if (steps > kMaxSteps) c.refuse(formatted("{} steps; {} at most are unrolled", steps, kMaxSteps));
    if (steps < 1) c.refuse("no steps");
    if (c.shape(1) != Shape{directions, gates * hidden, x.shape()[2]} ||
        c.shape(2) != Shape{directions, gates * hidden, hidden})
      c.refuse(formatted("W is {}, R is {}", c.shape(1).to_string(), c.shape(2).to_string()));
    if (c.has(3) && c.shape(3) != Shape{directions, 2 * gates * hidden}) c.refuse("B does not fit");
    if (const Literal* known = c.if_known(4); known != nullptr) {
      const Ints values = to_ints(*known);
      if (std::ranges::all_of(values, [&](std::int64_t v) { return v == steps; })) return;  // as if there were none
    }
    if (c.has(4)) lengths = cast(c.in(4), DType::i32);
  }

  /// Part d of operand i, without its first axis.
  Value part(std::size_t i, std::int64_t d) const {
    const Value v = slice(c.in(i), {0}, {d}, {d + 1});
    Ints dims = dims_of(v.shape());
    dims.erase(dims.begin());
    return reshape(v, dims);
  }
  Value initial(std::size_t i, std::int64_t d) const {
    if (!c.has(i)) return c.filled(Shape{batch, hidden}, 0, x.dtype());
    const Value v = batch_first ? permute(c.in(i), {1, 0, 2}) : c.in(i);
    return reshape(slice(v, {0}, {d}, {d + 1}), {batch, hidden});
  }
  /// Biases of W (0) and R (1), [gates * hidden].
  std::optional<Value> bias(std::int64_t d, std::int64_t which) const {
    if (!c.has(3)) return std::nullopt;
    return slice(part(3, d), {0}, {which * gates * hidden}, {(which + 1) * gates * hidden});
  }
  Value gate(Value all, std::int64_t g) const { return slice(all, {-1}, {g * hidden}, {(g + 1) * hidden}); }
  Value clipped(Value v) const { return clip > 0 ? clamp(v, -clip, clip) : v; }

  /// The steps of every sequence in reverse, each over its own length.
  Value reversed(Value v) const {
    if (!lengths) return flip(v, {0});
    const Value n = reshape(*lengths, {1, batch, 1}), t = reshape(iota(c.graph, {steps}, 0), {steps, 1, 1});
    return gather_elements(v, select(less(t, n), sub(n, 1) - t, t), 0);
  }

  using State = std::vector<Value>;  ///< h first
  /// step(projected [batch, gates * hidden], state, direction) -> state
  using Step = std::function<State(Value, const State&, std::size_t)>;

  Values run(const std::vector<std::size_t>& initial_inputs,
             const std::function<std::optional<Value>(std::int64_t)>& input_bias, const Step& step) {
    std::vector<Value> outputs;
    std::vector<std::vector<Value>> finals(initial_inputs.size());
    for (std::int64_t d = 0; d < directions; ++d) {
      const bool back = backward_only || d == 1;
      Value projected = matmul(back ? reversed(x) : x, part(1, d), false, true);  // [steps, batch, gates * hidden]
      if (const auto b = input_bias(d)) projected = projected + *b;
      State state;
      for (const std::size_t i : initial_inputs) state.push_back(initial(i, d));
      std::vector<Value> hs;
      for (std::int64_t t = 0; t < steps; ++t) {
        const Value now = reshape(slice(projected, {0}, {t}, {t + 1}), {batch, gates * hidden});
        State next = step(now, state, static_cast<std::size_t>(d));
        Value h = next[0];
        if (lengths) {
          const Value alive = reshape(greater(*lengths, t), {batch, 1});
          h = select(alive, h, 0);
          for (std::size_t k = 0; k < next.size(); ++k) next[k] = select(alive, next[k], state[k]);
        }
        state = std::move(next);
        hs.push_back(reshape(h, {1, batch, hidden}));
      }
      Value all = hs.size() == 1 ? hs[0] : concat(hs, 0);
      if (back) all = reversed(all);
      outputs.push_back(reshape(all, {steps, 1, batch, hidden}));
      for (std::size_t k = 0; k < state.size(); ++k) finals[k].push_back(reshape(state[k], {1, batch, hidden}));
    }
    const auto joined = [](const std::vector<Value>& parts, std::int64_t axis) {
      return parts.size() == 1 ? parts[0] : concat(parts, axis);
    };
    Values results = {joined(outputs, 1)};
    if (batch_first) results[0] = permute(results[0], {2, 0, 1, 3});
    for (const std::vector<Value>& f : finals)
      results.push_back(batch_first ? permute(joined(f, 0), {1, 0, 2}) : joined(f, 0));
    return results;
  }
};

std::optional<Value> both_biases(const Recurrent& r, std::int64_t d) {
  const auto w = r.bias(d, 0);
  return w ? std::optional(*w + *r.bias(d, 1)) : std::nullopt;
}

Values rnn(Context& c) {
  Recurrent r(c, 1);
  const Activations f(c, static_cast<std::size_t>(r.directions), {"Tanh"});
  return r.run(
      {5}, [&](std::int64_t d) { return both_biases(r, d); },
      [&](Value x, const Recurrent::State& s, std::size_t d) -> Recurrent::State {
        return {f.apply(d, 0, r.clipped(x + matmul(s[0], r.part(2, static_cast<std::int64_t>(d)), false, true)))};
      });
}

Values gru(Context& c) {
  Recurrent r(c, 3);
  const bool linear_before_reset = c.flag("linear_before_reset", false);
  const Activations f(c, static_cast<std::size_t>(r.directions), {"Sigmoid", "Tanh"});
  return r.run(
      {5}, [&](std::int64_t d) { return r.bias(d, 0); },
      [&](Value x, const Recurrent::State& s, std::size_t direction) -> Recurrent::State {
        const auto d = static_cast<std::int64_t>(direction);
        const Value w = r.part(2, d), h = s[0];
        const auto rows = [&](Value v, std::int64_t first, std::int64_t count) {
          return slice(v, {0}, {first * r.hidden}, {(first + count) * r.hidden});
        };
        const auto b = r.bias(d, 1);
        Value zr = slice(x, {1}, {0}, {2 * r.hidden}) + matmul(h, rows(w, 0, 2), false, true);
        if (b) zr = zr + rows(*b, 0, 2);
        const Value z = f.apply(direction, 0, r.clipped(r.gate(zr, 0))),
                    reset = f.apply(direction, 0, r.clipped(r.gate(zr, 1)));
        Value inner = matmul(linear_before_reset ? h : reset * h, rows(w, 2, 1), false, true);
        if (b) inner = inner + rows(*b, 2, 1);
        if (linear_before_reset) inner = reset * inner;
        const Value candidate = f.apply(direction, 1, r.clipped(r.gate(x, 2) + inner));
        return {sub(1, z) * candidate + z * h};
      });
}

Values lstm(Context& c) {
  Recurrent r(c, 4);
  const bool coupled = c.flag("input_forget", false);
  const Activations f(c, static_cast<std::size_t>(r.directions), {"Sigmoid", "Tanh", "Tanh"});
  return r.run(
      {5, 6}, [&](std::int64_t d) { return both_biases(r, d); },
      [&](Value x, const Recurrent::State& s, std::size_t direction) -> Recurrent::State {
        const auto d = static_cast<std::int64_t>(direction);
        const Value all = x + matmul(s[0], r.part(2, d), false, true);  // i o f c
        const auto gate = [&](std::int64_t g, std::int64_t peephole, Value cell) {
          Value v = r.gate(all, g);
          if (c.has(7)) v = v + slice(r.part(7, d), {0}, {peephole * r.hidden}, {(peephole + 1) * r.hidden}) * cell;
          return f.apply(direction, 0, r.clipped(v));
        };
        const Value i = gate(0, 0, s[1]);
        const Value forget = coupled ? sub(1, i) : gate(2, 2, s[1]);
        const Value cell = forget * s[1] + i * f.apply(direction, 1, r.clipped(r.gate(all, 3)));
        return {gate(1, 1, cell) * f.apply(direction, 2, cell), cell};
      });
}

}  // namespace

std::span<const Op> recurrent_ops() {
  static constexpr std::array table = {
      Op{"GRU", gru, 1, false},
      Op{"LSTM", lstm, 1, false},
      Op{"RNN", rnn, 1, false},
  };
  return table;
}

}  // namespace aeshna::onnx

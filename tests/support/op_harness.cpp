#include "support/op_harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "aeshna/ops.h"
#include "aeshna/session.h"
#include "base/format.h"
#include "base/philox.h"
#include "compile/stages.h"
#include "runtime/session_impl.h"
#include "support/op_errors.h"
#include "support/test_device.h"

namespace aeshna::test {

namespace {

constexpr double kFactor = 2;  // a power of two: operands reach the op exactly as the case has them

/// Draws that stay the same when cases are added: one stream per use.
HostTensor draw(const TensorType& type, double low, double high, PhiloxStream& stream) {
  HostTensor t(type);
  for (double& v : t.data) {
    const double u = stream.next_uniform();
    v = round_to(type.dtype, is_float(type.dtype) ? low + (high - low) * u : std::floor(low + (high - low + 1) * u));
  }
  return t;
}

/// One case as a part of a graph.
struct Part {
  std::vector<Value> leaves;  ///< as written by the host
  std::vector<Value> results;
  Value loss;                               ///< empty when no result is a float
  std::vector<std::size_t> differentiable;  ///< operands
  TensorMap values;                         ///< of the leaves
};

Part add_case(Graph& g, const OpDef& op, const OpCase& c, const std::string& prefix, bool with_loss,
              Placement placement = Placement::MidGraph) {
  Part part;
  std::vector<HostTensor> data = case_operands(c, 1);
  std::vector<Value> operands;
  std::optional<std::size_t> shared;
  for (std::size_t i = 0; i < data.size(); ++i) {
    const bool scaled = with_loss && is_float(data[i].type.dtype);
    if (scaled && placement == Placement::Repeated && shared) {
      operands.push_back(operands[*shared]);
      continue;
    }
    const std::string name = formatted("{}x{}", prefix, i);
    const Value leaf = g.input(name, data[i].type.shape, data[i].type.dtype);
    part.leaves.push_back(leaf);
    if (scaled) {
      for (double& v : data[i].data) v /= kFactor;
      part.differentiable.push_back(part.leaves.size() - 1);
      shared = i;
    }
    operands.push_back(scaled ? leaf * kFactor : leaf);
    part.values.emplace(name, std::move(data[i]));
  }
  const Value first = g.add(op.name, operands, c.attrs, SourceLine(std::source_location::current()));
  part.results = {first};
  for (std::uint32_t r = 1; r < first.node().results.size(); ++r) part.results.push_back(g.value({first.id().node, r}));
  if (!with_loss) return part;
  PhiloxStream stream(7, 11);
  const auto extend = [&](Value term) { part.loss = part.loss ? part.loss + term : term; };
  for (std::size_t r = 0; r < part.results.size(); ++r) {
    if (!is_float(part.results[r].dtype())) continue;
    const HostTensor upstream = draw(part.results[r].type(), -1.5, 1.5, stream);
    const std::string name = formatted("{}u{}", prefix, r);
    const Value u = g.input(name, upstream.type.shape);
    part.values.emplace(name, upstream);
    extend(sum(part.results[r] * u));
  }
  if (part.loss && placement == Placement::UsedTwice) {
    for (const Value& operand : operands) {
      if (is_float(operand.dtype())) extend(sum(operand * operand) * 0.25);
    }
  }
  return part;
}

bool same(double got, double want, double tolerance) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::fabs(got - want) <= tolerance;
}

/// Elementwise; reports the worst few.
void compare(const HostTensor& got, const HostTensor& want, double rtol, double atol, const std::string& what) {
  ASSERT_EQ(got.type.to_string(), want.type.to_string()) << what;
  ASSERT_EQ(got.data.size(), want.data.size()) << what;
  int reported = 0;
  for (std::size_t i = 0; i < want.data.size(); ++i) {
    if (same(got.data[i], want.data[i], atol + rtol * std::fabs(want.data[i]))) continue;
    ADD_FAILURE() << formatted("{}: element {} of {} is {:.9g}, should be {:.9g}", what, i, got.type.to_string(),
                               got.data[i], want.data[i]);
    if (++reported == 4) return;
  }
}

double loss_of(const Graph& g, const TensorMap& values) { return interpret(g, values).outputs.at("loss").data[0]; }

}  // namespace

HostTensor tensor(Shape shape, std::vector<double> values, DType dtype) {
  HostTensor t(TensorType{dtype, shape});
  EXPECT_EQ(t.data.size(), values.size());
  t.data = std::move(values);
  return t;
}

HostTensor value_of(Value v, const TensorMap& leaves) {
  return interpret(v.graph(), leaves, Rounding::Exact, true).values[v.id().node][v.id().result];
}

Shape shape_of(const Graph& g, std::string_view leaf) {
  const auto id = g.leaf(leaf);
  EXPECT_TRUE(id) << leaf;
  return id ? g.node(*id).results[0].shape : Shape{};
}

std::string describe(const OpDef& op, const OpCase& c, std::size_t index) {
  std::string text = formatted("{} case {} (", op.name, index);
  for (std::size_t i = 0; i < c.inputs.size(); ++i) text += (i == 0 ? "" : ", ") + c.inputs[i].to_string();
  return text + ")";
}

std::vector<HostTensor> case_operands(const OpCase& c, std::uint64_t seed) {
  std::vector<HostTensor> operands;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    PhiloxStream stream(seed, i);
    const auto [low, high] = i < c.ranges.size() ? c.ranges[i] : std::pair(-2.0, 2.0);
    operands.push_back(draw(c.inputs[i], low, high, stream));
    if (i >= c.values.size() || c.values[i].empty()) continue;
    auto& data = operands.back().data;
    for (std::size_t e = 0; e < data.size(); ++e)
      data[e] = round_to(c.inputs[i].dtype, c.values[i][e % c.values[i].size()]);
  }
  return operands;
}

void check_values(const OpDef& op, const OpCase& c) {
  Graph g;
  const Part part = add_case(g, op, c, "", false);
  for (std::size_t r = 0; r < part.results.size(); ++r) g.output(formatted("y{}", r), part.results[r]);

  // The record alone.
  const SourceLine line;
  const std::vector<TensorType> types = op.infer(InferContext{op, c.inputs, c.attrs, line});
  ASSERT_EQ(types.size(), part.results.size());
  ASSERT_TRUE(op.eval) << op.name << " has no eval";
  const std::vector<HostTensor> operands = case_operands(c, 1);
  std::vector<const HostTensor*> inputs;
  for (const HostTensor& operand : operands) inputs.push_back(&operand);
  std::vector<HostTensor> evaluated(types.begin(), types.end());
  op.eval(EvalContext{part.results[0].node(), inputs, evaluated});

  const InterpreterResult run = interpret(g, part.values);
  for (std::size_t r = 0; r < types.size(); ++r) {
    const HostTensor& y = run.outputs.at(formatted("y{}", r));
    EXPECT_EQ(y.type, types[r]);
    EXPECT_EQ(std::ssize(evaluated[r].data), types[r].shape.elements()) << "eval must fill the inferred shape";
    compare(y, evaluated[r], 0, 0, "interpreter");
  }
  if (op.kind == OpKind::Composite) {
    const InterpreterResult expanded = interpret(*expand_composites(g), part.values);
    // random_uniform and friends are exact; rounding of f32 constants such as 1/n is the loosest thing here.
    for (std::size_t r = 0; r < types.size(); ++r)
      compare(expanded.outputs.at(formatted("y{}", r)), evaluated[r], 3e-7, 3e-7, "expansion");
  }
}

bool check_gradient(const OpDef& op, const OpCase& c, Placement placement) {
  if (!c.gradient) return false;
  if (placement == Placement::Repeated) {
    std::vector<TensorType> floats;
    for (const TensorType& type : c.inputs) {
      if (is_float(type.dtype)) floats.push_back(type);
    }
    if (floats.size() < 2 || std::ranges::adjacent_find(floats, std::not_equal_to{}) != floats.end()) return false;
    // One value for operands of one type can make the operands misfit (a 5x7 matrix times itself).
    const SourceLine line;
    try {
      op.infer(InferContext{op, c.inputs, c.attrs, line});
    } catch (const Error&) {
      return false;
    }
  }

  Graph forward, backward;
  Part part = add_case(forward, op, c, "", true, placement);
  if (!part.loss || part.differentiable.empty()) return false;
  forward.output("loss", part.loss);
  const Part twin = add_case(backward, op, c, "", true, placement);
  std::vector<Value> wrt;
  for (const std::size_t i : twin.differentiable) wrt.push_back(twin.leaves[i]);
  const std::vector<Value> gradients = differentiate(backward, twin.loss, wrt);
  for (std::size_t i = 0; i < wrt.size(); ++i) backward.output(formatted("g{}", i), gradients[i]);
  const InterpreterResult run = interpret(backward, part.values);

  PhiloxStream stream(3, 5);
  const double f0 = std::fabs(loss_of(forward, part.values));
  // Moves operand i by h * direction both ways.
  const auto slope = [&](const std::vector<std::vector<double>>& direction, double h) {
    const auto moved = [&](double by) {
      TensorMap values = part.values;
      for (std::size_t i = 0; i < wrt.size(); ++i) {
        auto& data = values.at(wrt[i].node().name).data;
        for (std::size_t e = 0; e < data.size(); ++e) data[e] += by * direction[i][e];
      }
      return loss_of(forward, values);
    };
    return (moved(h) - moved(-h)) / (2 * h);
  };
  const auto check = [&](const std::vector<std::vector<double>>& direction, const std::string& what) {
    double want = 0, size = 0;
    for (std::size_t i = 0; i < wrt.size(); ++i) {
      const auto& g = run.outputs.at(formatted("g{}", i)).data;
      for (std::size_t e = 0; e < g.size(); ++e) {
        want += g[e] * direction[i][e];
        size += std::fabs(g[e] * direction[i][e]);
      }
    }
    if (op.name == "stop_gradient") {
      if (placement != Placement::UsedTwice) {
        EXPECT_EQ(want, 0) << what;
      }
      return;
    }
    const double h = 1e-5;
    EXPECT_NEAR(slope(direction, h), want, 2e-6 * (size + 1e-2) + 1e-9 * f0) << what;
  };
  std::vector<std::vector<double>> direction;
  for (const Value& x : wrt) direction.emplace_back(static_cast<std::size_t>(x.shape().elements()), 0.0);
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (auto& d : direction) {
      for (double& v : d) v = stream.next_normal();
    }
    check(direction, formatted("random direction {}", repeat));
  }
  for (std::size_t i = 0; i < wrt.size(); ++i) {
    for (int repeat = 0; repeat < 3 && !direction[i].empty(); ++repeat) {
      for (auto& d : direction) std::ranges::fill(d, 0.0);
      const std::uint64_t e = stream.next_below(direction[i].size());
      direction[i][e] = 1;
      check(direction, formatted("element {} of operand {}", e, i));
    }
  }
  return true;
}

void check_device(const OpDef& op, std::span<const OpCase> cases) {
  Graph g;
  TensorMap values;
  std::vector<std::pair<std::string, std::size_t>> outputs;  // and the case it belongs to
  std::vector<bool> is_gradient;
  Value loss;
  std::vector<std::pair<Value, std::size_t>> wrt;
  const auto output = [&](std::string name, Value value, std::size_t k, bool gradient) {
    g.output(name, value);
    outputs.emplace_back(std::move(name), k);
    is_gradient.push_back(gradient);
  };
  for (std::size_t k = 0; k < cases.size(); ++k) {
    const Part part = add_case(g, op, cases[k], formatted("c{}.", k), cases[k].gradient);
    for (std::size_t r = 0; r < part.results.size(); ++r) output(formatted("c{}.y{}", k, r), part.results[r], k, false);
    values.insert(part.values.begin(), part.values.end());
    if (!part.loss) continue;
    loss = loss ? loss + part.loss : part.loss;
    for (const std::size_t i : part.differentiable) wrt.emplace_back(part.leaves[i], k);
  }
  if (loss && !wrt.empty()) {
    std::vector<Value> leaves;
    for (const auto& [leaf, k] : wrt) leaves.push_back(leaf);
    const std::vector<Value> found = gradients(loss, leaves);
    for (std::size_t i = 0; i < wrt.size(); ++i) output(formatted("g{}", i), found[i], wrt[i].second, true);
  }

  Session session = compile(g, Weights(*test_device().device), {.mode = Mode::Inference});
  for (const auto& [name, value] : values) session.set(name, Literal::from_doubles(value.type, value.data));
  session.step();
  session.wait();

  const InterpreterResult exact = interpret(g, values), rounded = interpret(g, values, Rounding::Storage);
  note_cases(op, cases.size());
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    const auto& [name, k] = outputs[o];
    const OpCase& c = cases[k];
    HostTensor want = exact.outputs.at(name), got(want.type);
    const Literal read = session.read_literal(name);
    ASSERT_EQ(read.type(), want.type) << describe(op, c, k);
    got.data = read.to_doubles();
    double own = 0;  // what f32 itself loses in this expression, node by node
    for (std::size_t i = 0; i < want.data.size(); ++i) {
      want.data[i] = round_to(want.type.dtype, want.data[i]);
      const double error = std::fabs(rounded.outputs.at(name).data[i] - want.data[i]);
      if (std::isfinite(error)) own = std::max(own, error);
    }
    note_errors(op, is_gradient[o], got, want, session.impl().plan);
    const bool exact_result = !is_float(want.type.dtype);
    const double scale = exact_result ? 0 : is_gradient[o] ? 4 : 1;
    compare(got, want, scale * c.rtol, scale * c.atol + (is_gradient[o] ? 4 * own : 0),
            formatted("{} {}", describe(op, c, k), name));
  }
}

}  // namespace aeshna::test

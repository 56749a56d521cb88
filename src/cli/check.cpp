// aeshna check: does this device compute what the double-precision interpreter computes?
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>

#include "aeshna/nn.h"
#include "aeshna/ops.h"
#include "aeshna/session.h"
#include "base/fail.h"
#include "base/format.h"
#include "base/philox.h"
#include "cli/command.h"
#include "cli/text.h"
#include "gpu/select_device.h"
#include "ir/interpreter.h"
#include "ir/leaf.h"

namespace aeshna::cli {
namespace {

struct Item {
  std::string name;
  std::function<void(Graph&)> build;
  double tolerance;  ///< |device - interpreter| <= tolerance * (1 + |interpreter|)
};

/// One kernel archetype each, with sizes that are no multiple of a tile.
std::vector<Item> items() {
  return {
      {"pointwise",
       [](Graph& g) {
         const Value a = g.input("a", {37, 129}), b = g.input("b", {129});
         g.output("y", gelu_tanh(a) * sigmoid(b) + exp(a * 0.5) / (1.0 + abs(b)) - tanh(a));
       },
       1e-5},
      {"reductions",
       [](Graph& g) {
         const Value a = g.input("a", {19, 301});
         g.output("sum", sum(a, {1}));
         g.output("mean", mean(a, {0}));
         g.output("max", reduce_max(a));
         g.output("argmin", argmin(a, 1));
         g.output("logsumexp", logsumexp(a, {1}));
       },
       1e-5},
      {"softmax",
       [](Graph& g) {
         const Value a = g.input("a", {23, 257});
         g.output("softmax", softmax(a * 3.0));
         g.output("log_softmax", log_softmax(a, 0));
       },
       1e-5},
      {"matmul",
       [](Graph& g) {
         const Value a = g.input("a", {67, 53}), b = g.input("b", {53, 41});
         g.output("square", matmul(g.input("c", {128, 128}), g.input("d", {128, 128})));
         g.output("odd", matmul(a, b));
         g.output("transposed", matmul(b, a, true, true));
         g.output("vector", matmul(g.input("v", {53}), b));
       },
       2e-5},
      {"batched matmul",
       [](Graph& g) {
         g.output("y", matmul(g.input("a", {3, 1, 17, 33}), g.input("b", {5, 33, 9})));
       },
       2e-5},
      {"shapes",
       [](Graph& g) {
         const Value a = g.input("a", {6, 10, 7});
         const Value part = slice(permute(a, {2, 0, 1}), {0, 2}, {1, 0}, {6, 10}, {2, 3});
         g.output("y", concat({pad(part, {0, 1, 2}, {1, 0, 0}, 0.5), pad(part, {0, 1, 2}, {1, 0, 0})}, 1));
         g.output("z", reshape(a, {-1, 12}));
       },
       1e-6},
      {"gradients",
       [](Graph& g) {
         const Value x = g.input("x", {31, 24}), w = g.input("w", {10, 24}), v = g.input("v", {5, 10});
         const Value loss = cross_entropy(linear(tanh(linear(x, w)), v), softmax(g.input("t", {31, 5})));
         const std::vector<Value> dw = gradients(loss, {w, v, x});
         g.output("loss", loss);
         for (std::size_t i = 0; i < dw.size(); ++i) g.output(formatted("gradient {}", i), dw[i]);
       },
       2e-5},
  };
}

/// Largest |device - interpreter| / (1 + |interpreter|) over all outputs; throws Error when the device cannot do it.
double largest_error(const Item& item, const Device& device) {
  Graph graph;
  item.build(graph);
  const Weights weights(graph, {.device = device});
  Session session = compile(graph, weights);
  TensorMap leaves;
  std::uint64_t stream = 0;
  for (const Node& node : graph.nodes()) {
    if (!is_input(node)) continue;
    PhiloxStream random(20240229, stream++);
    HostTensor tensor(node.results[0]);
    for (double& value : tensor.data) value = static_cast<float>(4 * random.next_uniform() - 2);
    session.set(node.name, Literal::from_doubles(tensor.type, tensor.data));
    leaves.emplace(node.name, std::move(tensor));
  }
  session.step();
  session.wait();
  const InterpreterResult expected = interpret(graph, leaves);
  double worst = 0;
  for (const auto& [name, want] : expected.outputs) {
    const Literal got = session.read_literal(name);
    for (std::size_t i = 0; i < want.data.size(); ++i) {
      const double error = std::abs(got.at(static_cast<std::int64_t>(i)) - want.data[i]) / (1 + std::abs(want.data[i]));
      worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
    }
  }
  return worst;
}

int check(const Globals& globals) {
  const Device device(globals.request());
  if (!globals.quiet) std::printf("%s\n\n", gpu::describe(device.info()).c_str());
  int failures = 0;
  for (const Item& item : items()) {
    const auto start = std::chrono::steady_clock::now();
    std::string verdict;
    try {
      const double error = largest_error(item, device);
      const bool ok = error <= item.tolerance;
      failures += ok ? 0 : 1;
      verdict = formatted("{}  largest error {:.1e} (at most {:.0e})", ok ? "OK  " : "FAIL", error, item.tolerance);
    } catch (const Error& error) {
      ++failures;
      verdict = formatted("FAIL  {}", error.what());
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%-16s %s  %s\n", item.name.c_str(), verdict.c_str(), format_seconds(seconds).c_str());
    std::fflush(stdout);
  }
  if (failures != 0)
    fail(ErrorCode::Internal, "{} of {} checks failed on {}", failures, items().size(), device.info().name);
  std::printf("all %zu checks passed\n", items().size());
  return 0;
}

}  // namespace

void add_check(CLI::App& app, const Globals& globals, Action& action) {
  app.add_subcommand("check", "Compare the device with the double-precision interpreter")
      ->callback([&globals, &action] { action = [&globals] { return check(globals); }; });
}

}  // namespace aeshna::cli

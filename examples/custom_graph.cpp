// Gradients of an arbitrary expression: Rosenbrock's function at many points at once, and its minimum by gradient descent
// written as graph nodes (a state that the graph assigns).
#include <aeshna/aeshna.h>

#include <cstdio>
#include <vector>

using namespace aeshna;

namespace {

/// sum over points of (1 - x)^2 + 5 (y - x^2)^2
Value rosenbrock(Value x, Value y) {
  const Value a = 1.0 - x, b = y - x * x;
  return sum(a * a + 5.0 * b * b);
}

}  // namespace

int main() try {
  const Device device;

  // The gradient at four given points.
  Graph at_points;
  const Value x = at_points.input("x", {4}), y = at_points.input("y", {4});
  const std::vector<Value> d = gradients(rosenbrock(x, y), {x, y});
  at_points.output("dx", d[0]);
  at_points.output("dy", d[1]);
  Session session = compile(at_points, Weights(device));
  session.set("x", std::vector<float>{0, 1, 1, 2});
  session.set("y", std::vector<float>{0, 1, 2, 4});
  session.step();
  const std::vector<float> dx = session.read("dx"), dy = session.read("dy");
  for (std::size_t i = 0; i < dx.size(); ++i) std::printf("d/dx %8.3f   d/dy %8.3f\n", dx[i], dy[i]);

  // Descent: the point is a state, each step of the session moves it.
  Graph descent;
  const Value px = descent.state("px", {}), py = descent.state("py", {});
  const Value f = rosenbrock(px, py);
  const std::vector<Value> slope = gradients(f, {px, py});
  descent.assign(px, px - 0.02 * slope[0]);
  descent.assign(py, py - 0.02 * slope[1]);
  descent.output("f", f);
  const Weights weights(descent, {.device = device});
  Session mover = compile(descent, weights);
  for (int step = 0; step < 2000; ++step) mover.step();
  std::printf("f = %.2e at (%.4f, %.4f) after 2000 steps\n", mover.read_scalar("f"), weights.get("px").at(0),
              weights.get("py").at(0));
} catch (const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}

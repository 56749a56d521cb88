#include "io/elementary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "aeshna/ops.h"
#include "ir/interpreter.h"

namespace aeshna {
namespace {

/// In f32 arithmetic, node by node, against the C library in double.
void expect_close(Value (*f)(Value), double (*want)(double), const std::vector<double>& at) {
  Graph graph;
  HostTensor x({DType::f32, Shape{static_cast<std::int64_t>(at.size())}});
  for (std::size_t i = 0; i < at.size(); ++i) x.data[i] = static_cast<float>(at[i]);
  graph.output("y", f(graph.input("x", x.type.shape)));
  const auto y = interpret(graph, {{"x", x}}, Rounding::Storage).outputs.at("y").data;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const double exact = want(x.data[i]);
    if (!std::isfinite(exact)) {
      EXPECT_TRUE(std::isnan(exact) ? std::isnan(y[i]) : y[i] == exact) << at[i] << ": " << y[i];
    } else {
      EXPECT_NEAR(y[i], exact, 2e-6 * std::fabs(exact)) << at[i];
    }
  }
}

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Elementary, EqualTheLibraryOverTheWholeRange) {
  const std::vector<double> all = {0, 1e-6, -1e-6, 0.3, -0.7, 1, -1, 5, -20, 1e5, 1e20, -1e20, kInf, -kInf, kNan};
  expect_close(asinh_of, std::asinh, all);
  expect_close(atan_of, std::atan, all);
  const std::vector<double> moderate = {0, 1e-6, -1e-6, 0.3, -0.7, 5, -20, 79, 88.9, -88.9};
  expect_close(sinh_of, std::sinh, moderate);
  expect_close(cosh_of, std::cosh, moderate);
  expect_close(acosh_of, std::acosh, {1, 1.000001, 1.5, 20, 1e5, 1e20, kInf, 0.5, -3, kNan});
  const std::vector<double> unit = {0, 1e-6, -1e-6, 0.3, -0.7, 0.999, -0.999, 1.5, -1.5, kNan};
  expect_close(atanh_of, std::atanh, unit);
  expect_close(asin_of, std::asin, unit);
  expect_close(acos_of, std::acos, unit);
}

}  // namespace
}  // namespace aeshna

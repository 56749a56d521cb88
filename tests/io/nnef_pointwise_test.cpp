// Elementwise operations of NNEF against the C library.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "support/expect_error.h"
#include "support/nnef_model.h"

namespace aeshna {
namespace {

using namespace test;

struct Case {
  const char* expression;
  std::function<double(double)> function;
  std::vector<double> at;
  double tolerance = 1e-12;
};

const std::vector<double> kAll = {-30, -3, -1, -0.5, -1e-3, 0, 1e-3, 0.5, 1, 2.5, 30};
const std::vector<double> kUnit = {-1, -0.999, -0.5, -1e-4, 0, 1e-4, 0.5, 0.7, 0.999, 1};
const std::vector<double> kInside = {-0.999, -0.5, -1e-4, 0, 1e-4, 0.5, 0.7, 0.999};
const std::vector<double> kPositive = {1e-6, 0.3, 1, 2, 1e6};

double sign_of(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }
double normal(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

TEST(NnefPointwise, Functions) {
  const std::vector<Case> cases = {
      {"neg(x)", [](double x) { return -x; }, kAll},
      {"-x", [](double x) { return -x; }, kAll},
      {"rcp(x)", [](double x) { return 1 / x; }, kPositive},
      {"exp(x)", [](double x) { return std::exp(x); }, kAll},
      {"log(x)", [](double x) { return std::log(x); }, kPositive},
      {"log2(x)", [](double x) { return std::log2(x); }, kPositive, 1e-7},
      {"sin(x)", [](double x) { return std::sin(x); }, kAll},
      {"cos(x)", [](double x) { return std::cos(x); }, kAll},
      {"tan(x)", [](double x) { return std::tan(x); }, kInside},
      {"sinh(x)", [](double x) { return std::sinh(x); }, {-88, -30, -1, -1e-7, 0, 1e-7, 0.5, 2, 79.9, 80.1}, 1e-9},
      {"cosh(x)", [](double x) { return std::cosh(x); }, {-88, -30, -1, 0, 1e-7, 0.5, 2, 79.9}, 1e-9},
      {"tanh(x)", [](double x) { return std::tanh(x); }, kAll},
      {"asin(x)", [](double x) { return std::asin(x); }, kUnit, 3e-7},
      {"acos(x)", [](double x) { return std::acos(x); }, kUnit, 3e-7},
      {"atan(x)", [](double x) { return std::atan(x); }, {-1e20, -30, -1, -0.3, 0, 0.3, 0.5, 2, 2.5, 1e20}, 3e-7},
      {"asinh(x)", [](double x) { return std::asinh(x); }, {-1e12, -30, -1, -1e-7, 0, 1e-7, 0.5, 1e8, 1e10}, 1e-7},
      {"acosh(x)", [](double x) { return std::acosh(x); }, {1, 1.001, 2, 30, 1e6}, 1e-8},
      {"atanh(x)", [](double x) { return std::atanh(x); }, kInside},
      {"abs(x)", [](double x) { return std::abs(x); }, kAll},
      {"sign(x)", sign_of, kAll},
      {"floor(x)", [](double x) { return std::floor(x); }, kAll},
      {"ceil(x)", [](double x) { return std::ceil(x); }, kAll},
      {"round(x)",
       [](double x) { return std::round(x); },
       {-2.5, -1.5, -0.5, -0.49999999, 0, 0.25, 0.49999999, 0.5, 1.5, 2.5, 2.75}},
      {"sqr(x)", [](double x) { return x * x; }, kAll},
      {"sqrt(x)", [](double x) { return std::sqrt(x); }, kPositive},
      {"rsqr(x)", [](double x) { return 1 / (x * x); }, {0.3, 1, 2}},
      {"rsqrt(x)", [](double x) { return 1 / std::sqrt(x); }, kPositive},
      {"copy(x)", [](double x) { return x; }, kAll},
      {"x ^ 2.0", [](double x) { return x * x; }, kAll},
      {"x ^ 0.5", [](double x) { return std::sqrt(x); }, kPositive},
      {"x ^ -0.5", [](double x) { return 1 / std::sqrt(x); }, kPositive},
      {"x ^ -1.0", [](double x) { return 1 / x; }, kPositive},
      {"pow(x, 1.5)", [](double x) { return std::pow(x, 1.5); }, kPositive},
      {"2.0 ^ x", [](double x) { return std::exp2(x); }, kAll, 1e-9},
      {"-x ^ 2.0", [](double x) { return -(x * x); }, kAll},
      {"1.0 - x * 2.0 + 6.0 / 3.0 / 2.0", [](double x) { return 2 - x * 2; }, kAll},
      {"min(x, 1.0) + max(0.5, x)", [](double x) { return std::min(x, 1.0) + std::max(0.5, x); }, kAll},
      {"clamp(x, -1.0, 0.5)", [](double x) { return std::max(std::min(x, 0.5), -1.0); }, kAll},
      {"select(x < 0.0, x, 7.0)", [](double x) { return x < 0 ? x : 7; }, kAll},
      {"select(not(lt(x, 1.0)), 1.0, 0.0)", [](double x) { return x < 1 ? 0 : 1; }, kAll},
      {"select(and(gt(x, -1.0), le(x, 1.0)), 1.0, 0.0)", [](double x) { return x > -1 && x <= 1 ? 1 : 0; }, kAll},
      {"select(or(ge(x, 1.0), eq(x, 0.5)), 1.0, 0.0)", [](double x) { return x >= 1 || x == 0.5 ? 1 : 0; }, kAll},
      {"select(ne(x, 1.0), 1.0, 0.0)", [](double x) { return x != 1 ? 1 : 0; }, kAll},
      {"relu(x)", [](double x) { return std::max(x, 0.0); }, kAll},
      {"sigmoid(x)", [](double x) { return 1 / (1 + std::exp(-x)); }, kAll},
      {"softplus(x)", [](double x) { return std::log1p(std::exp(x)); }, kAll, 1e-9},
      {"silu(x)", [](double x) { return x / (1 + std::exp(-x)); }, kAll},
      {"gelu(x)", [](double x) { return x * normal(x); }, kAll, 1e-9},
      {"elu(x)", [](double x) { return x < 0 ? std::expm1(x) : x; }, kAll},
      {"elu(x, alpha = 0.5)", [](double x) { return x < 0 ? 0.5 * std::expm1(x) : x; }, kAll},
      {"selu(x)", [](double x) { return 1.05070102 * (x < 0 ? 1.67326319 * std::expm1(x) : x); }, kAll, 1e-6},
      {"softabs(x, epsilon = 0.25)", [](double x) { return std::sqrt(x * x + 0.25); }, kAll},
      {"prelu(x, 0.25)", [](double x) { return x < 0 ? 0.25 * x : x; }, kAll},
      {"leaky_relu(x, alpha = 0.25)", [](double x) { return x < 0 ? 0.25 * x : x; }, kAll},
      {"linear_quantize(x, -1.0, 1.0, bits = 2)",
       [](double x) { return std::round((std::clamp(x, -1.0, 1.0) + 1) * 1.5) / 1.5 - 1; }, kAll},
      {"min_max_linear_quantize(x, -1.0, 1.0, bits = 8, signed = true, symmetric = true)",
       [](double x) { return std::round((std::clamp(x, -1.0, 1.0) + 1) * 127) / 127 - 1; }, kAll},
      {"zero_point_linear_quantize(x, 3, 0.5, bits = 4, signed = false, symmetric = false)",
       [](double x) { return (std::clamp(std::round(x / 0.5) + 3, 0.0, 15.0) - 3) * 0.5; }, kAll},
      {"zero_point_linear_quantize(x, 0, 0.25, bits = 3, signed = true, symmetric = true)",
       [](double x) { return std::clamp(std::round(x / 0.25), -3.0, 3.0) * 0.25; }, kAll},
      {"logarithmic_quantize(x, 8.0, bits = 3)",
       [](double x) { return sign_of(x) * std::exp2(std::round(std::clamp(std::log2(std::abs(x)), 3.0 - 7, 3.0))); },
       {-30, -3, -0.4, 0.01, 0.7, 6, 30},
       1e-6},
  };
  for (const Case& c : cases) {
    const auto n = static_cast<std::int64_t>(c.at.size());
    const HostTensor y =
        run_one("[" + std::to_string(n) + "]", "y = " + std::string(c.expression) + ";", tensor({n}, c.at));
    for (std::size_t i = 0; i < c.at.size(); ++i) {
      const double want = c.function(c.at[i]);
      EXPECT_NEAR(y.data[i], want, c.tolerance * std::max(1.0, std::abs(want))) << c.expression << " at " << c.at[i];
    }
  }
}

TEST(NnefPointwise, InverseFunctionsOutsideTheirDomains) {
  const HostTensor x = tensor({2}, {-1.5, 1.5});
  for (const char* f : {"asin", "acos", "atanh"}) {
    const HostTensor y = run_one("[2]", "y = " + std::string(f) + "(x);", x);
    EXPECT_TRUE(std::isnan(y.data[0]) && std::isnan(y.data[1])) << f;
  }
}

TEST(NnefPointwise, KnownValuesAreComputed) {
  const auto constant = [](const std::string& expression) {
    return run_one("[1]", "k = " + expression + ";\ny = x * 0.0 + k;", tensor({1}, {1})).data[0];
  };
  EXPECT_EQ(constant("7 / 2"), 3);
  EXPECT_EQ(constant("7.0 / 2"), 3.5);
  EXPECT_EQ(constant("2 ^ 10 - 1"), 1023);
  EXPECT_EQ(constant("-2 ^ 2"), -4);
  EXPECT_EQ(constant("2 + 3 * 4"), 14);
  EXPECT_EQ(constant("(2 + 3) * 4"), 20);
  EXPECT_EQ(constant("10 - 2 - 3"), 5);
  EXPECT_EQ(constant("1 if 2 > 1 && !(3 in [1, 2]) else 0"), 1);
  EXPECT_EQ(constant("1 if 'ab' + 'c' == 'abc' else 0"), 1);
  EXPECT_EQ(constant("[1, 2, 3][1:][-1]"), 3);
  EXPECT_EQ(constant("length_of([1] * 3 + [2])"), 4);
  EXPECT_EQ(constant("range_of([4, 5, 6])[2]"), 2);
  EXPECT_EQ(constant("[for a in [1, 2, 3], b in [10, 20, 30] if a != 2 yield a + b][1]"), 33);
  EXPECT_EQ(constant("[for (a, b) in [(1, 2), (3, 4)] yield a * b][1]"), 12);
  EXPECT_EQ(constant("shape_of(x)[0]"), 1);
  EXPECT_EQ(constant("integer(2.7) + integer(true)"), 3);
  EXPECT_EQ(constant("scalar(3) / 2.0"), 1.5);
  EXPECT_EQ(constant("1 if logical(2) && string(12) == '12' && string(0.5) == '0.5' else 0"), 1);
  EXPECT_EQ(constant("length_of('abc') + length_of('ab' * 2)"), 7);
  EXPECT_EQ(constant("1 if (1, 'a') == (1, 'a') && [1] != [2] && true == true else 0"), 1);
  EXPECT_EQ(constant("1 if 1 <= 1.0 && 2.0 >= 1 && 1.0 < 2.0 && 2 > 1.5 else 0"), 1);
  EXPECT_EQ(constant("(-1) ^ 101"), -1);
  EXPECT_EQ(constant("2.0 ^ -1"), 0.5);
  EXPECT_EQ(constant("+3 - -3"), 6);
}

}  // namespace
}  // namespace aeshna

// Bounds that kernels/math.glsl states, measured on the device: the largest error in units of the last place over 2^18
// points, drawn uniformly over bit patterns and densely where each function lives, and the special values one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iostream>
#include <limits>
#include <random>

#include "base/format.h"
#include "ops/lower.h"
#include "support/fused_builder.h"
#include "support/kernel_runner.h"
#include "support/op_errors.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kMinNormal = 0x1p-126;

/// Error in ulp of the exact value. Errors below the smallest normal number (or `floor`) do not count: denormals may
/// flush.
double ulp_error(double got, double want, double floor = kMinNormal) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : kInf;
  if (std::isnan(got)) return kInf;
  const auto rounded = static_cast<double>(static_cast<float>(want));
  if (got == rounded) return 0;
  if (std::isinf(rounded))
    return got == 0x1.fffffep127 * (want > 0 ? 1 : -1) && std::abs(want) < 0x1.000001p128 ? 1 : kInf;
  if (std::abs(got - want) <= floor) return 0;
  if (std::isinf(got)) return std::abs(want) > 0x1.ffffecp127 ? 10 : kInf;
  return std::abs(got - want) / std::ldexp(1.0, std::ilogb(want) - 23);
}

bool is_denormal(double x) { return x != 0 && std::abs(x) < kMinNormal; }

struct Function {
  const char* name;
  double bound;         ///< ulp, as stated in math.glsl
  double low, high;     ///< where half of the points lie
  double absolute = 0;  ///< instead of the bound: |error| <= absolute * |x|
  double floor = kMinNormal;
};

const Function kFunctions[] = {
    {"exp", 1.5, -104, 89},
    {"expm1", 2, -18, 89},
    {"log", 1.5, 0, 4},
    {"log1p", 2, -1, 4},
    {"sin", 2.5, -1e5, 1e5},
    {"cos", 2.5, -1e5, 1e5},
    {"tanh", 3, -10, 10},
    {"erf", 2, -4.5, 4.5},
    {"sigmoid", 4, -90, 20},
    {"silu", 5, -80, 20, 0, 1.1e-36},
    {"softplus", 3, -90, 20},
    {"gelu_erf", 0, -8, 8, 3e-7},
    {"gelu_tanh", 0, -8, 8, 3e-7},
    {"sqrt", 3, 0, 100},
    {"rsqrt", 4, 0, 100},
    {"recip", 2.5, -4, 4},
};

const std::vector<double> kSpecial = {
    0.0,     -0.0,     1.0,     -1.0, kInf, -kInf, std::nan(""), 0.5,    -0.5, 88.7,  -88.7, 89,   -89,   103.9,
    -103.9,  104.5,    -104.5,  13,   -13,  20,    -20,          1e4,    -1e4, 1e20,  -1e20, 3e38, -3e38, 0x1p-126,
    0x1p-24, -0x1p-24, 0x1p-25, 9.0,  9.2,  -9.2,  0.625,        0.9277, 4.0,  -17.6, 40.5,  2.0,  -2.0,  3.14159274};

std::vector<double> points(const Function& f, std::size_t count) {
  std::mt19937_64 engine(std::hash<std::string_view>{}(f.name));
  std::vector<double> x = kSpecial;
  while (x.size() < count) {
    double value;
    if (x.size() % 2 == 0) {
      value = f.low + (f.high - f.low) * static_cast<double>(engine() >> 11) * 0x1p-53;
      if (x.size() % 8 == 0) value *= 1e-3;
    } else {
      value = static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(engine())));
    }
    x.push_back(value);
  }
  for (double& value : x) {
    value = static_cast<double>(static_cast<float>(value));
    if (is_denormal(value)) value = 0;
  }
  return x;
}

class MathGpu : public testing::TestWithParam<Function> {};

TEST_P(MathGpu, ErrorBound) {
  AESHNA_NEED_DEVICE();
  const Function& f = GetParam();
  constexpr std::int64_t kPoints = 1 << 18;
  auto b = FusedBuilder::pointwise({kPoints});
  b.output(b.op(f.name, {b.input()}));
  KernelRunner runner(kernel_device());
  OperandData data = random_data(b.kernel, 1);
  data[0] = points(f, kPoints);
  const KernelSpec spec = lower_pointwise(b.kernel, runner.caps()).back().spec;
  const OperandData got = runner.run(spec, data), exact = evaluate(b.kernel, data);
  note_errors(spec, got, exact);
  double worst = 0, where = 0, worst_got = 0;
  for (std::size_t i = 0; i < data[0].size(); ++i) {
    const double x = data[0][i], want = exact[1][i];
    double error = ulp_error(got[1][i], want, f.floor);
    if (f.absolute > 0) {
      if (std::isinf(x)) {
        error = std::isnan(want) || got[1][i] == want ? 0 : kInf;  // inf * 0 is anybody's
      } else if (!std::isnan(x)) {
        error = std::max(std::abs(got[1][i] - want) - kMinNormal, 0.0) / std::max(std::abs(x), kMinNormal);
        if (std::isnan(error)) error = kInf;
      }
    }
    if (std::string_view(f.name) == "silu" && x == -kInf) error = 0;  // inf * 0
    if (error > worst) worst = error, where = x, worst_got = got[1][i];
  }
  const double bound = f.absolute > 0 ? f.absolute : f.bound;
  std::cout << formatted("{}: largest error {:.3g}{} at {:.9g} (bound {})\n", f.name, worst,
                         f.absolute > 0 ? " |x|" : " ulp", where, bound);
  EXPECT_LE(worst, bound) << f.name << "(" << where << ") gave " << worst_got << ", not "
                          << find_op(f.name).pointwise.eval(where, 0, 0);
}

INSTANTIATE_TEST_SUITE_P(All, MathGpu, testing::ValuesIn(kFunctions),
                         [](const auto& info) { return std::string(info.param.name); });

/// Two-operand functions over all pairs of specials and random pairs; exact ones have bound 0.
/// Operands below `smallest` become 0.
void check_binary(std::string_view name, double bound, double low, double high, double smallest = kMinNormal) {
  std::vector<double> a, b;
  for (const double x : kSpecial) {
    for (const double y : kSpecial) a.push_back(x), b.push_back(y);
  }
  std::mt19937_64 engine(7);
  const auto uniform = [&] { return static_cast<double>(engine() >> 11) * 0x1p-53; };
  const auto bits = [&] { return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(engine()))); };
  while (a.size() < (1u << 18)) {
    const bool anywhere = a.size() % 4 == 0;
    a.push_back(anywhere ? bits() : std::exp2(low + (high - low) * uniform()) * (engine() % 8 == 0 ? -1 : 1));
    b.push_back(anywhere ? bits() : engine() % 4 == 0 ? std::floor(uniform() * 40 - 20) : (uniform() - 0.5) * 40);
  }
  for (std::vector<double>* list : {&a, &b}) {
    for (double& value : *list) {
      value = static_cast<double>(static_cast<float>(value));
      if (std::abs(value) < smallest) value = 0;
    }
  }
  auto builder = FusedBuilder::pointwise({static_cast<std::int64_t>(a.size())});
  const auto x = builder.input(), y = builder.input();
  builder.output(builder.op(name, {x, y}));
  KernelRunner runner(kernel_device());
  OperandData data = random_data(builder.kernel, 1);
  data[0] = a;
  data[1] = b;
  const KernelSpec spec = lower_pointwise(builder.kernel, runner.caps()).back().spec;
  const OperandData got = runner.run(spec, data), exact = evaluate(builder.kernel, data);
  note_errors(spec, got, exact);
  double worst = 0;
  std::size_t where = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double error = ulp_error(got[2][i], exact[2][i]);
    if (error > worst) worst = error, where = i;
  }
  std::cout << formatted("{}: largest error {:.3g} ulp at ({:.9g}, {:.9g}) (bound {})\n", name, worst, a[where],
                         b[where], bound);
  EXPECT_LE(worst, bound) << name << "(" << a[where] << ", " << b[where] << ") gave " << got[2][where] << ", not "
                          << find_op(name).pointwise.eval(a[where], b[where], 0);
}

TEST(MathGpuBinary, Pow) {
  AESHNA_NEED_DEVICE();
  check_binary("pow", 4, -6, 6);
}
TEST(MathGpuBinary, Div) {
  AESHNA_NEED_DEVICE();
  check_binary("div", 2.5, -30, 30);
}
// What is rounded afterwards must not depend on the device: -2.5 / 0.0196078438 is -127.499992, where a division that is one
// place off gives -127.5.
TEST(MathGpuBinary, DivIsRoundedToNearest) {
  AESHNA_NEED_DEVICE();
  constexpr std::int64_t kCount = 1 << 18;
  auto builder = FusedBuilder::pointwise({kCount});
  const auto x = builder.input(), y = builder.input();
  builder.output(builder.op("div", {x, y}));
  builder.output(builder.op("recip", {y}));
  KernelRunner runner(kernel_device());
  OperandData data = random_data(builder.kernel, 1);
  std::mt19937_64 engine(11);
  const auto any = [&] {
    const double m = 1 + static_cast<double>(engine() >> 11) * 0x1p-53;
    return static_cast<double>(static_cast<float>(std::ldexp(m, static_cast<int>(engine() % 40) - 20))) *
           (engine() % 2 ? 1 : -1);
  };
  for (std::size_t i = 0; i < kCount; ++i) data[0][i] = any(), data[1][i] = any();
  data[0][0] = -2.5, data[1][0] = static_cast<double>(5.0F / 255);
  const OperandData got = runner.run(lower_pointwise(builder.kernel, runner.caps()).back().spec, data);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_LE(ulp_error(got[2][i], data[0][i] / data[1][i]), 0.50001)
        << data[0][i] << " / " << data[1][i] << " gave " << got[2][i];
    ASSERT_LE(ulp_error(got[3][i], 1 / data[1][i]), 0.50001) << "1 / " << data[1][i] << " gave " << got[3][i];
  }
}
TEST(MathGpuBinary, Fmod) {
  AESHNA_NEED_DEVICE();
  check_binary("fmod", 0, -30, 30);
}
TEST(MathGpuBinary, Mod) {
  AESHNA_NEED_DEVICE();
  check_binary("mod", 1, -30, 30, 0x1p-100);  // a remainder that flushes would lose b
}
TEST(MathGpuBinary, MaximumMinimum) {
  AESHNA_NEED_DEVICE();
  check_binary("maximum", 0, -30, 30);
  check_binary("minimum", 0, -30, 30);
}

TEST(MathGpuUnary, RoundFloorCeilSign) {
  AESHNA_NEED_DEVICE();
  auto b = FusedBuilder::pointwise({19});
  const auto x = b.input();
  for (const char* name : {"round", "floor", "ceil", "sign", "abs", "relu"}) b.output(b.op(name, {x}));
  b.output(b.op("is_finite", {x}, DType::boolean));
  KernelRunner runner(kernel_device());
  OperandData data = random_data(b.kernel, 1);
  data[0] = {0.5,  1.5,   2.5,          -0.5, -1.5, -2.5, 0.49999997, 8388607.5, -8388607.5,  1e30,
             kInf, -kInf, std::nan(""), 0,    -0.0, 3,    -3,         0x1p-120,  2147483648.0};
  const KernelSpec spec = lower_pointwise(b.kernel, runner.caps()).back().spec;
  EXPECT_EQ(difference(spec, runner.run(spec, data), evaluate(b.kernel, data), 0, 0), "");
}

}  // namespace
}  // namespace aeshna::test

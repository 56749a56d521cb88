#include "support/op_errors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "base/format.h"
#include "ir/device_types.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

struct Errors {
  std::size_t comparisons = 0;
  double worst = 0;

  void add(const Errors& other) {
    comparisons += other.comparisons;
    worst = std::max(worst, other.worst);
  }
};

Errors compare(DType dtype, std::span<const double> got, std::span<const double> want) {
  Errors errors;
  AESHNA_CHECK(got.size() == want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double w = round_to(dtype, want[i]);
    if (!std::isfinite(w)) continue;
    const double error = std::fabs(got[i] - w) / std::max(1.0, std::fabs(w));
    errors.add({.comparisons = 1, .worst = std::isnan(error) ? INFINITY : error});
  }
  return errors;
}

struct OpErrors {
  std::size_t cases = 0;
  Errors forward, gradient;
  std::set<std::string> kernels;
};

struct KernelErrors {
  Errors alone, in_plans;
};

struct Noted {
  std::map<std::string, OpErrors> ops;
  std::map<std::string, std::map<std::string, KernelErrors>> kernels;  ///< family -> variant
};

Noted& noted() {
  static Noted all;
  return all;
}

const char* target() { return std::getenv("AESHNA_TEST_ERRORS"); }

/// Where operands are held in fewer than 32 bits, the same variant has other code and another accuracy.
KernelErrors& noted_kernel(const KernelSpec& spec) {
  std::set<std::string_view> formats;
  for (const KernelOperand& operand : spec.fused->operands) {
    if (is_half(operand.dtype) || is_quantized(operand.dtype)) formats.insert(dtype_name(operand.dtype));
  }
  std::string variant = spec.variant;
  for (const std::string_view format : formats) variant.append(" ").append(format);
  return noted().kernels[spec.family][variant];
}

nlohmann::json to_json(const Errors& errors) { return {{"comparisons", errors.comparisons}, {"worst", errors.worst}}; }

/// JSON has no infinity (it would become null): false if there is one, and the test program fails and says whose it is.
bool expect_finite() {
  bool finite = true;
  const auto expect = [&](const Errors& errors, const std::string& whose) {
    EXPECT_TRUE(std::isfinite(errors.worst)) << "AESHNA_TEST_ERRORS: infinite error of " << whose;
    finite &= std::isfinite(errors.worst);
  };
  for (const auto& [name, op] : noted().ops) {
    expect(op.forward, "op " + name);
    expect(op.gradient, "the gradient of op " + name);
  }
  for (const auto& [family, variants] : noted().kernels) {
    for (const auto& [variant, kernel] : variants) {
      expect(kernel.alone, formatted("kernel {} {}, alone", family, variant));
      expect(kernel.in_plans, formatted("kernel {} {}, in plans", family, variant));
    }
  }
  return finite;
}

class SaveErrors : public testing::Environment {
  void TearDown() override {
    if (target() == nullptr) return;
    ASSERT_TRUE(test_device().device) << "AESHNA_TEST_ERRORS: " << test_device().why;
    if (!expect_finite()) return;
    nlohmann::json ops = nlohmann::json::object(), kernels = nlohmann::json::object();
    for (const auto& [name, op] : noted().ops) {
      ops[name] = {{"cases", op.cases},
                   {"forward", op.forward.worst},
                   {"gradient", op.gradient.worst},
                   {"has_gradient", op.gradient.comparisons > 0},
                   {"kernels", op.kernels}};
    }
    for (const auto& [family, variants] : noted().kernels) {
      for (const auto& [variant, kernel] : variants)
        kernels[family][variant] = {{"alone", to_json(kernel.alone)}, {"in_plans", to_json(kernel.in_plans)}};
    }
    const nlohmann::json all = {{"device", test_device().device->info().name}, {"ops", ops}, {"kernels", kernels}};
    std::ofstream file(target());
    file << all.dump(1) << "\n";
    EXPECT_TRUE(file.flush()) << target();
  }
};

[[maybe_unused]] const testing::Environment* const save_errors = testing::AddGlobalTestEnvironment(new SaveErrors);

}  // namespace

void note_cases(const OpDef& op, std::size_t cases) {
  if (target() != nullptr) noted().ops[op.name].cases += cases;
}

void note_errors(const OpDef& op, bool gradient, const HostTensor& got, const HostTensor& want, const Plan& plan) {
  if (target() == nullptr) return;
  const Errors errors = compare(want.type.dtype, got.data, want.data);
  OpErrors& of_op = noted().ops[op.name];
  (gradient ? of_op.gradient : of_op.forward).add(errors);
  std::set<KernelErrors*> of_kernels;  // once each, however often the plan launches it
  for (const PlanStep& step : plan.steps) {
    if (step.kind != PlanStep::Kind::Dispatch || step.spec.workgroups == 0) continue;
    of_op.kernels.insert(step.spec.family + " " + step.spec.variant);
    of_kernels.insert(&noted_kernel(step.spec));
  }
  for (KernelErrors* kernel : of_kernels) kernel->in_plans.add(errors);
}

void note_errors(const KernelSpec& spec, const OperandData& got, const OperandData& want) {
  if (target() == nullptr || spec.workgroups == 0) return;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const KernelOperand& operand = spec.fused->operands[i];
    if (operand.written) noted_kernel(spec).alone.add(compare(operand.dtype, got[i], want[i]));
  }
}

}  // namespace aeshna::test

#include "support/op_errors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "support/test_device.h"

namespace aeshna::test {
namespace {

struct Noted {
  std::size_t cases = 0;
  double forward = 0, gradient = 0;
  bool has_gradient = false;
  std::set<std::string> kernels;
};

std::map<std::string, Noted>& notes() {
  static std::map<std::string, Noted> all;
  return all;
}

const char* target() { return std::getenv("AESHNA_TEST_ERRORS"); }

}  // namespace

void note_errors(const OpDef& op, std::size_t cases, bool gradient, const HostTensor& got, const HostTensor& want,
                 const Plan& plan) {
  if (target() == nullptr) return;
  Noted& noted = notes()[op.name];
  noted.cases = cases;
  noted.has_gradient |= gradient;
  double& worst = gradient ? noted.gradient : noted.forward;
  for (std::size_t i = 0; i < want.data.size(); ++i) {
    if (!std::isfinite(want.data[i])) continue;
    const double error = std::fabs(got.data.at(i) - want.data[i]) / std::max(1.0, std::fabs(want.data[i]));
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  for (const PlanStep& step : plan.steps) {
    if (step.kind == PlanStep::Kind::Dispatch) noted.kernels.insert(step.spec.family + " " + step.spec.variant);
  }
}

void save_errors() {
  if (target() == nullptr) return;
  nlohmann::json ops;
  for (const auto& [name, n] : notes()) {
    ops[name] = {{"cases", n.cases},
                 {"forward", n.forward},
                 {"gradient", n.gradient},
                 {"has_gradient", n.has_gradient},
                 {"kernels", n.kernels}};
  }
  std::ofstream file(target());
  file << nlohmann::json{{"device", test_device().device->info().name}, {"ops", ops}}.dump(1) << "\n";
  EXPECT_TRUE(file.flush()) << target();
}

}  // namespace aeshna::test

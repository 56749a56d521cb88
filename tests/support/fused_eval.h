#pragma once
// The oracle of kernel tests: a fused kernel computed in double on the host, point by point, straight from the
// definitions in ir/kernel.h. It shares nothing with code generation.
#include <cstdint>
#include <vector>

#include "ir/kernel.h"

namespace aeshna::test {

/// Elements of every operand as doubles (integers exact, booleans 0 or 1).
using OperandData = std::vector<std::vector<double>>;

/// `data` with the written operands replaced; elements that no store reaches keep their value.
OperandData evaluate(const FusedKernel& kernel, OperandData data);

}  // namespace aeshna::test

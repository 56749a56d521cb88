#pragma once
// The largest errors of each op on the test device, for docs/ops.md. With AESHNA_TEST_ERRORS=FILE the test program writes them there:
//   AESHNA_TEST_ERRORS=errors.json aeshna_tests --gtest_filter='*OpRecord.Device*' && aeshna ops --errors errors.json
#include "compile/plan.h"
#include "ir/interpreter.h"
#include "ir/op.h"

namespace aeshna::test {

/// Notes one output of the op's cases: what the device gave, what the interpreter wants, and the kernels of the plan.
void note_errors(const OpDef& op, std::size_t cases, bool gradient, const HostTensor& got, const HostTensor& want,
                 const Plan& plan);
/// Writes everything noted so far.
void save_errors();

}  // namespace aeshna::test

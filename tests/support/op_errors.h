#pragma once
// The largest errors of each op and of each kernel variant on the test device, for docs/ops.md. With
// AESHNA_TEST_ERRORS=FILE the test program writes them there when it ends:
//   AESHNA_TEST_ERRORS=errors.json aeshna_tests --gtest_filter=-'Long*' && aeshna ops --errors errors.json
// An error is |got - want| / max(1, |want|), of every finite value that is wanted, rounded to its dtype.
#include "compile/plan.h"
#include "ir/interpreter.h"
#include "ir/op.h"
#include "support/fused_eval.h"

namespace aeshna::test {

/// Notes that so many more cases of the op are compared.
void note_cases(const OpDef& op, std::size_t cases);
/// Notes one output of the op's cases: what the device gave, what the interpreter wants, and the kernels of the plan.
/// Its error is the op's, and counts for every kernel of the plan: which of them made it is not known.
void note_errors(const OpDef& op, bool gradient, const HostTensor& got, const HostTensor& want, const Plan& plan);
/// Notes what one kernel, run by itself, wrote to its operands, and what the oracle wants there.
void note_errors(const KernelSpec& spec, const OperandData& got, const OperandData& want);

}  // namespace aeshna::test

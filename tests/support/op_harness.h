#pragma once
// Runs an op record on its own cases: types, value, gradient and device. No record exists without passing it.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/interpreter.h"
#include "ir/op.h"

namespace aeshna::test {

/// A host tensor of these values (an f32 one unless said otherwise).
HostTensor tensor(Shape shape, std::vector<double> values, DType dtype = DType::f32);
/// The interpreter's value of `v`, given the leaves.
HostTensor value_of(Value v, const TensorMap& leaves = {});

/// Of the leaf of this name, which must exist.
Shape shape_of(const Graph& g, std::string_view leaf);

/// "add case 3 (f32[3, 5], f32[5])", for messages.
std::string describe(const OpDef& op, const OpCase& c, std::size_t index);

/// The case's operands: explicit values (cycled) or draws from its ranges, representable in their dtype.
std::vector<HostTensor> case_operands(const OpCase& c, std::uint64_t seed);

/// infer, eval and the interpreter agree on types; a composite's expansion gives the values of its eval.
void check_values(const OpDef& op, const OpCase& c);

/// How the op sits in the graph whose gradient is checked.
enum class Placement : std::uint8_t {
  MidGraph,   ///< a factor before it, a random upstream gradient behind it
  Repeated,   ///< the same value for all float operands of equal type
  UsedTwice,  ///< its operands have another consumer
};
/// The interpreter's gradient against central differences in double: random directions and single elements.
/// False if the placement does not apply to the case.
bool check_gradient(const OpDef& op, const OpCase& c, Placement placement);

/// All cases as independent parts of one session on the test device: every result, and every element of every gradient,
/// against the interpreter.
void check_device(const OpDef& op, std::span<const OpCase> cases);

}  // namespace aeshna::test

#pragma once
// What is done to a fused kernel once it is built.
#include "ir/kernel.h"

namespace aeshna {

/// Fewer dimensions: neighbours that every access treats as one become one; batch dimensions of a product that only one operand
/// sees become rows or columns; each operand of a product sees the contracted extent in as few dimensions as it can.
void merge_dimensions(FusedKernel& kernel);

}  // namespace aeshna

#pragma once
// Hashes of what decides a node's value or a kernel's text: equal hashes, equal things (128 bits against accident).
#include "base/hash.h"
#include "ir/kernel.h"

namespace aeshna {

/// Bits, not values: 0 and -0 are different attributes.
void add_attrs(Hasher& hash, const Attrs& attrs);

/// Everything of a spec that generate() looks at: specs with equal signatures have equal text and equal push words. Which graph
/// values and nodes it is about is not among it: the layers of a network share their kernels.
Hasher::Key signature(const KernelSpec& spec);

}  // namespace aeshna

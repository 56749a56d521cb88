#pragma once
// Hyperbolic and inverse functions that model formats have and the vocabulary lacks, from what it has; f32, to some ULP over the
// whole range, NaN outside the domain.
#include "aeshna/graph.h"

namespace aeshna {

Value sinh_of(Value x);
Value cosh_of(Value x);
Value asinh_of(Value x);
Value acosh_of(Value x);
Value atanh_of(Value x);
Value asin_of(Value x);
Value acos_of(Value x);
Value atan_of(Value x);

}  // namespace aeshna

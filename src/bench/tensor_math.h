#pragma once
// Sums over tensors of any number type, in double.
#include "aeshna/attrs.h"

namespace aeshna::bench {

double l2_norm(const Literal& tensor);
double sum(const Literal& tensor);

/// Sums of squares over two tensors with equally many elements. Not finite if an element is not.
struct Squares {
  double reference = 0, candidate = 0, difference = 0;
};
Squares compare(const Literal& reference, const Literal& candidate);

}  // namespace aeshna::bench

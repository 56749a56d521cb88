#pragma once
// Kernel candidates of the three archetypes: geometry and variant chosen from (kernel, Caps) alone, never from a timing.
#include <vector>

#include "base/caps.h"
#include "ir/kernel.h"

namespace aeshna {

std::vector<Candidate> lower_pointwise(const FusedKernel& kernel, const Caps& caps);
std::vector<Candidate> lower_reduction(const FusedKernel& kernel, const Caps& caps);
std::vector<Candidate> lower_matmul(const FusedKernel& kernel, const Caps& caps);

}  // namespace aeshna

#pragma once
// Kernel candidates of the three archetypes: geometry and variant chosen from (kernel, Caps) alone, never from a timing.
#include <string>
#include <vector>

#include "base/caps.h"
#include "ir/kernel.h"

namespace aeshna {

/// What of a launch the device does not allow: threads, shared memory, bindings, workspace, workgroups; empty: nothing. (lower.cpp)
std::string launch_obstacle(const KernelSpec& spec, const Caps& caps);

/// Threads of a workgroup: the largest power of two up to `wish` that the device allows. (lower.cpp)
std::uint32_t workgroup_threads(const Caps& caps, std::uint32_t wish);
/// Why a template whose indices are u32 cannot serve: an operand that is too large, or launch_obstacle. Empty: it can. (lower.cpp)
std::string template_obstacle(const KernelSpec& spec, const Caps& caps);

std::vector<Candidate> lower_pointwise(const FusedKernel& kernel, const Caps& caps);
std::vector<Candidate> lower_reduction(const FusedKernel& kernel, const Caps& caps);
std::vector<Candidate> lower_matmul(const FusedKernel& kernel, const Caps& caps);

}  // namespace aeshna

#pragma once
// The geometries of the attention kernels, for the choice and for tests and sweeps that run every one of them.
#include <cstdint>
#include <span>

#include "base/caps.h"
#include "ir/kernel.h"

namespace aeshna {

/// TR x TC threads take BR rows and, at a time, 4 * TC columns.
struct AttentionVariant {
  std::uint32_t br, tr, tc;
  std::uint32_t threads() const { return tr * tc; }
  std::uint32_t rows_per_thread() const { return br / tr; }
};

std::span<const AttentionVariant> attention_variants();

/// One candidate of an attention kernel (any of the three ops). `pack`: forward only, see attention_forward.glsl.
Candidate attention_candidate(const FusedKernel& kernel, const Caps& caps, const AttentionVariant& variant,
                              std::uint32_t parts, bool pack = false);

}  // namespace aeshna

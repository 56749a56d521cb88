// The GLSL text of src/kernels, embedded at build time by cmake/embed_kernels.cmake.
#pragma once

#include <span>
#include <string_view>

namespace aeshna {

struct EmbeddedKernel {
  std::string_view name;  // path under src/kernels without ".glsl", such as "math" or "gemm/scalar"
  std::string_view text;
};

// All embedded kernels, sorted by name.
std::span<const EmbeddedKernel> embedded_kernels();

}  // namespace aeshna

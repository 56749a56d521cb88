#include "codegen/codegen.h"

#include <array>
#include <cstdint>
#include <string_view>

#include "base/fail.h"
#include "base/hash.h"
#include "codegen/families.h"

namespace aeshna {
namespace {

/// Raise it when equal text would compile to other SPIR-V with the same glslang: other options.
constexpr std::uint64_t kCodegenVersion = 2;

struct Family {
  std::string_view name;
  KernelSource (*generate)(KernelWriter&);
};
constexpr std::array kFamilies{
    Family{"pointwise", generate_pointwise},
    Family{"reduce", generate_reduce},
    Family{"matmul", generate_matmul},
    Family{"gemv", generate_gemv},
    Family{"scan", generate_scan},
    Family{"sort_chunks", generate_sort_chunks},
    Family{"sort_merge", generate_sort_merge},
    Family{"place", generate_place},
    Family{"cache", generate_cache},
    Family{"winograd", generate_winograd},
    Family{"attention", generate_attention},
    Family{"attention_gradient", generate_attention_gradient},
    Family{"index_order", generate_index_order},
    Family{"radix_offsets", generate_radix_offsets},
    Family{"radix_move", generate_radix_move},
    Family{"scatter_runs", generate_scatter_runs},
    Family{"scatter_joins", generate_scatter_joins},
};

}  // namespace

KernelSource generate(const KernelSpec& spec, const Caps& caps) {
  AESHNA_CHECK(spec.fused != nullptr);
  for (const Family& family : kFamilies) {
    if (family.name != spec.family) continue;
    // Equal extents of one shape may differ in the next: share words only where the block would overflow.
    KernelSource source;
    for (const bool merge : {false, true}) {
      KernelWriter writer(spec, caps, merge);
      source = family.generate(writer);
      if (!writer.overflowed()) break;
    }
    Hasher hash;
    hash.add(kCodegenVersion).add(source.glsl).add("vulkan1.2 spirv1.5").add(glslang_version());
    for (const std::uint32_t size : spec.local) hash.add(std::uint64_t{size});
    source.key = hash.hex();
    return source;
  }
  fail(ErrorCode::Internal, "no kernel family is called '{}'", spec.family);
}

}  // namespace aeshna

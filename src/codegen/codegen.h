#pragma once
// KernelSpec -> GLSL -> SPIR-V.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/caps.h"
#include "ir/kernel.h"

namespace aeshna {

/// Complete GLSL of one kernel and its push words. Extents and strides that are not 0 or 1 go to the push block; what does
/// not fit Caps.push_bytes becomes a literal of the text. Equal keys mean equal text.
KernelSource generate(const KernelSpec& spec, const Caps& caps);

/// glslang in process (SPIR-V 1.5, Vulkan 1.2). Throws Error(Internal) with glslang's log and the numbered source lines around it.
/// Thread-safe.
std::vector<std::uint32_t> compile_glsl(std::string_view glsl, std::string_view name);
/// Version of the glslang that is linked in, e.g. "15.1.0".
std::string glslang_version();
/// Starts glslang's one-time set-up (80-115 ms) on another thread.
void warm_up_glslang();

/// SPIR-V on disk by key; see spirv_cache.cpp for the file format. An unreadable, truncated or corrupt entry counts as absent and is rewritten.
/// Nothing stays in memory: whoever asks keeps what it makes of the words (KernelCache keeps kernels).
class SpirvCache {
 public:
  /// Empty path: nothing is stored.
  explicit SpirvCache(std::filesystem::path directory);
  /// From disk, or compiled and stored. Threads that ask for one key at the same time share one compilation.
  std::vector<std::uint32_t> get(const KernelSource& source, std::string_view name);
  /// True if nothing is stored on disk.
  bool empty() const;
  struct Stats {
    std::uint64_t shared = 0, disk_hits = 0, compiled = 0, corrupt = 0;
  };
  Stats stats() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace aeshna

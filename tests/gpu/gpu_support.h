#pragma once
// Small kernels and short ways to write device tests.
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "aeshna/error.h"
#include "codegen/codegen.h"
#include "gpu/device.h"

namespace aeshna::gpu {

/// Runs `code`, which must throw Error(code), and returns its text.
template <class F>
std::string error_text(ErrorCode code, F&& run) {
  try {
    run();
  } catch (const Error& e) {
    EXPECT_EQ(error_code_name(e.code()), std::string(error_code_name(code))) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

struct TestKernel {
  std::vector<std::uint32_t> spirv;
  KernelDesc desc;
};

/// `body` per invocation i < push word n; a (binding 0) is read and b (binding 1) written; push word 1 is `k`.
inline TestKernel test_kernel(const std::string& name, const std::string& body) {
  const std::string glsl = R"(#version 460
layout(local_size_x = 64) in;
layout(set = 0, binding = 0, std430) readonly buffer A { uint a[]; };
layout(set = 0, binding = 1, std430) buffer B { uint b[]; };
layout(push_constant) uniform Push { uint n; uint k; };
void main() {
  uint i = gl_GlobalInvocationID.x;
  if (i >= n) return;
  )" + body + "\n}\n";
  TestKernel kernel{compile_glsl(glsl, name), {}};
  kernel.desc = {.name = name, .spirv = {}, .bindings = 2, .push_bytes = 8, .local = {64, 1, 1}};
  return kernel;
}

inline std::shared_ptr<Kernel> create(Device& device, const TestKernel& kernel) {
  KernelDesc desc = kernel.desc;
  desc.spirv = kernel.spirv;
  return device.create_kernel(desc);
}

inline BufferRange all(const std::shared_ptr<Buffer>& buffer) { return {buffer.get(), 0, buffer->size()}; }

inline DispatchCommand dispatch(const std::shared_ptr<Kernel>& kernel, BufferRange a, BufferRange b, std::uint32_t n,
                                std::uint32_t k = 0, std::string label = "test") {
  return {kernel.get(), {a, b}, {n, k}, {(n + 63) / 64, 1, 1}, std::move(label)};
}

inline void run(Device& device, std::vector<Command> commands) {
  const auto list = device.record(commands, {}, "run");
  CommandList* const lists[] = {list.get()};
  device.wait(device.submit(lists));
}

inline void upload(Device& device, const std::shared_ptr<Buffer>& buffer, const std::vector<std::uint32_t>& words) {
  const auto staging = device.create_buffer(words.size() * 4, MemoryKind::Upload, "staging");
  std::memcpy(staging->mapped(), words.data(), words.size() * 4);
  run(device, {CopyCommand{all(staging), {buffer.get(), 0, words.size() * 4}}});
}

inline std::vector<std::uint32_t> download(Device& device, const std::shared_ptr<Buffer>& buffer) {
  std::vector<std::uint32_t> words(buffer->size() / 4);
  const auto staging = device.create_buffer(words.size() * 4, MemoryKind::Readback, "readback");
  run(device, {CopyCommand{{buffer.get(), 0, words.size() * 4}, all(staging)}});
  std::memcpy(words.data(), staging->mapped(), words.size() * 4);
  return words;
}

}  // namespace aeshna::gpu

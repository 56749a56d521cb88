#include "support/kernel_runner.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>

#include "aeshna/quantize.h"
#include "base/fail.h"
#include "base/format.h"
#include "base/half.h"
#include "codegen/codegen.h"
#include "gpu/launch.h"
#include "ir/device_types.h"
#include "runtime/convert.h"
#include "support/op_errors.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

using Words = std::vector<std::uint32_t>;

constexpr std::uint32_t kCanary = 0x7fc0cafe;  // a NaN, so that a value read from beyond an operand shows
constexpr std::uint64_t kCanaryWords = 64;

std::uint32_t to_word(DType dtype, double value) {
  switch (dtype) {
    case DType::f32:
      return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case DType::boolean:
      return value != 0 ? 1 : 0;
    default:
      return static_cast<std::uint32_t>(static_cast<std::int64_t>(value));
  }
}

Literal quantized(DType dtype, const std::vector<double>& values) {
  return quantize(Literal::from_doubles({DType::f32, {std::ssize(values)}}, values), dtype);
}

/// An operand's device form.
Words to_words(DType dtype, const std::vector<double>& values) {
  if (is_quantized(dtype)) {
    const Literal blocks = quantized(dtype, values);
    AESHNA_CHECK(blocks.to_doubles() == values);  // the oracle computes with the values
    Words words(device_bytes(blocks.type()) / 4);
    to_device(dtype, blocks.bytes(), 0, values.size(), words);
    return words;
  }
  if (!is_half(dtype)) {
    Words words;
    for (double value : values) words.push_back(to_word(dtype, value));
    return words;
  }
  Words words((values.size() + 1) / 2, 0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<float>(values[i]);
    const std::uint32_t bits = dtype == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
    words[i / 2] |= bits << (i % 2 * 16);
  }
  return words;
}

double from_word(DType dtype, std::uint32_t word) {
  switch (dtype) {
    case DType::f32:
      return static_cast<double>(std::bit_cast<float>(word));
    case DType::i32:
      return static_cast<double>(static_cast<std::int32_t>(word));
    default:
      return word;
  }
}

/// The inverse: the first `count` elements that the words hold.
std::vector<double> from_words(DType dtype, std::span<const std::uint32_t> words, std::size_t count) {
  if (is_quantized(dtype)) {
    const TensorType type{dtype, {static_cast<std::int64_t>(count)}};
    std::vector<std::byte> blocks(static_cast<std::size_t>(type.bytes()));
    to_host(dtype, words, 0, count, blocks);
    return Literal(type, blocks).to_doubles();
  }
  std::vector<double> values;
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_half(dtype)) {
      values.push_back(from_word(dtype, words[i]));
      continue;
    }
    const auto bits = static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16));
    values.push_back(dtype == DType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits));
  }
  return values;
}

}  // namespace

std::shared_ptr<gpu::Device> kernel_device() {
  const auto& device = test_device().device;
  return device ? device->shared() : nullptr;
}

OperandData KernelRunner::run(const KernelSpec& spec, const OperandData& data, Options options) {
  const FusedKernel& fused = *spec.fused;
  AESHNA_CHECK(data.size() == fused.operands.size());
  const KernelSource source = generate(spec, caps_);
  const auto push_bytes = static_cast<std::uint32_t>(source.push.size() * 4);
  gpu::check_launch(spec, push_bytes, source.bindings, caps_);
  const std::array<std::uint32_t, 3> groups = gpu::fold_groups(spec.workgroups, caps_);

  // One buffer per binding (an in-place pair shares one), each followed by a canary.
  struct Binding {
    std::shared_ptr<gpu::Buffer> buffer;
    std::uint64_t offset, words;
  };
  std::vector<Binding> bindings;
  std::vector<std::shared_ptr<void>> owners;
  Words initial;  // of all buffers, one after the other
  const std::uint64_t alignment = std::max<std::uint64_t>(device_->caps().storage_alignment, 16) / 4;
  const auto bind = [&](const Words& content) {
    const std::uint64_t offset = initial.size();
    bindings.push_back({nullptr, offset, content.size()});
    initial.insert(initial.end(), content.begin(), content.end());
    initial.resize((initial.size() + kCanaryWords + alignment - 1) / alignment * alignment, kCanary);
  };
  for (std::size_t i = 0; i < data.size(); ++i) {
    const KernelOperand& operand = fused.operands[i];
    if (options.in_place && operand.in_place_of) {
      bindings.push_back(bindings.at(*operand.in_place_of));
      continue;
    }
    AESHNA_CHECK(data[i].size() == static_cast<std::size_t>(operand.elements));
    Words words = to_words(operand.dtype, data[i]);
    if (words.empty()) words.push_back(kCanary);  // a descriptor covers at least one word
    bind(words);
  }
  if (spec.workspace_bytes > 0) bind(Words(spec.workspace_bytes / 4, kCanary));
  const std::size_t counters = bindings.size();
  if (spec.counters > 0) bind(Words(spec.counters, 0));
  AESHNA_CHECK(bindings.size() == source.bindings);

  const std::uint64_t bytes = initial.size() * 4;
  const auto device_buffer = device_->create_buffer(bytes, gpu::MemoryKind::Device, "kernel test operands");
  const auto upload = device_->create_buffer(bytes, gpu::MemoryKind::Upload, "kernel test upload");
  const auto readback = device_->create_buffer(bytes, gpu::MemoryKind::Readback, "kernel test readback");
  std::memcpy(upload->mapped(), initial.data(), bytes);
  owners = {device_buffer, upload, readback};

  std::vector<gpu::Command> commands;
  commands.push_back(gpu::CopyCommand{{upload.get(), 0, bytes}, {device_buffer.get(), 0, bytes}});
  commands.push_back(gpu::BarrierCommand{});
  if (spec.workgroups > 0) {
    std::shared_ptr<gpu::Kernel>& kernel = kernels_[source.key];
    if (kernel == nullptr) {
      const std::vector<std::uint32_t> spirv = compile_glsl(source.glsl, spec.family);
      kernel = device_->create_kernel({.name = spec.family + " " + spec.variant,
                                       .spirv = spirv,
                                       .bindings = source.bindings,
                                       .push_bytes = push_bytes,
                                       .local = spec.local,
                                       .shared_bytes = spec.shared_bytes});
    }
    gpu::DispatchCommand dispatch{
        .kernel = kernel.get(), .operands = {}, .push = source.push, .groups = groups, .label = spec.variant};
    for (const Binding& binding : bindings)
      dispatch.operands.push_back({device_buffer.get(), binding.offset * 4, binding.words * 4});
    commands.push_back(std::move(dispatch));
    owners.push_back(kernel);
  }
  commands.push_back(gpu::BarrierCommand{});
  commands.push_back(gpu::CopyCommand{{device_buffer.get(), 0, bytes}, {readback.get(), 0, bytes}});
  const auto list = device_->record(commands, owners, "kernel test");

  Words result(initial.size());
  gpu::CommandList* const lists[] = {list.get()};
  const int launches = options.in_place ? 1 : 2;
  for (int launch = 0; launch < launches; ++launch) {
    device_->wait(device_->submit(lists));
    Words again(initial.size());
    std::memcpy(again.data(), readback->mapped(), bytes);
    if (launch > 0) {
      for (std::size_t i = 0; i < data.size(); ++i) {  // not the workspace: its order is free
        const auto first = static_cast<std::ptrdiff_t>(bindings[i].offset),
                   count = static_cast<std::ptrdiff_t>(bindings[i].words);
        if (!std::equal(again.begin() + first, again.begin() + first + count, result.begin() + first)) {
          fail(ErrorCode::Internal, "{} {}: operand {} differs between two launches", spec.family, spec.variant, i);
        }
      }
    }
    result = std::move(again);
  }

  std::vector<bool> owned(result.size(), false);
  for (const Binding& binding : bindings) {
    std::fill_n(owned.begin() + static_cast<std::ptrdiff_t>(binding.offset), binding.words, true);
  }
  for (std::size_t word = 0; word < result.size(); ++word) {
    if (!owned[word] && result[word] != kCanary) {
      fail(ErrorCode::Internal, "{} {}: word {} beyond an operand was written", spec.family, spec.variant, word);
    }
  }
  for (std::uint64_t i = 0; i < spec.counters; ++i) {
    if (result[bindings[counters].offset + i] != 0) {
      fail(ErrorCode::Internal, "{} {}: counter {} was left at {}", spec.family, spec.variant, i,
           result[bindings[counters].offset + i]);
    }
  }
  OperandData values;
  for (std::size_t i = 0; i < data.size(); ++i) {
    const auto words = std::span(result).subspan(bindings[i].offset, bindings[i].words);
    values.push_back(from_words(fused.operands[i].dtype, words, data[i].size()));
  }
  return values;
}

OperandData random_data(const FusedKernel& kernel, std::uint64_t seed, double low, double high) {
  std::mt19937_64 engine(seed);
  OperandData data;
  for (const KernelOperand& operand : kernel.operands) {
    std::vector<double> values(static_cast<std::size_t>(operand.elements));
    for (double& value : values) {
      const double unit = static_cast<double>(engine() >> 11) * 0x1p-53;
      if (operand.written) {
        value = -77;
      } else if (is_quantized(operand.dtype)) {
        value = low + (high - low) * unit;
      } else if (is_float(operand.dtype)) {
        value = round_to_float(operand.dtype, low + (high - low) * unit);
      } else if (operand.dtype == DType::boolean) {
        value = unit < 0.5 ? 0 : 1;
      } else {
        const double from = operand.dtype == DType::u32 ? std::max(low, 0.0) : low;
        value = std::floor(from + (high + 1 - from) * unit);
      }
      if (operand.written && operand.dtype == DType::u32) value = 77;
      if (operand.written && operand.dtype == DType::boolean) value = 0;
    }
    // Values that quantizing does not change: the search for q6_K's scales settles when it sees what it chose.
    for (int i = 0; i < 2 && is_quantized(operand.dtype); ++i) values = quantized(operand.dtype, values).to_doubles();
    data.push_back(std::move(values));
  }
  return data;
}

std::string difference(const KernelSpec& spec, const OperandData& got, const OperandData& want, double rtol,
                       double atol) {
  if (got.size() != want.size()) return formatted("{} operands, not {}", got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (got[i].size() != want[i].size())
      return formatted("operand {} has {} elements, not {}", i, got[i].size(), want[i].size());
  }
  note_errors(spec, got, want);
  for (std::size_t i = 0; i < want.size(); ++i) {
    const DType dtype = spec.fused->operands[i].dtype;
    std::size_t wrong = 0, first = 0;
    for (std::size_t e = 0; e < want[i].size(); ++e) {
      const double g = got[i][e], w = want[i][e];
      bool same = g == w || (std::isnan(g) && std::isnan(w));
      if (!same && is_float(dtype)) {
        const double rounded = round_to_float(dtype, w);  // beyond its range: infinite
        same = g == rounded || std::abs(g - w) <= atol + rtol * std::abs(w);
      }
      if (!same && wrong++ == 0) first = e;
    }
    if (wrong > 0) {
      return formatted("operand {}: {} of {} elements differ; element {} is {}, not {}", i, wrong, want[i].size(),
                       first, got[i][first], want[i][first]);
    }
  }
  return {};
}

}  // namespace aeshna::test

// Attention forward, dQ, and dK with dV: times of the kernels that the compiler would choose, and with --sweep of every variant
// and split. bench/attention.py does the same shapes with PyTorch.
//   bench_attention [--device SEL] [--json FILE] [--ops NAME,...] [--shapes Q/KxH/KVxD[c][@P],...] [--sweep [--try BRxTRxTC,...]]
//                   [--check]
//   bench_attention --choose UNITS [--shapes ...]: no device; what would be chosen on one with so many compute units
// A shape: queries/keys x heads/kv_heads x head_dim, c for causal (offset keys - queries), @P for queries from position P on that is known at
// run time alone, in a cache of so many keys (forward). Operands lie as projections leave them:
// [B, S, heads, D]. Times are those of one launch among dependent ones: a barrier stands between repetitions.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "aeshna/device.h"
#include "arguments.h"
#include "base/fail.h"
#include "base/format.h"
#include "base/philox.h"
#include "codegen/codegen.h"
#include "gpu/device.h"
#include "ir/op.h"
#include "kernel_bench.h"
#include "ops/attention_variants.h"

namespace {

using namespace aeshna;

struct Problem {
  std::int64_t queries, keys, heads, kv_heads, head_dim;
  bool causal;
  std::int64_t position = -1;  ///< where the queries are in a cache; below 0: no cache
  std::string name() const {
    return formatted("{}/{}x{}/{}x{}{}{}", queries, keys, heads, kv_heads, head_dim, causal ? "c" : "",
                     position < 0 ? "" : formatted("@{}", position));
  }
};

// Whisper's encoder, SmolLM2, SmolVLA's self and cross attention, a U-Net's, long sequences, decoding.
constexpr Problem kProblems[] = {
    {1500, 1500, 6, 6, 64, false},   {128, 128, 9, 3, 64, true},     {50, 50, 15, 5, 64, true},
    {50, 16, 15, 5, 64, false},      {256, 256, 4, 4, 32, false},    {64, 64, 8, 8, 32, false},
    {4096, 4096, 16, 16, 64, false}, {4096, 4096, 16, 16, 64, true}, {8192, 8192, 8, 8, 64, true},
    {2048, 2048, 16, 16, 128, true}, {1024, 1024, 8, 8, 80, false},  {1, 2048, 9, 3, 64, true},
    {1, 8192, 32, 8, 128, true}};

FusedKernel fused(std::string_view op, const Problem& p) {
  FusedKernel kernel;
  kernel.kind = FusedKernel::Kind::Template;
  kernel.anchor = &find_op(op);
  TemplateCall& call = kernel.call;
  const auto operand = [&](const TensorType& type, bool written) {
    KernelOperand o{};
    o.dtype = type.dtype;
    o.elements = type.shape.elements();
    o.written = written;
    kernel.operands.push_back(o);
    return static_cast<std::uint32_t>(kernel.operands.size() - 1);
  };
  const auto input = [&](Shape shape, bool heads_first) {
    call.inputs.push_back({DType::f32, shape});
    Access view;
    const auto dense = dense_strides(shape);
    view.strides.assign(dense.begin(), dense.begin() + shape.rank());
    if (heads_first) view.strides = {shape[1] * shape[2] * shape[3], shape[3], shape[1] * shape[3], 1};
    call.views.push_back(view);
    call.input_operands.push_back(operand(call.inputs.back(), false));
  };
  input({1, p.heads, p.queries, p.head_dim}, true);
  input({1, p.kv_heads, p.keys, p.head_dim}, true);
  input({1, p.kv_heads, p.keys, p.head_dim}, true);
  if (op != "attention") {
    input({1, p.queries, p.heads, p.head_dim}, false);
    input({1, p.heads, p.queries}, false);
    input({1, p.queries, p.heads}, false);
  }
  if (p.position >= 0) {
    call.inputs.push_back({DType::i32, {1}});
    Access view;
    view.strides = {1};
    call.views.push_back(view);
    call.input_operands.push_back(operand(call.inputs.back(), false));
  }
  call.attrs = {{"scale", 1 / std::sqrt(static_cast<double>(p.head_dim))},
                {"causal", p.causal},
                {"window", std::int64_t{0}},
                {"query_offset", p.causal && p.position < 0 ? p.keys - p.queries : 0},
                {"ring", false}};
  call.results = kernel.anchor->infer(InferContext{*kernel.anchor, call.inputs, call.attrs, SourceLine()});
  for (const TensorType& type : call.results) call.result_operands.push_back(operand(type, true));
  return kernel;
}

void set_operands(bench::KernelBench& bench, const FusedKernel& kernel, const Problem& p) {
  PhiloxStream stream(7, 0);
  bench.set_operands(kernel, [&](std::size_t i) {
    if (kernel.operands[i].dtype == DType::i32)
      return std::vector<float>{std::bit_cast<float>(static_cast<std::int32_t>(p.position))};
    std::vector<float> values(static_cast<std::size_t>(kernel.operands[i].elements));
    for (float& v : values) v = static_cast<float>(2 * stream.next_uniform() - 1);
    // lse: near its true value, else weights overflow.
    if (i == 4)
      std::ranges::fill(values, static_cast<float>(std::log(static_cast<double>(kernel.call.inputs[1].shape[2]))));
    return values;
  });
}

std::vector<Candidate> every_candidate(const FusedKernel& kernel, const Problem& p, const Caps& caps,
                                       std::span<const AttentionVariant> more) {
  std::vector<Candidate> candidates;
  const bool forward = kernel.anchor->name == "attention", packed = forward && p.heads > p.kv_heads && p.queries * (p.heads / p.kv_heads) <= 64;
  const std::int64_t columns = kernel.anchor->name == "attention_dkv" ? p.queries * (p.heads / p.kv_heads) : p.keys;
  std::vector<AttentionVariant> variants(attention_variants().begin(), attention_variants().end());
  variants.insert(variants.end(), more.begin(), more.end());
  for (const AttentionVariant& v : variants) {
    if (v.threads() < 32) continue;
    for (const std::uint32_t parts : {1u, 2u, 3u, 4u, 6u, 8u, 12u, 16u, 24u, 32u}) {
      if (parts > 1 && std::int64_t{parts} * 4 * v.tc > columns) continue;
      for (const bool pack : {false, true}) {
        if (!pack || packed) candidates.push_back(attention_candidate(kernel, caps, v, parts, pack));
      }
    }
  }
  std::erase_if(candidates, [](const Candidate& c) { return !c.rejected.empty(); });
  return candidates;
}

std::vector<Problem> parse_shapes(const std::string& text) {
  std::vector<Problem> problems;
  for (const std::string& shape : bench::split(text)) {
    long long q = 0, k = 0, h = 0, kv = 0, d = 0;
    if (std::sscanf(shape.c_str(), "%lld/%lldx%lld/%lldx%lld", &q, &k, &h, &kv, &d) != 5 || q <= 0 || k <= 0 || h <= 0 || kv <= 0 || d <= 0)
      fail(ErrorCode::InvalidArgument, "'{}' is not Q/KxH/KVxD", shape);
    const std::size_t at = shape.find('@');
    problems.push_back({.queries = q,
                        .keys = k,
                        .heads = h,
                        .kv_heads = kv,
                        .head_dim = d,
                        .causal = shape.substr(0, at).ends_with('c'),
                        .position = at == std::string::npos ? -1 : std::stoll(shape.substr(at + 1))});
  }
  return problems;
}

std::vector<AttentionVariant> parse_variants(const std::string& text) {
  std::vector<AttentionVariant> variants;
  for (const std::string& one : bench::split(text)) {
    AttentionVariant v{};
    if (std::sscanf(one.c_str(), "%ux%ux%u", &v.br, &v.tr, &v.tc) != 3 || v.tr < 2 || v.br % v.tr != 0 || (v.tr & (v.tr - 1)) != 0 ||
        (v.tc & (v.tc - 1)) != 0) {
      fail(ErrorCode::InvalidArgument, "'{}' is not BRxTRxTC with powers of two for TR and TC, and BR a multiple of TR", one);
    }
    variants.push_back(v);
  }
  return variants;
}

int run(int argc, char** argv) {
  std::string device_name, json_file;
  std::vector<Problem> problems(std::begin(kProblems), std::end(kProblems));
  bool sweep = false, check = false;
  std::uint32_t units = 0;
  std::vector<AttentionVariant> more;
  std::vector<std::string> ops = {"attention", "attention_dq", "attention_dkv"};
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) fail(ErrorCode::InvalidArgument, "{} needs a value", arg);
      return argv[++i];
    };
    if (arg == "--device") device_name = value();
    else if (arg == "--json") json_file = value();
    else if (arg == "--shapes") problems = parse_shapes(value());
    else if (arg == "--ops")
      ops = bench::split(value());
    else if (arg == "--choose") units = static_cast<std::uint32_t>(std::max(1, std::atoi(value().c_str())));
    else if (arg == "--sweep") sweep = true;
    else if (arg == "--try") more = parse_variants(value());
    else if (arg == "--check") check = true;
    else fail(ErrorCode::InvalidArgument, "unknown option {}", arg);
  }

  if (units > 0) {
    Caps caps;
    caps.compute_units = units;
    caps.shared_bytes = 49152;
    caps.max_storage_buffers = 16;
    for (const Problem& p : problems) {
      for (const std::string& op : ops) {
        const FusedKernel kernel = fused(op, p);
        for (const Candidate& c : kernel.anchor->lower(kernel, caps)) {
          if (!c.rejected.empty()) continue;
          std::printf("%-28s %-14s %6llu workgroups of %3u  %s\n", p.name().c_str(), op.c_str(),
                      static_cast<unsigned long long>(c.spec.workgroups), c.spec.local[0], c.spec.variant.c_str());
          break;
        }
      }
    }
    return 0;
  }

  const Device device({.selector = device_name, .caps = {}, .validation = false});
  bench::KernelBench bench(*device.shared());
  nlohmann::json rows = nlohmann::json::array();
  for (const Problem& p : problems) {
    for (const std::string& op : ops) {
      if ((p.queries < 4 || p.position >= 0) && op != "attention") continue;  // decoding has no gradient
      const FusedKernel kernel = fused(op, p);
      auto candidates = kernel.anchor->lower(kernel, bench.caps());
      std::erase_if(candidates, [](const Candidate& c) { return !c.rejected.empty(); });
      if (candidates.empty()) fail(ErrorCode::Unsupported, "no kernel for {} {}", op, p.name());
      candidates.resize(1);
      if (sweep) {
        for (Candidate& c : every_candidate(kernel, p, bench.caps(), more)) candidates.push_back(std::move(c));
      }
      bench.build(candidates);
      set_operands(bench, kernel, p);
      std::vector<float> reference;
      std::vector<std::pair<double, std::string>> times;
      for (const Candidate& c : candidates) {
        const double us = bench.time(c.spec, sweep ? 3 : 15, sweep ? 1000 : 5000).gpu_us;
        times.emplace_back(us, c.spec.variant);
        rows.push_back({{"op", op}, {"shape", p.name()}, {"variant", c.spec.variant}, {"us", us}, {"chosen", &c == candidates.data()},
                        {"tflops", c.spec.flops / us / 1e6}});
        if (!check) continue;
        const std::vector<float> got = bench.results(c.spec);
        if (reference.empty()) reference = got;
        double worst = 0;
        for (std::size_t i = 0; i < got.size(); ++i) {
          const double difference = std::abs(static_cast<double>(got[i]) - static_cast<double>(reference[i]));
          worst = std::max(worst, std::isnan(difference) ? INFINITY : difference / (1 + std::abs(static_cast<double>(reference[i]))));
        }
        if (worst > 1e-4) std::printf("  WRONG: %s differs by %g\n", c.spec.variant.c_str(), worst);
      }
      const auto best = std::ranges::min_element(times);
      std::printf("%-28s %-14s %9.1f us %6.1f TFLOP/s  %s", p.name().c_str(), op.c_str(), times[0].first,
                  candidates[0].spec.flops / times[0].first / 1e6, times[0].second.c_str());
      if (sweep) std::printf("   best %.1f us (%s)", best->first, best->second.c_str());
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  if (!json_file.empty()) {
    const nlohmann::json result = {{"device", bench.caps().device_name}, {"attention", rows}};
    std::ofstream(json_file) << result.dump(1) << "\n";
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_attention: %s\n", e.what());
    return 1;
  }
}

// Every geometry of the attention kernels against the records' own evaluation in double, at sizes that fit no tile.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "ir/op.h"
#include "ops/attention.h"
#include "ops/attention_variants.h"
#include "support/kernel_runner.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

struct Sizes {
  std::int64_t batch, heads, kv_heads, queries, keys, head_dim;
};
struct Options {
  bool causal = false;
  std::int64_t window = 0, query_offset = 0;
  std::vector<double> position = {};
  std::optional<Shape> mask = {};
  bool ring = false;
  bool projections = false;  ///< q, k, v as [B, S, heads, D] seen through permute, with `gap` elements before each
  std::int64_t gap = 0;
};

/// A call of one of the three ops, as the compiler would hand it over, with data.
struct Call {
  FusedKernel kernel;
  OperandData data;

  Call(std::string_view op, const Sizes& s, const Options& o = {}) {
    kernel.kind = FusedKernel::Kind::Template;
    kernel.anchor = &find_op(op);
    const bool gradient = op != "attention";
    add(f32({s.batch, s.heads, s.queries, s.head_dim}), -1, 1, o);
    add(f32({s.batch, s.kv_heads, s.keys, s.head_dim}), -1, 1, o);
    add(f32({s.batch, s.kv_heads, s.keys, s.head_dim}), -1, 1, o);
    if (gradient) {
      add(f32({s.batch, s.queries, s.heads, s.head_dim}), -1, 1, {});
      const double lse = std::log(static_cast<double>(s.keys)) + 0.5;
      add(f32({s.batch, s.heads, s.queries}), lse, lse + 1, {});
      add(f32({s.batch, s.queries, s.heads}), -1, 1, {});
    }
    if (o.mask) add(f32(*o.mask), -2, 2, {});
    if (!o.position.empty()) {
      add({DType::i32, {s.batch}}, 0, 0, {});
      data.back() = o.position;
    }
    TemplateCall& call = kernel.call;
    call.attrs = {{"scale", 1.25 / std::sqrt(static_cast<double>(s.head_dim))},
                  {"causal", o.causal},
                  {"window", o.window},
                  {"query_offset", o.query_offset},
                  {"ring", o.ring}};
    call.results = kernel.anchor->infer(InferContext{*kernel.anchor, call.inputs, call.attrs, SourceLine()});
    for (const TensorType& type : call.results) {
      KernelOperand operand{};
      operand.dtype = type.dtype;
      operand.elements = type.shape.elements();
      operand.written = true;
      call.result_operands.push_back(static_cast<std::uint32_t>(kernel.operands.size()));
      kernel.operands.push_back(operand);
      data.emplace_back(static_cast<std::size_t>(operand.elements), -77.0);
    }
  }

  static TensorType f32(Shape shape) { return {DType::f32, shape}; }

  void add(const TensorType& type, double low, double high, const Options& o) {
    TemplateCall& call = kernel.call;
    Access view;
    view.offset = o.gap;
    std::int64_t elements = type.shape.elements() + o.gap;
    const auto dense = dense_strides(type.shape);
    view.strides.assign(dense.begin(), dense.begin() + type.shape.rank());
    if (o.projections) {
      const Shape& s = type.shape;
      const std::int64_t row = s[1] * s[3] + o.gap;
      view.strides = {s[2] * row, s[3], row, 1};
      elements = s[0] * s[2] * row + o.gap;
    }
    KernelOperand operand{};
    operand.dtype = type.dtype;
    operand.elements = elements;
    call.inputs.push_back(type);
    call.views.push_back(view);
    call.input_operands.push_back(static_cast<std::uint32_t>(kernel.operands.size()));
    kernel.operands.push_back(operand);
    std::vector<double> values(static_cast<std::size_t>(elements));
    for (double& v : values) v = static_cast<double>(static_cast<float>(low + (high - low) * static_cast<double>(engine_() >> 11) * 0x1p-53));
    data.push_back(std::move(values));
  }

  OperandData expected() const {
    const TemplateCall& call = kernel.call;
    std::vector<HostTensor> inputs, results;
    std::vector<const HostTensor*> pointers;
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      HostTensor t(call.inputs[i]);
      const Shape& shape = t.type.shape;
      for (std::size_t e = 0; e < t.data.size(); ++e) {
        std::int64_t rest = static_cast<std::int64_t>(e), at = call.views[i].offset;
        for (int d = shape.rank() - 1; d >= 0; --d) {
          at += rest % shape[d] * call.views[i].strides[static_cast<std::size_t>(d)];
          rest /= shape[d];
        }
        t.data[e] = data[call.input_operands[i]][static_cast<std::size_t>(at)];
      }
      inputs.push_back(std::move(t));
    }
    for (const HostTensor& t : inputs) pointers.push_back(&t);
    for (const TensorType& type : call.results) results.emplace_back(type);
    Node node;
    node.op = kernel.anchor;
    node.attrs = call.attrs;
    kernel.anchor->eval(EvalContext{node, pointers, results});
    OperandData want = data;
    for (std::size_t r = 0; r < results.size(); ++r) want[call.result_operands[r]] = results[r].data;
    return want;
  }

 private:
  std::mt19937_64 engine_{5};
};

constexpr const char* kOps[] = {"attention", "attention_dq", "attention_dkv"};

/// One runner for the suite, so that equal kernels are built once.
class AttentionGpu : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (const auto device = kernel_device()) runner_ = std::make_unique<KernelRunner>(device);
  }
  static void TearDownTestSuite() { runner_.reset(); }
  void SetUp() override { AESHNA_NEED_DEVICE(); }
  void TearDown() override {
    std::cout << ran_ << " variants ran";
    for (const auto& [why, count] : skipped_) std::cout << ", " << count << " skipped (" << why << ")";
    std::cout << "\n";
  }

  void check(const Call& call, const AttentionVariant& v, std::uint32_t parts, bool pack = false) {
    const Candidate candidate = attention_candidate(call.kernel, runner_->caps(), v, parts, pack);
    if (!candidate.rejected.empty()) {
      ++skipped_[candidate.rejected];
      return;
    }
    // Gradients of keys add as many terms as there are queries.
    const double tolerance = 4e-6 * (call.kernel.anchor->name == "attention" ? 1 : 4);
    const std::string problem =
        difference(candidate.spec, runner_->run(candidate.spec, call.data), call.expected(), 1e-5, tolerance);
    EXPECT_EQ(problem, "") << call.kernel.anchor->name << " [" << candidate.spec.variant << "] head_dim "
                           << call.kernel.call.inputs[0].shape[3];
    ++ran_;
  }

  static inline std::unique_ptr<KernelRunner> runner_;
  int ran_ = 0;
  std::map<std::string, int> skipped_;
};

constexpr AttentionVariant kSmall = {4, 4, 2}, kWide = {8, 4, 8};

TEST_F(AttentionGpu, EveryVariant) {
  constexpr std::int64_t kHeadDims[] = {64, 20, 80, 33, 128, 96, 5};
  std::size_t turn = 0;
  for (const AttentionVariant& v : attention_variants()) {
    for (const char* op : kOps) {
      ++turn;
      for (std::size_t k = 0; k < std::size(kHeadDims); ++k) {  // the next one that fits
        // Two tiles and a bit, each way; splits of uneven length.
        const Sizes sizes{1, 2, 1, v.br + v.br / 2 + 1, 8 * v.tc + 3, kHeadDims[(turn + k) % std::size(kHeadDims)]};
        const int ran = ran_;
        check(Call(op, sizes, {.causal = turn % 2 == 0, .query_offset = turn % 2 == 0 ? 2 : 0}), v, turn % 3 == 0 ? 2 : 1);
        if (ran_ > ran) break;
      }
    }
  }
  EXPECT_GE(ran_ + 1, 3 * std::ssize(attention_variants()));  // one needs more shared memory than some devices have
}

TEST_F(AttentionGpu, HeadDimensions) {
  for (const std::int64_t head_dim : {1, 3, 64, 80, 96, 128, 130, 256}) {
    const AttentionVariant v = head_dim > 128 ? kSmall : AttentionVariant{8, 4, 4};
    for (const char* op : kOps) check(Call(op, {1, 2, 2, 11, 21, head_dim}), v, 1);
  }
  EXPECT_EQ(ran_, 24);
}

TEST_F(AttentionGpu, WhoSeesWhat) {
  const Sizes s{2, 4, 2, 13, 29, 8};
  const Options options[] = {
      {.causal = true, .query_offset = 16},
      {.causal = true, .query_offset = -5},
      {.causal = true, .window = 7, .query_offset = 10},
      {.causal = true, .position = {0, 14}},
      {.causal = true, .window = 9, .position = {31, -3}},
      {.causal = true, .window = 17, .position = {3, 100}, .ring = true},
      {.mask = Shape{2, 4, 13, 29}},
      {.causal = true, .query_offset = 4, .mask = Shape{1, 4, 1, 29}},
      {.causal = true, .window = 5, .position = {2, 9}, .mask = Shape{2, 1, 13, 1}},
  };
  for (const Options& o : options) {
    for (const char* op : kOps) {
      const Call call(op, s, o);
      if (ran_ % 4 == 0) {
        check(call, kWide, 3);
      } else {
        check(call, kSmall, 5);
      }
      check(call, kSmall, 1);
    }
  }
  EXPECT_EQ(ran_, 54);
}

TEST_F(AttentionGpu, PackedHeads) {
  for (const Sizes& s : {Sizes{2, 6, 2, 1, 70, 16}, Sizes{1, 9, 3, 3, 50, 16}, Sizes{2, 4, 1, 5, 33, 16}}) {
    const std::vector<double> position(static_cast<std::size_t>(s.batch), static_cast<double>(s.keys / 2));
    for (const std::uint32_t parts : {1u, 4u}) {
      check(Call("attention", s, {.causal = true, .position = position}), kSmall, parts, true);
      check(Call("attention", s, {.mask = Shape{1, s.heads, s.queries, s.keys}}), kWide, parts, true);
    }
  }
  EXPECT_EQ(ran_, 12);
}

TEST_F(AttentionGpu, Views) {
  for (const char* op : kOps) {
    for (const std::int64_t gap : {0, 4, 1}) {  // 1: no vec4
      check(Call(op, {2, 4, 2, 9, 14, 12}, {.causal = true, .query_offset = 5, .projections = true, .gap = gap}), kWide, 1);
    }
  }
  EXPECT_EQ(ran_, 9);
}

TEST_F(AttentionGpu, ExtremeScores) {
  // Scores of thousands: the running maximum grows in every tile, and old sums fade to nothing.
  Call call("attention", {1, 1, 1, 6, 40, 4}, {});
  for (std::size_t j = 0; j < 40; ++j) {
    for (std::size_t d = 0; d < 4; ++d) call.data[1][j * 4 + d] = static_cast<double>(j) * 50;
  }
  for (double& q : call.data[0]) q = std::fabs(q) + 0.5;
  check(call, kSmall, 1);
  check(call, kSmall, 3);
  for (double& q : call.data[0]) q = -q;
  check(call, kSmall, 1);
  // One NaN spoils its query's row and nothing else.
  call.data[0][5] = std::nan("");
  check(call, kSmall, 1);
  EXPECT_EQ(ran_, 4);
}

TEST(AttentionLowering, ChoosesUsableVariantsOnSmallDevices) {
  for (const std::uint32_t units : {0u, 16u, 132u}) {
    Caps caps;  // 16 KiB of shared memory, 8 storage buffers
    caps.compute_units = units;
    for (const char* op : kOps) {
      for (const std::int64_t head_dim : {1, 64, 128, 256}) {
        const Call call(op, {1, 2, 1, 100, 100, head_dim}, {});
        const auto candidates = call.kernel.anchor->lower(call.kernel, caps);
        EXPECT_TRUE(std::ranges::any_of(candidates, [](const Candidate& c) { return c.rejected.empty(); }))
            << op << " " << head_dim;
      }
    }
  }
}

}  // namespace
}  // namespace aeshna::test

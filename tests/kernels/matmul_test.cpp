// Every variant of the matrix product against a double oracle, at sizes that fit no tile.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/checked.h"
#include "base/format.h"
#include "base/quant.h"
#include "gpu/launch.h"
#include "ir/op.h"
#include "ops/lower.h"
#include "ops/matmul_variants.h"
#include "support/kernel_runner.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

using Strides = std::vector<std::int64_t>;

Instr load(std::uint32_t operand, Strides strides, std::int64_t offset = 0) {
  Instr instr;
  instr.kind = Instr::Kind::Load;
  instr.operand = operand;
  instr.access.strides = std::move(strides);
  instr.access.offset = offset;
  return instr;
}

Instr apply(std::string_view op, std::vector<std::uint32_t> args, DType dtype = DType::f32) {
  Instr instr;
  instr.kind = Instr::Kind::Op;
  instr.dtype = dtype;
  instr.op = &find_op(op);
  instr.args = std::move(args);
  return instr;
}

Instr literal(double value) {
  Instr instr;
  instr.literal = value;
  return instr;
}

Instr product() {
  Instr instr;
  instr.kind = Instr::Kind::Product;
  return instr;
}

Store store(std::uint32_t operand, std::uint32_t value, Strides strides) {
  Store s;
  s.operand = operand;
  s.value = value;
  s.access.strides = std::move(strides);
  return s;
}

/// How an operand lies in memory. The order of a dense row-major [batch, M, K] (or [batch, K, N]) is Rows.
enum class Layout { Rows, Columns };

/// A plain product, to which tests add prologues and epilogues. Operands: 0 a, 1 b, 2 c (dense row-major).
struct ProductBuilder {
  std::vector<std::int64_t> batch = {};
  std::int64_t m, n, k;
  Layout a = Layout::Rows, b = Layout::Rows;
  std::vector<bool> broadcast_a = {}, broadcast_b = {};  ///< per batch dimension
  std::int64_t gap = 0;                        ///< extra elements between rows, so that strides and offset are odd

  /// Strides of [batch..., rows, columns] and the number of elements they reach.
  std::pair<Strides, std::int64_t> place(std::int64_t rows, std::int64_t columns, Layout layout,
                                         const std::vector<bool>& broadcast) const {
    Strides strides(batch.size() + 2);
    const std::int64_t inner = (layout == Layout::Rows ? columns : rows) + gap,
                       outer = layout == Layout::Rows ? rows : columns;
    strides[batch.size()] = layout == Layout::Rows ? inner : 1;
    strides[batch.size() + 1] = layout == Layout::Rows ? 1 : inner;
    std::int64_t step = inner * outer;
    for (std::size_t d = batch.size(); d-- > 0;) {
      const bool repeat = d < broadcast.size() && broadcast[d];
      strides[d] = repeat ? 0 : step;
      if (!repeat) step *= batch[d];
    }
    return {strides, step + gap};
  }

  FusedKernel build() const {
    FusedKernel kernel;
    kernel.kind = FusedKernel::Kind::Matmul;
    kernel.space = batch;
    kernel.space.push_back(m);
    kernel.space.push_back(n);
    kernel.k = k;
    const auto [sa, na] = place(m, k, a, broadcast_a);
    const auto [sb, nb] = place(k, n, b, broadcast_b);
    kernel.a.instrs = {load(0, sa, gap)};
    kernel.b.instrs = {load(1, sb, gap)};
    kernel.body.instrs = {product()};
    const auto [sc, nc] = dense(Layout::Rows);
    kernel.body.stores = {store(2, 0, sc)};
    add_operand(kernel, na, false);
    add_operand(kernel, nb, false);
    add_operand(kernel, nc, true);
    return kernel;
  }

  std::pair<Strides, std::int64_t> dense(Layout layout) const {
    ProductBuilder plain = *this;
    plain.gap = 0;
    return plain.place(m, n, layout, {});
  }

  static std::uint32_t add_operand(FusedKernel& kernel, std::int64_t elements, bool written) {
    KernelOperand operand{};
    operand.dtype = DType::f32;
    operand.elements = elements;
    operand.written = written;
    kernel.operands.push_back(operand);
    return static_cast<std::uint32_t>(kernel.operands.size() - 1);
  }
};

/// One runner for the suite, so that equal kernels are built once.
class MatmulGpu : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (const auto device = kernel_device()) runner_ = std::make_unique<KernelRunner>(device);
  }
  static void TearDownTestSuite() { runner_.reset(); }
  void SetUp() override { AESHNA_NEED_DEVICE(); }
  void TearDown() override {
    if (ran_ == 0) return;
    std::cout << ran_ << " variants ran";
    for (const auto& [why, count] : skipped_) std::cout << ", " << count << " skipped (" << why << ")";
    std::cout << "\n";
  }

  static const Caps& caps() { return runner_->caps(); }
  static Caps tiny_caps() {
    Caps tiny = caps();
    tiny.compute_units = 0;
    return tiny;
  }

  /// Every written operand against the oracle; the runner itself checks canaries, counters, and that two launches agree bit for bit.
  /// Rejected candidates are counted and reported, never silently dropped.
  void check(const Candidate& candidate, const std::string& what) {
    if (!candidate.rejected.empty()) {
      ++skipped_[candidate.rejected];
      return;
    }
    const FusedKernel& kernel = *candidate.spec.fused;
    const OperandData data = random_data(kernel, 1, -1, 1);
    const double tolerance = 1e-6 * std::sqrt(static_cast<double>(std::max<std::int64_t>(kernel.k, 1)));
    const std::string problem =
        difference(candidate.spec, runner_->run(candidate.spec, data), evaluate(kernel, data), 1e-6, tolerance);
    EXPECT_EQ(problem, "") << what << " [" << candidate.spec.family << " " << candidate.spec.variant << "]";
    ++ran_;
  }

  static inline std::unique_ptr<KernelRunner> runner_;
  int ran_ = 0;
  std::map<std::string, int> skipped_;
};

/// The four ways an operand can arrive, by layout and by whether four neighbours make one vec4.
struct Arrival {
  Layout a, b;
  std::int64_t gap;  ///< 1: no vec4 anywhere
};
constexpr Arrival kArrivals[] = {
    {Layout::Rows, Layout::Rows, 0},        // a along k, b along n: NN
    {Layout::Columns, Layout::Columns, 0},  // a along m, b along k: TT
    {Layout::Rows, Layout::Columns, 1},     // NT, scalar
    {Layout::Columns, Layout::Rows, 1},     // TN, scalar
};

TEST_F(MatmulGpu, EveryTileWithEveryLoader) {
  for (const TileVariant& v : tile_variants()) {
    for (const Arrival& arrival : kArrivals) {
      // Two tiles each way, the second partly filled; a depth of two steps and a bit, or of three whole steps.
      for (const std::uint32_t parts : {1u, 2u, 3u}) {
        const std::int64_t m = v.bm + v.bm / 2 + 4, n = v.bn + 8, k = parts == 2 ? 3 * v.bk : 2 * v.bk + 4;
        const FusedKernel kernel =
            ProductBuilder{.m = m, .n = n, .k = k, .a = arrival.a, .b = arrival.b, .gap = arrival.gap}.build();
        check(tile_candidate(kernel, caps(), v, parts), "tile");
      }
    }
  }
}

TEST_F(MatmulGpu, EveryTileWithRaggedEdges) {
  for (const TileVariant& v : tile_variants()) {
    const FusedKernel kernel =
        ProductBuilder{.m = v.bm + 1, .n = v.bn + 3, .k = v.bk + 5, .b = Layout::Columns}.build();
    for (const std::uint32_t parts : {1u, 2u, 4u}) check(tile_candidate(kernel, caps(), v, parts), "ragged");
  }
}

TEST_F(MatmulGpu, EveryGemvWithEveryLoader) {
  constexpr std::pair<std::int64_t, std::int64_t> kSizes[] = {{1, 132}, {3, 260}, {140, 2}, {64, 1}};
  for (std::size_t variant = 0; variant < gemv_variants().size(); ++variant) {
    for (std::size_t arrival = 0; arrival < std::size(kArrivals); ++arrival) {
      const Arrival& how = kArrivals[arrival];
      const auto [m, n] = kSizes[(variant + arrival) % std::size(kSizes)];
      const FusedKernel kernel =
          ProductBuilder{.m = m, .n = n, .k = 316, .a = how.a, .b = how.b, .gap = how.gap}.build();
      for (const std::uint32_t parts : {1u, 3u})
        check(gemv_candidate(kernel, caps(), gemv_variants()[variant], parts), "gemv");
    }
  }
}

/// A depth that is no multiple of what a step covers; the quantized operand second and first, dense and one of a batch.
TEST_F(MatmulGpu, EveryGemvWithQuantizedPairs) {
  const DType dtypes[] = {DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0, DType::q4_K, DType::q6_K};
  for (std::size_t variant = 0; variant < gemv_variants().size(); ++variant) {
    for (std::size_t i = 0; i < std::size(dtypes); ++i) {
      const std::int64_t k = 5 * std::int64_t{dtype_info(dtypes[i]).block_elements};
      const std::int64_t narrow = 1 + static_cast<std::int64_t>((variant + i) % 3), wide = 37;
      FusedKernel kernel = i % 2 == 0 ? ProductBuilder{.m = narrow, .n = wide, .k = k, .b = Layout::Columns}.build()
                                      : ProductBuilder{.batch = {2}, .m = wide, .n = narrow, .k = k}.build();
      kernel.operands[i % 2 == 0 ? 1 : 0].dtype = dtypes[i];
      for (const std::uint32_t parts : {1u, 3u}) {
        const Candidate candidate = gemv_candidate(kernel, caps(), gemv_variants()[variant], parts);
        const GemvVariant& v = gemv_variants()[variant];
        const std::uint32_t unit = quant_unit_blocks(dtypes[i]) * dtype_info(dtypes[i]).block_elements;
        EXPECT_EQ(candidate.spec.variant.contains(" pair"), v.tk * v.uk * 8 % unit == 0) << candidate.spec.variant;
        check(candidate, "pairs");
      }
    }
  }
  // Rows that begin within a block are not read in pairs.
  FusedKernel odd = ProductBuilder{.m = 1, .n = 6, .k = 64, .b = Layout::Columns, .gap = 16}.build();
  odd.operands[1].dtype = DType::q4_0;
  EXPECT_FALSE(gemv_candidate(odd, caps(), gemv_variants()[0], 1).spec.variant.contains("pair"));
}

TEST_F(MatmulGpu, NarrowProductsOfEveryWidth) {
  for (std::int64_t r = 1; r <= kGemvRows; ++r) {
    for (const Layout layout : {Layout::Rows, Layout::Columns}) {
      const GemvVariant& v = gemv_variants()[2];
      check(gemv_candidate(ProductBuilder{.batch = {2}, .m = r, .n = 37, .k = 100, .b = layout}.build(), caps(), v, 2),
            "rows");
      check(gemv_candidate(ProductBuilder{.batch = {2}, .m = 37, .n = r, .k = 100, .a = layout}.build(), caps(), v, 1),
            "columns");
    }
  }
  const Candidate wide = gemv_candidate(ProductBuilder{.m = 9, .n = 9, .k = 4}.build(), caps(), gemv_variants()[0], 1);
  EXPECT_EQ(wide.rejected, "9 narrow rows; gemv takes 8");
}

TEST_F(MatmulGpu, AwkwardSizes) {
  const std::int64_t sizes[][3] = {{1, 1, 1},     {1, 1, 0},     {2, 3, 0},    {1, 1, 257},   {5, 7, 1},
                                   {7, 5, 3},     {16, 16, 16},  {17, 15, 31}, {31, 33, 17},  {33, 31, 65},
                                   {64, 64, 128}, {65, 63, 127}, {13, 129, 4}, {127, 1, 63},  {1, 127, 64},
                                   {2, 100, 96},  {97, 4, 50},   {20, 6, 147}, {49, 196, 36}, {10, 10, 1030}};
  for (const auto& [m, n, k] : sizes) {
    for (const Layout b : {Layout::Rows, Layout::Columns}) {
      const FusedKernel kernel = ProductBuilder{.m = m, .n = n, .k = k, .b = b}.build();
      const std::string what = formatted("{}x{}x{}", m, n, k);
      check(lower_matmul(kernel, caps()).front(), what);
      check(lower_matmul(kernel, tiny_caps()).front(), what + " tiny");
      check(tile_candidate(kernel, caps(), tile_variants()[1], 2), what);
    }
  }
}

TEST_F(MatmulGpu, NothingToDo) {
  for (const auto& [m, n] : {std::pair{0, 5}, {5, 0}, {0, 0}}) {
    const FusedKernel kernel = ProductBuilder{.m = m, .n = n, .k = 8}.build();
    for (const Candidate& candidate : lower_matmul(kernel, caps())) EXPECT_EQ(candidate.spec.workgroups, 0u);
  }
  EXPECT_EQ(tile_candidate(ProductBuilder{.batch = {0}, .m = 3, .n = 4, .k = 8}.build(), caps(), tile_variants()[0], 1)
                .spec.workgroups,
            0u);
}

TEST_F(MatmulGpu, Batches) {
  for (const Layout layout : {Layout::Rows, Layout::Columns}) {
    const ProductBuilder cases[] = {
        {.batch = {3}, .m = 20, .n = 24, .k = 12, .a = layout},
        {.batch = {3}, .m = 20, .n = 24, .k = 12, .b = layout, .broadcast_b = {true}},
        {.batch = {2, 3},
         .m = 17,
         .n = 9,
         .k = 11,
         .b = layout,
         .broadcast_a = {true, false},
         .broadcast_b = {false, true}},
        {.batch = {2, 3, 2}, .m = 5, .n = 18, .k = 7, .a = layout, .broadcast_a = {false, true, false}},
        {.batch = {5}, .m = 1, .n = 40, .k = 33, .b = layout},
    };
    for (const ProductBuilder& c : cases) {
      const FusedKernel kernel = c.build();
      check(lower_matmul(kernel, caps()).front(), "batch");
      check(lower_matmul(kernel, tiny_caps()).front(), "batch, tiny");
      check(tile_candidate(kernel, caps(), tile_variants()[2], 2), "batch, split");
    }
  }
}

/// a -> relu mask of a gradient: select(mask > 0, a, 0); operand 3 is the mask with a's layout.
void add_relu_mask(FusedKernel& kernel, Body& body) {
  const Instr data = body.instrs[0];
  const std::uint32_t mask = ProductBuilder::add_operand(kernel, kernel.operands[data.operand].elements, false);
  Instr load_mask = data;
  load_mask.operand = mask;
  body.instrs = {data, load_mask, literal(0), apply("greater", {1, 2}, DType::boolean), apply("select", {3, 0, 2})};
}

TEST_F(MatmulGpu, PrologueOfSeveralLoads) {
  for (const Arrival& arrival : kArrivals) {
    for (const std::int64_t m : {4, 36}) {
      FusedKernel kernel =
          ProductBuilder{.m = m, .n = 40, .k = 44, .a = arrival.a, .b = arrival.b, .gap = arrival.gap}.build();
      add_relu_mask(kernel, kernel.a);
      // b scaled per row of k: a load that is uniform along n.
      const std::uint32_t scale = ProductBuilder::add_operand(kernel, kernel.k, false);
      kernel.b.instrs.push_back(load(scale, {1, 0}));
      kernel.b.instrs.push_back(apply("mul", {0, 1}));
      for (const std::uint32_t parts : {1u, 2u}) {
        check(tile_candidate(kernel, caps(), tile_variants()[2], parts), "prologue");
        if (m == 4) check(gemv_candidate(kernel, caps(), gemv_variants()[1], parts), "prologue");
      }
    }
  }
}

/// c = residual + gelu(product + bias), and the pre-activation stored transposed.
FusedKernel with_epilogue(const ProductBuilder& builder, bool long_one) {
  FusedKernel kernel = builder.build();
  const auto [row_major, elements] = builder.dense(Layout::Rows);
  const std::uint32_t bias = ProductBuilder::add_operand(kernel, builder.n, false);
  const std::uint32_t residual = ProductBuilder::add_operand(kernel, elements, false);
  const std::uint32_t transposed = ProductBuilder::add_operand(kernel, elements, true);
  Strides along_n(kernel.space.size(), 0);
  along_n.back() = 1;
  kernel.body.instrs = {product(),
                        load(bias, along_n),
                        apply("add", {0, 1}),
                        apply(long_one ? "gelu_erf" : "relu", {2}),
                        load(residual, row_major),
                        apply("add", {3, 4})};
  kernel.body.stores = {store(2, 5, row_major), store(transposed, 2, builder.dense(Layout::Columns).first)};
  return kernel;
}

TEST_F(MatmulGpu, Epilogues) {
  for (const bool long_one : {false, true}) {
    for (const std::int64_t n : {72, 71}) {
      for (const std::size_t variant : {1u, 3u, 5u, 6u}) {
        const FusedKernel kernel =
            with_epilogue({.batch = {2}, .m = 70, .n = n, .k = 36, .b = Layout::Columns}, long_one);
        for (const std::uint32_t parts : {1u, 2u})
          check(tile_candidate(kernel, caps(), tile_variants()[variant], parts), "epilogue");
      }
      const FusedKernel spread = with_epilogue({.m = 70, .n = n, .k = 36, .gap = 1}, long_one);
      check(tile_candidate(spread, caps(), tile_variants()[5], 1), "epilogue of spread columns");
      const FusedKernel narrow = with_epilogue({.batch = {2}, .m = 3, .n = n, .k = 36, .b = Layout::Columns}, long_one);
      for (const std::uint32_t parts : {1u, 2u})
        check(gemv_candidate(narrow, caps(), gemv_variants()[1], parts), "epilogue");
    }
  }
}

TEST_F(MatmulGpu, QuantizedOperands) {
  for (const DType dtype : {DType::q4_0, DType::q4_1, DType::q5_0, DType::q8_0, DType::q4_K, DType::q6_K}) {
    const std::int64_t blocks = 3 * std::int64_t{dtype_info(dtype).block_elements};
    for (const std::int64_t narrow : {1, 17}) {
      // Blocks along k (weights as they lie in files) and along n; the quantized operand second and first.
      std::pair<FusedKernel, std::size_t> kernels[] = {
          {ProductBuilder{.m = narrow, .n = 21, .k = blocks, .b = Layout::Columns}.build(), 1},
          {ProductBuilder{.m = narrow, .n = blocks, .k = 20}.build(), 1},
          {ProductBuilder{.m = 21, .n = narrow, .k = blocks}.build(), 0}};
      for (auto& [kernel, quantized] : kernels) {
        kernel.operands[quantized].dtype = dtype;
        check(lower_matmul(kernel, caps()).front(), "quantized");
        check(lower_matmul(kernel, tiny_caps()).front(), "quantized, tiny");
      }
    }
  }
}

TEST_F(MatmulGpu, OneOperandInEveryRole) {  // x * x^T + x, all through one binding
  FusedKernel kernel = ProductBuilder{.m = 44, .n = 44, .k = 44, .b = Layout::Columns}.build();
  kernel.b.instrs = {load(0, {1, 44})};
  kernel.body.instrs = {product(), load(0, {44, 1}), apply("add", {0, 1})};
  kernel.body.stores = {store(1, 2, {44, 1})};
  kernel.operands = {kernel.operands[0], kernel.operands[2]};
  for (const TileVariant& v : {tile_variants()[0], tile_variants()[2]})
    check(tile_candidate(kernel, caps(), v, 1), "x x^T + x");
}

TEST_F(MatmulGpu, ManySplits) {  // more parts than steps: some add nothing
  const FusedKernel kernel = ProductBuilder{.m = 40, .n = 68, .k = 100}.build();
  for (const std::uint32_t parts : {4u, 7u, 16u}) {
    const Candidate candidate = tile_candidate(kernel, caps(), tile_variants()[2], parts);
    ASSERT_GT(candidate.spec.counters, 0u);
    check(candidate, "split");
    check(gemv_candidate(ProductBuilder{.m = 40, .n = 2, .k = 100}.build(), caps(), gemv_variants()[0], parts),
          "split");
  }
}

TEST_F(MatmulGpu, LaunchesAreFolded) {
  Caps folded = caps();
  folded.max_groups[0] = folded.max_groups[1] = folded.max_groups[2] = 7;
  KernelRunner runner(kernel_device(), folded);
  const FusedKernel kernel = ProductBuilder{.m = 161, .n = 170, .k = 40}.build();
  const Candidate candidate = tile_candidate(kernel, folded, tile_variants()[0], 2);
  ASSERT_GT(candidate.spec.workgroups, 49u);  // three dimensions, surplus workgroups in the last
  const OperandData data = random_data(kernel, 3, -1, 1);
  EXPECT_EQ(difference(candidate.spec, runner.run(candidate.spec, data), evaluate(kernel, data), 1e-6, 1e-5), "");
}

// ---- the choice, a pure function

Caps plain_caps() {
  Caps caps;
  caps.shared_bytes = 32768;
  caps.max_storage_buffers = 16;
  caps.compute_units = 132;
  return caps;
}

TEST(MatmulChoice, EveryTileFits32KiB) {
  for (const TileVariant& v : tile_variants()) {
    EXPECT_LE(v.shared_bytes(), 32768u);
    EXPECT_LE(v.threads(), 256u);
  }
}

TEST(MatmulChoice, LimitsRejectWithTheirReason) {
  const FusedKernel kernel = ProductBuilder{.m = 256, .n = 256, .k = 256}.build();
  const TileVariant large{.bm = 128, .bn = 128, .bk = 16, .tm = 8, .tn = 8, .stages = 2};
  Caps caps = plain_caps();
  caps.shared_bytes = 16384;
  EXPECT_EQ(tile_candidate(kernel, caps, large, 1).rejected, "32768 bytes of shared memory; the device has 16384");
  caps = plain_caps();
  caps.max_invocations = 128;
  EXPECT_EQ(tile_candidate(kernel, caps, large, 1).rejected, "256 threads per workgroup; the device allows 128");
  caps = plain_caps();
  caps.max_storage_buffers = 4;
  EXPECT_EQ(tile_candidate(kernel, caps, large, 2).rejected, "5 storage buffers; the device allows 4");
  EXPECT_EQ(tile_candidate(kernel, caps, large, 1).rejected, "");
  caps = plain_caps();
  caps.max_storage_range = 1 << 18;
  EXPECT_EQ(tile_candidate(kernel, caps, large, 2).rejected, "524288 bytes of workspace; a binding covers 262144");
}

TEST(MatmulChoice, SomethingFitsSmallDevices) {
  Caps caps = plain_caps();
  caps.shared_bytes = 16384;
  caps.max_invocations = 128;
  caps.max_local[0] = 128;
  caps.max_storage_buffers = 4;
  for (const std::int64_t m : {1, 3, 33, 4096}) {
    for (const std::int64_t k : {1, 8, 4096}) {
      const std::vector<Candidate> candidates = lower_matmul(ProductBuilder{.m = m, .n = 1000, .k = k}.build(), caps);
      EXPECT_TRUE(std::ranges::any_of(candidates, [](const Candidate& c) { return c.rejected.empty(); }))
          << m << " " << k;
    }
  }
}

/// Subgroups of 4 to 128, few threads, little memory, few bindings, few workgroups: what is chosen fits, covers the result,
/// and is the same for equal caps. No kernel uses subgroups: their size changes nothing.
TEST(MatmulChoice, FitsEveryDevice) {
  const auto value = [](const KernelSpec& spec, const char* name) {
    return static_cast<std::uint64_t>(spec.constant(name));
  };
  const auto check_geometry = [&](const KernelSpec& spec, const ProductBuilder& p) {
    const auto m = static_cast<std::uint64_t>(p.m), n = static_cast<std::uint64_t>(p.n);
    std::uint64_t tiles = 1;
    for (const std::int64_t extent : p.batch) tiles *= static_cast<std::uint64_t>(extent);
    if (spec.family == "matmul") {
      const std::uint64_t bm = value(spec, "BM"), bn = value(spec, "BN");
      EXPECT_EQ(bm / value(spec, "TM") * (bn / value(spec, "TN")), spec.local[0]);
      EXPECT_EQ(bm % value(spec, "TM") + bn % value(spec, "TN"), 0u);
      EXPECT_EQ(value(spec, "THREADS"), spec.local[0]);
      tiles *= ceil_div(m, bm) * ceil_div(n, bn);
    } else {
      ASSERT_EQ(spec.family, "gemv");
      EXPECT_EQ(value(spec, "TL") * value(spec, "TK"), spec.local[0]);
      EXPECT_EQ(value(spec, "R"), std::min(m, n));
      tiles *= ceil_div(std::max(m, n), value(spec, "TL") * (value(spec, "ALONG_K") != 0 ? value(spec, "UL") : 4));
    }
    EXPECT_EQ(spec.workgroups, tiles * value(spec, "PARTS"));
    EXPECT_EQ(spec.counters, value(spec, "PARTS") > 1 ? tiles : 0);
    EXPECT_EQ(spec.workspace_bytes > 0, value(spec, "PARTS") > 1);
  };
  const ProductBuilder products[] = {{.m = 1, .n = 49152, .k = 576, .b = Layout::Columns},
                                     {.m = 1000, .n = 3, .k = 77},
                                     {.m = 4096, .n = 4096, .k = 4096},
                                     {.batch = {4, 3}, .m = 197, .n = 64, .k = 197, .gap = 1},
                                     {.m = 33, .n = 31, .k = 100000},
                                     {.m = 64, .n = 147, .k = 12544, .a = Layout::Columns},
                                     {.m = 5, .n = 7, .k = 0}};
  int usable = 0, refused = 0;
  for (const ProductBuilder& product : products) {
    const FusedKernel kernel = product.build();
    for (const std::uint32_t invocations : {128u, 256u, 1024u}) {
      for (const std::uint32_t shared : {16384u, 32768u, 49152u}) {
        for (const std::uint32_t buffers : {3u, 8u}) {
          for (const std::uint32_t groups : {7u, 100u, 65535u}) {
            for (const std::uint32_t units : {0u, 1u, 132u}) {
              std::optional<KernelSpec> first;
              for (const std::uint32_t subgroup : {4u, 8u, 16u, 32u, 64u, 128u}) {
                Caps caps;
                caps.subgroup_size = subgroup;
                caps.subgroup_arithmetic = true;
                caps.max_invocations = caps.max_local[0] = invocations;
                caps.shared_bytes = shared;
                caps.max_storage_buffers = buffers;
                caps.compute_units = units;
                for (std::uint32_t& limit : caps.max_groups) limit = groups;
                const std::vector<Candidate> candidates = lower_matmul(kernel, caps);
                const auto chosen = std::ranges::find_if(candidates, [](const Candidate& c) { return c.rejected.empty(); });
                if (chosen == candidates.end()) {  // only because nothing folds into so few workgroups
                  ++refused;
                  ASSERT_EQ(groups, 7u);
                  EXPECT_TRUE(std::ranges::any_of(candidates, [](const Candidate& c) {
                    return c.rejected.ends_with("the device launches at most 343");
                  }));
                  continue;
                }
                ++usable;
                const KernelSpec& spec = chosen->spec;
                SCOPED_TRACE(testing::Message() << product.m << "x" << product.n << "x" << product.k << " " << spec.family
                                                << " " << spec.variant << " on\n"
                                                << print_caps(caps));
                const std::uint32_t bindings = 3 + (value(spec, "PARTS") > 1 ? 2 : 0);
                ASSERT_NO_THROW(gpu::check_launch(spec, 64, bindings, caps));
                check_geometry(spec, product);
                if (!first) first = spec;
                EXPECT_EQ(spec.variant, first->variant);
                EXPECT_EQ(spec.constants, first->constants);
                EXPECT_EQ(spec.local, first->local);
                EXPECT_EQ(spec.workgroups, first->workgroups);
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(usable, 5000);
  EXPECT_GT(refused, 0);
}

TEST(MatmulChoice, TinyTilesSplitInThree) {
  Caps caps = plain_caps();
  caps.compute_units = 0;
  const auto first = [&](std::int64_t m, std::int64_t k) {
    return lower_matmul(ProductBuilder{.m = m, .n = 20, .k = k}.build(), caps).front().spec;
  };
  EXPECT_EQ(first(20, 8).family, "matmul");
  EXPECT_EQ(first(20, 8).constant("BM"), 16);
  EXPECT_EQ(first(20, 8).constant("PARTS"), 3);
  EXPECT_EQ(first(20, 7).constant("PARTS"), 1);
  EXPECT_EQ(first(2, 8).family, "gemv");
  EXPECT_EQ(first(2, 8).constant("PARTS"), 3);
}

TEST(MatmulChoice, FollowsTheShape) {
  const auto chosen = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    return lower_matmul(ProductBuilder{.m = m, .n = n, .k = k, .b = Layout::Columns}.build(), plain_caps())
        .front()
        .spec;
  };
  EXPECT_EQ(chosen(1, 3072, 576).family, "gemv");
  EXPECT_GE(chosen(4096, 4096, 4096).constant("BM") * chosen(4096, 4096, 4096).constant("BN"), 128 * 128);
  EXPECT_EQ(chosen(4096, 4096, 4096).constant("PARTS"), 1);
  EXPECT_EQ(chosen(128, 49152, 576).constant("PARTS"), 1);
  EXPECT_GT(chosen(1024, 1024, 1024).constant("PARTS"), 1);  // 64 large tiles would leave half of 132 units idle
  EXPECT_GT(chosen(128, 576, 1536).constant("PARTS"), 1);
  EXPECT_LE(chosen(32, 10, 128).constant("BM"), 32);
  const KernelSpec again = chosen(128, 576, 1536);
  EXPECT_EQ(again.variant, chosen(128, 576, 1536).variant);
}

TEST(MatmulChoice, OnlyDepthsOfWholeStepsHaveNoTail) {
  const auto tail = [](std::int64_t k, const TileVariant& v) {
    return tile_candidate(ProductBuilder{.m = 8, .n = 8, .k = k}.build(), plain_caps(), v, 1).spec.constant("K_TAIL");
  };
  const TileVariant v{.bm = 32, .bn = 32, .bk = 16, .tm = 4, .tn = 4, .stages = 2};
  EXPECT_EQ(tail(32, v), 0);
  EXPECT_EQ(tail(36, v), 1);
  EXPECT_EQ(tail(8, v), 1);
}

TEST(MatmulChoice, VectorLoadsOnlyWhereAligned) {
  const auto constant = [](const ProductBuilder& builder, std::string_view name) {
    return tile_candidate(builder.build(), plain_caps(), tile_variants()[2], 1).spec.constant(name);
  };
  EXPECT_EQ(constant({.m = 8, .n = 8, .k = 8}, "A_VEC"), 1);
  EXPECT_EQ(constant({.m = 8, .n = 8, .k = 8}, "A_ALONG_K"), 1);
  EXPECT_EQ(constant({.m = 8, .n = 8, .k = 8}, "B_ALONG_K"), 0);
  EXPECT_EQ(constant({.m = 8, .n = 8, .k = 6}, "A_VEC"), 0);
  EXPECT_EQ(constant({.m = 8, .n = 6, .k = 8}, "B_VEC"), 0);
  EXPECT_EQ(constant({.m = 8, .n = 6, .k = 8}, "EPILOGUE_VEC"), 0);
  EXPECT_EQ(constant({.m = 8, .n = 8, .k = 8, .gap = 1}, "A_VEC"), 0);
  EXPECT_EQ(constant({.m = 8, .n = 8, .k = 8, .gap = 1}, "EPILOGUE_VEC"), 0);
  EXPECT_EQ(constant({.m = 8, .n = 8, .k = 8, .gap = 1}, "B_SPREAD"), 1);
  EXPECT_EQ(constant({.m = 8, .n = 8, .k = 6, .b = Layout::Columns}, "B_SPREAD"),
            0);  // whole quads of columns are stored
  EXPECT_EQ(constant({.m = 8, .n = 8, .k = 6, .b = Layout::Columns}, "EPILOGUE_VEC"), 1);
  EXPECT_EQ(constant({.m = 6, .n = 8, .k = 8, .a = Layout::Columns}, "A_VEC"), 0);
  EXPECT_EQ(constant({.m = 8, .n = 8, .k = 6, .a = Layout::Columns}, "A_VEC"), 1);
}

}  // namespace
}  // namespace aeshna::test

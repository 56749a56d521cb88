#pragma once
// What the compiler hands to the code generator and to the device: fused kernels as plain data, and KernelSpec,
// a kernel chosen with its geometry as one immutable value. No GLSL and no Vulkan here.
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "aeshna/graph.h"

namespace aeshna {

enum class ReduceKind : std::uint8_t { Sum, Max, Min, Prod, ArgMax, ArgMin };

/// How an operand's elements lie in an iteration space: element index = offset + sum(coordinate[d] * stride[d]),
/// one stride per dimension of the space (0: broadcast). Strides may be negative. Guards make padding, windows and
/// concatenation loads instead of kernels: outside any of them the load gives `fill` and memory is not touched.
struct Access {
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;
  /// Inside means low <= sum(coordinate[dim] * coefficient) < high.
  struct Guard {
    struct Term {
      std::uint32_t dim;
      std::int64_t coefficient;
      friend bool operator==(const Term&, const Term&) = default;
    };
    std::vector<Term> terms;
    std::int64_t low = 0, high = 0;
    Guard(std::vector<Term> sum, std::int64_t from, std::int64_t to) : terms(std::move(sum)), low(from), high(to) {}
    Guard(std::uint32_t dim, std::int64_t from, std::int64_t to) : Guard({{dim, 1}}, from, to) {}
    std::int64_t coefficient(std::size_t dim) const;  ///< 0 where it does not look at `dim`
    friend bool operator==(const Guard&, const Guard&) = default;
  };
  std::vector<Guard> guards;
  double fill = 0;
  /// A Load may also depend on data: argument i of the instruction, an index (i32), times `stride`. Where an index is outside
  /// [0, extent) the load gives `fill` and memory is not touched.
  struct Dynamic {
    std::int64_t stride = 0, extent = 0;
    friend bool operator==(const Dynamic&, const Dynamic&) = default;
  };
  std::vector<Dynamic> dynamic = {};  ///< one per argument of the Load
  friend bool operator==(const Access&, const Access&) = default;
};

/// One scalar step of a fused body; args refer to earlier instructions of the same body.
struct Instr {
  enum class Kind : std::uint8_t {
    Load,     ///< operand `operand` through `access`; args: the indices that access.dynamic scales
    Literal,  ///< `literal`
    Index,    ///< coordinate `dim` of the space times access.strides[0] plus access.offset, as i32
    Op,       ///< pointwise `op` on `args`; cast is an Op whose dtype differs from its argument's
    Reduce,   ///< Reduction kernels: combine args[0] over the inner dimensions; the result lives on the outer space.
              ///< ArgMax/ArgMin give the linear inner index (i32) of the first extreme.
    Product,  ///< Matmul kernels: the finished accumulator, in `body`
    Random,   ///< args: seed-low, seed-high, step (u32), linear element index from access; `literal`: stream id. u32 word.
  };
  Kind kind = Kind::Literal;
  DType dtype = DType::f32;  ///< compute dtype: f32, i32, u32 or boolean
  std::uint32_t operand = 0;
  Access access;
  double literal = 0;
  std::uint32_t dim = 0;
  const OpDef* op = nullptr;
  ReduceKind reduce = ReduceKind::Sum;
  DType rounding = DType::f32;  ///< Op: f16 or bf16: the f32 result is rounded to it, as every value of that dtype is
  std::vector<std::uint32_t> args;
};

/// Writes instruction `value` to operand `operand`. `outer`: once per outer index (Reduction kernels); then
/// access.strides covers the outer dimensions only.
struct Store {
  std::uint32_t operand = 0;
  std::uint32_t value = 0;
  Access access;
  bool outer = false;
};

struct Body {
  std::vector<Instr> instrs;
  std::vector<Store> stores;
  /// Matmul operands: extents whose product is the contracted extent, in which this operand sees it; empty: one dimension.
  std::vector<std::int64_t> k;
};

/// An operand of a fused kernel: which value of the graph, and what it is in memory.
struct KernelOperand {
  ValueId value;       ///< the graph value (for stores: the result it materialises)
  DType dtype;         ///< of the logical tensor
  std::int64_t elements = 0;       ///< of the window that this kernel touches
  std::int64_t part_elements = 0;  ///< of each buffer, where the tensor needs several (ir/device_types.h); else 0
  std::int64_t first_element = 0;  ///< where the window starts in the tensor (row splits; else 0); accesses count from here
  bool written = false;
  /// Written over the memory of this read operand if the planner agrees (same index map everywhere): in-place update.
  std::optional<std::uint32_t> in_place_of;
};

/// FusedKernel::Kind::Template: the node that a kernel template of its own computes (OpKind::Kernel).
struct TemplateCall {
  static constexpr std::uint32_t kUnbound = UINT32_MAX;
  Attrs attrs;
  std::vector<TensorType> inputs, results;
  std::vector<Access> views;                  ///< per input: how it lies in its operand, over its own axes
  std::vector<std::uint32_t> input_operands;  ///< per input: index into operands; kUnbound: the updated one
  std::vector<std::uint32_t> result_operands;
  std::optional<ValueId> updated;  ///< result 0 starts as a copy of this value (OpDef::updates)
};

/// One kernel before geometry is chosen.
///  Pointwise: `space` is iterated, `body` runs per coordinate.
///  Reduction: space = outer dims (the first outer_rank) ++ inner dims. An instruction is on the outer space if it depends on
///   inner coordinates only through Reduce. Several Reduce instructions may follow each other (softmax): the kernel loops over
///   the inner dims once per level, then once more for stores on the full space.
///  Matmul: space = batch dims ++ row dims (row_rank) ++ column dims (column_rank). `a` has space batch ++ rows ++ a.k, `b`
///   batch ++ b.k ++ columns; each ends in one value (their last instruction); `body` has one Product instruction and the
///   epilogue. An implicit product (a convolution) is one whose operand looks through windows: several k dimensions, guards.
///  Template: `call`; space and bodies are empty.
///  A dimension of extent 1 is never present, except that a space may be empty (one element); dims are merged where every
///  access allows it.
struct FusedKernel {
  enum class Kind : std::uint8_t { Pointwise, Reduction, Matmul, Template };
  Kind kind = Kind::Pointwise;
  std::vector<std::int64_t> space;
  std::uint32_t outer_rank = 0;
  std::uint32_t row_rank = 1, column_rank = 1;  ///< Matmul
  std::int64_t k = 0;                           ///< Matmul: the contracted extent (may be 0)
  Body body, a, b;
  TemplateCall call;
  std::vector<KernelOperand> operands;  ///< distinct; at most Caps.max_storage_buffers minus what the variant adds
  std::vector<NodeId> nodes;            ///< graph nodes it computes, for dumps and profiles
  const OpDef* anchor = nullptr;        ///< whose `lower` serves it
  Segment segment = Segment::Forward;
  Precision precision = Precision::Contract;
};

/// One kernel with its geometry. Immutable once chosen.
struct KernelSpec {
  std::string family;   ///< template name under kernels/: "pointwise", "reduce", "matmul", "gemv"
  std::string variant;  ///< for dumps and profiles, e.g. "64x64x16 8x4 stages=2 split=3 vecA vecB"
  std::shared_ptr<const FusedKernel> fused;
  /// Template constants that change the code (tile sizes, vector widths, split); part of the code key.
  std::vector<std::pair<std::string, std::int64_t>> constants;
  std::array<std::uint32_t, 3> local{1, 1, 1};
  std::uint64_t workgroups = 0;   ///< linear; gpu/launch folds it over x, y, z. 0: nothing to do
  std::uint32_t shared_bytes = 0;
  std::uint64_t workspace_bytes = 0;  ///< split-K / split-reduction partials; bound after the operands when > 0
  std::uint32_t counters = 0;         ///< u32 counters, zero before and after every launch; bound last when > 0
  double flops = 0, bytes = 0;  ///< estimates for profiles and chunk bounds
  std::int64_t constant(std::string_view name) const;
};

/// One entry of a `lower` list: a spec, or the reason why this variant cannot serve.
struct Candidate {
  KernelSpec spec;
  std::string rejected;  ///< empty: usable
};

/// What codegen makes of a KernelSpec.
struct KernelSource {
  std::string glsl;                 ///< complete, inspectable
  std::string key;                  ///< hash of everything that determines the SPIR-V
  std::vector<std::uint32_t> push;  ///< words for the push block (<= Caps.push_bytes / 4); word 0 is the group count
  std::uint32_t bindings = 0;
};

}  // namespace aeshna

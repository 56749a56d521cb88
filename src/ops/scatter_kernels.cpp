// Records of the kernels that scatter expands to. Keys and places are i32 and not negative.
#include <algorithm>
#include <memory>
#include <numeric>

#include "base/caps.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/format.h"
#include "ops/build.h"
#include "ops/lower.h"
#include "ops/lower_scatter.h"

namespace aeshna {

std::int64_t scatter_chunk(std::int64_t items) {
  std::int64_t chunk = 16;
  while (chunk * chunk < items && chunk < 1024) chunk *= 2;
  return chunk;
}

namespace {

using Ints = std::vector<std::int64_t>;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
std::int64_t blocks_of(std::int64_t items) { return ceil_div(items, kRadixTile); }

// ---- geometry

/// What all of them share; `threads` is the workgroup's wish, halved until the device has it.
Candidate start(const FusedKernel& kernel, const Caps& caps, std::string family, std::uint32_t threads) {
  Candidate candidate;
  KernelSpec& spec = candidate.spec;
  while (threads > std::min(caps.max_invocations, caps.max_local[0])) threads /= 2;
  spec.family = std::move(family);
  spec.local = {threads, 1, 1};
  spec.fused = std::make_shared<const FusedKernel>(kernel);
  for (const KernelOperand& operand : kernel.operands) {
    spec.bytes += 4.0 * static_cast<double>(operand.elements);
    if (operand.elements > std::int64_t{UINT32_MAX}) {
      candidate.rejected = formatted("an operand of {} elements; kernel indices are 32-bit", operand.elements);
    }
  }
  return candidate;
}

void finish(Candidate& candidate, const Caps& caps) {
  if (candidate.rejected.empty()) candidate.rejected = launch_obstacle(candidate.spec, caps);
}

std::vector<Candidate> lower_order(const FusedKernel& kernel, const Caps& caps) {
  const std::int64_t items = kernel.call.inputs[0].shape.elements();
  Candidate candidate = start(kernel, caps, "index_order", 256);
  KernelSpec& spec = candidate.spec;
  std::int64_t tile = kOrderTile;  // a multiple of 4 * kOrderSplit
  while (tile > 4 * kOrderSplit && (tile + spec.local[0]) * 4 > caps.shared_bytes) tile /= 2;
  spec.variant = formatted("{} split={}", spec.local[0], kOrderSplit);
  spec.constants = {{"THREADS", spec.local[0]}, {"SPLIT", kOrderSplit}, {"TILE", tile}};
  spec.workgroups = static_cast<std::uint64_t>(ceil_div(items, static_cast<std::int64_t>(spec.local[0]) / kOrderSplit));
  spec.shared_bytes = static_cast<std::uint32_t>((tile + spec.local[0]) * 4);
  spec.flops = static_cast<double>(items) * static_cast<double>(items) * 3;
  finish(candidate, caps);
  return {candidate};
}

std::vector<Candidate> lower_radix(const FusedKernel& kernel, const Caps& caps, bool move) {
  const std::int64_t items = kernel.call.inputs[0].shape.elements(), blocks = blocks_of(items);
  Candidate candidate = start(kernel, caps, move ? "radix_move" : "radix_offsets", 256);
  KernelSpec& spec = candidate.spec;
  const auto shared_words = [&] {
    const std::uint32_t threads = spec.local[0];
    return move ? static_cast<std::uint32_t>(kRadixDigits / 2) * threads + threads +
                      static_cast<std::uint32_t>(kRadixDigits)
                : 16 * static_cast<std::uint32_t>(kRadixDigits) + threads + 1;
  };
  while (shared_words() * 4 > caps.shared_bytes && spec.local[0] > 16) spec.local[0] /= 2;
  const auto threads = static_cast<std::int64_t>(spec.local[0]);
  spec.shared_bytes = shared_words() * 4;
  spec.variant = formatted("{} bits at {}", kRadixBits, kernel.call.attrs.get<std::int64_t>("shift"));
  spec.constants = {{"THREADS", threads}, {"EACH", kRadixTile / threads}};
  spec.workgroups = static_cast<std::uint64_t>(blocks);
  if (!move) {
    spec.workspace_bytes = static_cast<std::uint64_t>(kRadixDigits * blocks * 4);
    spec.counters = 1;
  }
  finish(candidate, caps);
  return {candidate};
}

/// scatter_runs and scatter_joins: an invocation for each column (or four) of each slot or chunk.
std::vector<Candidate> lower_runs(const FusedKernel& kernel, const Caps& caps, bool joins) {
  const TemplateCall& call = kernel.call;
  const Shape& x = call.inputs[0].shape;
  const std::int64_t items = call.inputs[joins ? 2 : 3].shape[0], chunk = scatter_chunk(items);
  const bool add = joins || call.attrs.get<bool>("add");
  std::vector<Candidate> candidates;
  for (const std::int64_t width : {4, 1}) {
    Candidate candidate = start(kernel, caps, joins ? "scatter_joins" : "scatter_runs", 256);
    KernelSpec& spec = candidate.spec;
    spec.variant = formatted("{}{}", joins ? "joins" : add ? "add" : "last", width == 4 ? " vec4" : "");
    spec.constants = {{"WIDTH", width}, {"ADD", add ? 1 : 0}, {"CHUNK", chunk}};
    if (width == 4 && x[3] % 4 != 0) candidate.rejected = "the columns are not a multiple of 4";
    if (width == 4 && !joins && candidate.rejected.empty()) {
      const Access& view = call.views[1];
      const bool aligned =
          view.offset % 4 == 0 && view.strides[3] == 1 &&
          std::ranges::all_of(std::span(view.strides).first(3), [](std::int64_t s) { return s % 4 == 0; }) &&
          kernel.operands[call.input_operands[1]].elements % 4 == 0;
      if (!aligned) candidate.rejected = "the updates do not lie in aligned runs of 4";
    }
    const std::int64_t slots = joins ? ceil_div(items, chunk) : items;
    const std::int64_t points =
        checked_mul(checked_mul(x[0], slots, "points of a scatter"), ceil_div(x[3], width), "points of a scatter");
    spec.workgroups = static_cast<std::uint64_t>(ceil_div(points, std::int64_t{spec.local[0]}));
    if (points > 0xffff0000 && candidate.rejected.empty()) {
      candidate.rejected = formatted("{} points; kernel indices are 32-bit", points);
    }
    finish(candidate, caps);
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

// ---- types

void need_vector(const InferContext& ctx, std::size_t input, std::string_view name) {
  const TensorType& type = ctx.inputs[input];
  if (type.dtype != DType::i32)
    ctx.fail(ErrorCode::DTypeMismatch, formatted("{} must be i32, not {}", name, dtype_name(type.dtype)));
  if (type.shape.rank() != 1)
    ctx.fail(ErrorCode::ShapeMismatch, formatted("{} must have rank 1, not {}", name, type.shape.rank()));
}

OpDef kernel_op(std::string name, std::string doc, int inputs) {
  OpDef op;
  op.name = std::move(name);
  op.doc = std::move(doc);
  op.kind = OpKind::Kernel;
  op.min_inputs = op.max_inputs = inputs;
  op.gradient = GradientKind::NotDifferentiable;
  return op;
}

TensorType i32_type(Shape shape) { return {DType::i32, shape}; }

OpCase exact_case(std::vector<TensorType> inputs, std::vector<std::vector<double>> values, Attrs attrs = {}) {
  OpCase c{.inputs = std::move(inputs), .attrs = std::move(attrs), .ranges = {}, .values = std::move(values)};
  c.gradient = false;
  return c;
}

/// Keys that repeat, from a small generator.
std::vector<double> some_keys(std::int64_t count, std::int64_t limit) {
  std::vector<double> keys;
  std::uint32_t state = 12345;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;
    keys.push_back(static_cast<double>((state >> 8) % static_cast<std::uint32_t>(limit)));
  }
  return keys;
}

// ---- sorting

OpDef index_order_op() {
  OpDef op = kernel_op("index_order",
                       "keys [M] -> their places in stable ascending order, and the sorted keys; quadratic.", 1);
  op.lower = lower_order;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    need_vector(ctx, 0, "keys");
    return {ctx.inputs[0], ctx.inputs[0]};
  };
  op.eval = [](const EvalContext& ctx) {
    const auto& keys = ctx.inputs[0]->data;
    auto& order = ctx.results[0].data;
    std::iota(order.begin(), order.end(), 0.0);
    std::ranges::stable_sort(order, {}, [&](double i) { return keys[static_cast<std::size_t>(i)]; });
    for (std::size_t s = 0; s < order.size(); ++s) ctx.results[1].data[s] = keys[static_cast<std::size_t>(order[s])];
  };
  op.cases = [] {
    std::vector<OpCase> cases;
    for (const auto& [count, limit] : {std::pair{1, 3}, {7, 2}, {64, 1000}, {1031, 17}, {2050, 1 << 30}}) {
      cases.push_back(exact_case({i32_type({count})}, {some_keys(count, limit)}));
    }
    return cases;
  };
  return op;
}

std::size_t digit_of(double key, std::int64_t shift) {
  return static_cast<std::size_t>((static_cast<std::int64_t>(key) >> shift) % kRadixDigits);
}

/// First place of each (digit, block), digits first.
std::vector<double> offsets_of(std::span<const double> keys, std::int64_t shift) {
  const std::int64_t blocks = blocks_of(std::ssize(keys));
  std::vector<double> offsets(at(kRadixDigits * blocks), 0.0);
  for (std::size_t i = 0; i < keys.size(); ++i) ++offsets[digit_of(keys[i], shift) * at(blocks) + i / at(kRadixTile)];
  std::exclusive_scan(offsets.begin(), offsets.end(), offsets.begin(), 0.0);
  return offsets;
}

OpDef radix_offsets_op() {
  OpDef op =
      kernel_op("radix_offsets",
                "keys [M] -> the first place of each digit (4 bits from attr shift) of each block of 4096 keys.", 1);
  op.lower = [](const FusedKernel& kernel, const Caps& caps) { return lower_radix(kernel, caps, false); };
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    need_vector(ctx, 0, "keys");
    ctx.attrs.get<std::int64_t>("shift");
    return {i32_type({kRadixDigits * blocks_of(ctx.inputs[0].shape[0])})};
  };
  op.eval = [](const EvalContext& ctx) {
    ctx.results[0].data = offsets_of(ctx.inputs[0]->data, ctx.node.attrs.get<std::int64_t>("shift"));
  };
  op.cases = [] {
    std::vector<OpCase> cases;
    for (const std::int64_t count : {1, 4096, 12301}) {
      for (const std::int64_t shift : {0, 4}) {
        cases.push_back(exact_case({i32_type({count})}, {some_keys(count, 100)}, {{"shift", shift}}));
      }
    }
    return cases;
  };
  return op;
}

OpDef radix_move_op() {
  OpDef op = kernel_op("radix_move",
                       "keys [M], values [M], radix_offsets -> both in stable order of the digit at attr shift.", 3);
  op.lower = [](const FusedKernel& kernel, const Caps& caps) { return lower_radix(kernel, caps, true); };
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    for (const auto& [i, name] : {std::pair{0, "keys"}, {1, "values"}, {2, "offsets"}})
      need_vector(ctx, static_cast<std::size_t>(i), name);
    ctx.attrs.get<std::int64_t>("shift");
    const std::int64_t items = ctx.inputs[0].shape[0];
    if (ctx.inputs[1].shape[0] != items || ctx.inputs[2].shape[0] != kRadixDigits * blocks_of(items)) {
      ctx.fail(ErrorCode::ShapeMismatch, "keys, values and offsets do not belong together");
    }
    return {ctx.inputs[0], ctx.inputs[1]};
  };
  op.eval = [](const EvalContext& ctx) {
    const auto &keys = ctx.inputs[0]->data, &values = ctx.inputs[1]->data;
    const std::int64_t shift = ctx.node.attrs.get<std::int64_t>("shift");
    auto next = ctx.inputs[2]->data;
    const std::size_t blocks = at(blocks_of(std::ssize(keys)));
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto place = static_cast<std::size_t>(next[digit_of(keys[i], shift) * blocks + i / at(kRadixTile)]++);
      ctx.results[0].data[place] = keys[i];
      ctx.results[1].data[place] = values[i];
    }
  };
  op.cases = [] {
    std::vector<OpCase> cases;
    for (const std::int64_t count : {1, 4096, 12301}) {
      for (const std::int64_t shift : {0, 4}) {
        const auto keys = some_keys(count, 100);
        const auto offsets = offsets_of(keys, shift);
        cases.push_back(exact_case({i32_type({count}), i32_type({count}), i32_type({std::ssize(offsets)})},
                                   {keys, some_keys(count, 1 << 20), offsets}, {{"shift", shift}}));
      }
    }
    return cases;
  };
  return op;
}

// ---- runs

/// One run of equal keys within a chunk.
struct Run {
  std::int64_t chunk, begin, end;
  bool continues, goes_on;  ///< it began in an earlier chunk; it does not end in this one
};

template <class F>
void for_each_run(std::span<const double> sorted, F&& f) {
  const std::int64_t items = std::ssize(sorted), chunk = scatter_chunk(items);
  for (std::int64_t begin = 0, end = 0; begin < items; begin = end) {
    const std::int64_t limit = std::min((begin / chunk + 1) * chunk, items);
    while (end < limit && sorted[at(end)] == sorted[at(begin)]) ++end;
    f(Run{begin / chunk, begin, end, begin > 0 && sorted[at(begin - 1)] == sorted[at(begin)],
          end < items && sorted[at(end)] == sorted[at(begin)]});
  }
}

OpDef scatter_runs_op() {
  OpDef op = kernel_op(
      "scatter_runs",
      "x [O, L, D, C], updates [O, L, N, C], and L * N sorted keys with their places: runs of equal keys added to x "
      "(attr add), or their last. Runs that cross a chunk leave partial sums [O, chunks, first and last run, C].",
      4);
  op.lower = [](const FusedKernel& kernel, const Caps& caps) { return lower_runs(kernel, caps, false); };
  op.updates = 0;
  op.accepts_view = [](std::size_t input, const Access&) { return input == 1; };
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    need_vector(ctx, 2, "places");
    need_vector(ctx, 3, "keys");
    const TensorType &x = ctx.inputs[0], &updates = ctx.inputs[1];
    const std::int64_t items = ctx.inputs[3].shape[0];
    if (x.dtype != updates.dtype) ctx.fail(ErrorCode::DTypeMismatch, "the updates must have the operand's dtype");
    if (x.shape.rank() != 4 || updates.shape.rank() != 4 || updates.shape.with(2, x.shape[2]) != x.shape ||
        ctx.inputs[2].shape[0] != items || updates.shape[1] * updates.shape[2] != items) {
      ctx.fail(ErrorCode::ShapeMismatch, "operand, updates, places and keys do not belong together");
    }
    const std::int64_t chunks = ceil_div(items, scatter_chunk(items));
    if (!ctx.attrs.get<bool>("add") || chunks <= 1) return {x};
    return {x, {x.dtype, {x.shape[0], chunks, 2, x.shape[3]}}};
  };
  op.eval = [](const EvalContext& ctx) {
    const Shape &x = ctx.inputs[0]->type.shape, &u = ctx.inputs[1]->type.shape;
    const auto &updates = ctx.inputs[1]->data, &order = ctx.inputs[2]->data, &sorted = ctx.inputs[3]->data;
    const std::int64_t lanes = x[1] * x[2], columns = x[3], items = std::ssize(sorted);
    const bool add = ctx.node.attrs.get<bool>("add");
    auto& y = ctx.results[0].data;
    y = ctx.inputs[0]->data;
    for_each_run(sorted, [&](const Run& run) {
      const auto key = static_cast<std::int64_t>(sorted[at(run.begin)]);
      if (key < 0 || key >= lanes) return;
      for (std::int64_t o = 0; o < x[0]; ++o) {
        for (std::int64_t c = 0; c < columns; ++c) {
          const auto update = [&](std::int64_t s) {
            return updates[at((o * u[1] * u[2] + static_cast<std::int64_t>(order[at(s)])) * columns + c)];
          };
          double& target = y[at((o * lanes + key) * columns + c)];
          if (!add) {
            if (!run.goes_on) target = update(run.end - 1);
            continue;
          }
          double total = 0;
          for (std::int64_t s = run.begin; s < run.end; ++s) total += update(s);
          if (!run.continues && !run.goes_on) {
            target = wrap_integer(ctx.results[0].type.dtype, target + total);
          } else {
            const std::int64_t chunks = ceil_div(items, scatter_chunk(items));
            ctx.results[1].data[at(((o * chunks + run.chunk) * 2 + (run.continues ? 0 : 1)) * columns + c)] =
                wrap_integer(ctx.results[0].type.dtype, total);
          }
        }
      }
    });
  };
  op.cases = [] {
    std::vector<OpCase> cases;
    for (const auto& [o, l, d, n, c, add] : {std::tuple{1, 1, 5, 9, 8, true},
                                             {2, 1, 5, 100, 3, true},
                                             {1, 3, 4, 40, 1, true},
                                             {1, 1, 2, 300, 4, true},
                                             {2, 1, 5, 100, 3, false}}) {
      std::vector<double> keys = some_keys(l * n, l * d + 1), places(keys.size());
      std::iota(places.begin(), places.end(), 0.0);
      std::ranges::stable_sort(places, {}, [&](double i) { return keys[static_cast<std::size_t>(i)]; });
      std::ranges::sort(keys);
      OpCase one = exact_case({f32_type({o, l, d, c}), f32_type({o, l, n, c}), i32_type({l * n}), i32_type({l * n})},
                              {{}, {}, places, keys}, {{"add", add}});
      one.atol = 1e-5;
      cases.push_back(std::move(one));
    }
    return cases;
  };
  return op;
}

OpDef scatter_joins_op() {
  OpDef op = kernel_op("scatter_joins", "Adds the partial sums that scatter_runs left of runs longer than a chunk.", 3);
  op.lower = [](const FusedKernel& kernel, const Caps& caps) { return lower_runs(kernel, caps, true); };
  op.updates = 0;
  op.infer = [](const InferContext& ctx) -> std::vector<TensorType> {
    need_vector(ctx, 2, "keys");
    const TensorType &x = ctx.inputs[0], &parts = ctx.inputs[1];
    const std::int64_t items = ctx.inputs[2].shape[0];
    if (x.dtype != parts.dtype) ctx.fail(ErrorCode::DTypeMismatch, "the partial sums must have the operand's dtype");
    if (x.shape.rank() != 4 || parts.shape != Shape{x.shape[0], ceil_div(items, scatter_chunk(items)), 2, x.shape[3]}) {
      ctx.fail(ErrorCode::ShapeMismatch, "operand, partial sums and keys do not belong together");
    }
    return {x};
  };
  op.eval = [](const EvalContext& ctx) {
    const Shape& x = ctx.inputs[0]->type.shape;
    const auto &parts = ctx.inputs[1]->data, &sorted = ctx.inputs[2]->data;
    const std::int64_t lanes = x[1] * x[2], columns = x[3], chunks = ctx.inputs[1]->type.shape[1];
    auto& y = ctx.results[0].data;
    y = ctx.inputs[0]->data;
    std::vector<double> total(at(x[0] * columns));
    for_each_run(sorted, [&](const Run& run) {
      const auto key = static_cast<std::int64_t>(sorted[at(run.begin)]);
      if (key < 0 || key >= lanes || (!run.continues && !run.goes_on)) return;
      if (!run.continues) std::ranges::fill(total, 0.0);
      for (std::int64_t o = 0; o < x[0]; ++o) {
        for (std::int64_t c = 0; c < columns; ++c) {
          double& sum = total[at(o * columns + c)];
          sum += parts[at(((o * chunks + run.chunk) * 2 + (run.continues ? 0 : 1)) * columns + c)];
          double& target = y[at((o * lanes + key) * columns + c)];
          if (!run.goes_on) target = wrap_integer(ctx.results[0].type.dtype, target + sum);
        }
      }
    });
  };
  op.cases = [] {
    std::vector<OpCase> cases;
    for (const auto& [o, d, n, c] : {std::tuple{1, 2, 300, 4}, {2, 5, 100, 3}, {1, 1, 2000, 1}}) {
      std::vector<double> keys = some_keys(n, d + (d > 1 ? 1 : 0));
      std::ranges::sort(keys);
      OpCase one = exact_case(
          {f32_type({o, 1, d, c}), f32_type({o, ceil_div<std::int64_t>(n, scatter_chunk(n)), 2, c}), i32_type({n})},
          {{}, {}, keys});
      one.atol = 1e-5;
      cases.push_back(std::move(one));
    }
    return cases;
  };
  return op;
}

}  // namespace

std::vector<OpDef> scatter_kernel_ops() {
  return {index_order_op(), radix_offsets_op(), radix_move_op(), scatter_runs_op(), scatter_joins_op()};
}

}  // namespace aeshna

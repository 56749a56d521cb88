// select: each fused kernel becomes one KernelSpec, chosen with its geometry as one value.
//
// Kernels whose operands exceed what one descriptor covers are first cut by rows: along an outer dimension of the space, in
// halves, until every operand's window fits. A gather from such an operand sees it through several windows.
#include <algorithm>
#include <format>
#include <limits>
#include <map>
#include <numeric>
#include <optional>

#include "base/checked.h"
#include "base/fail.h"
#include "compile/stages.h"
#include "ir/access.h"
#include "ir/device_types.h"
#include "ir/op.h"

namespace aeshna {
namespace {

struct Window {
  std::int64_t low = std::numeric_limits<std::int64_t>::max();
  std::int64_t high = std::numeric_limits<std::int64_t>::min();  // inclusive
  bool empty() const { return low > high; }
};

std::vector<Window> windows(const FusedKernel& kernel) {
  std::vector<Window> result(kernel.operands.size());
  each_access(kernel, [&](const Body& body, std::uint32_t operand, const Access& access) {
    if (const auto touched = reach(access, body_space(kernel, body))) {
      result[operand].low = std::min(result[operand].low, touched->low);
      result[operand].high = std::max(result[operand].high, touched->high);
    }
  });
  return result;
}

/// Where dimension `dim` of the main space is in the space of `body`; nullopt when the body does not see it.
std::optional<std::size_t> dim_in_body(const FusedKernel& kernel, const Body& body, std::size_t dim) {
  if (&body == &kernel.body || kernel.kind != FusedKernel::Kind::Matmul) return dim;
  const std::size_t rows = batch_rank(kernel), columns = rows + kernel.row_rank;
  if (&body == &kernel.a) return dim < columns ? std::optional(dim) : std::nullopt;
  if (dim < rows) return dim;
  if (dim < columns) return std::nullopt;
  return dim - kernel.row_rank + std::max<std::size_t>(body.k.size(), 1);
}

/// Rows [start, start + count) of dimension `dim` of the main space.
FusedKernel rows_of(const FusedKernel& kernel, std::size_t dim, std::int64_t start, std::int64_t count) {
  FusedKernel part = kernel;
  part.space[dim] = count;
  for (Body* body : {&part.a, &part.b, &part.body}) {
    const auto own = dim_in_body(part, *body, dim);
    if (!own) continue;
    const auto space = body_space(part, *body);
    const auto shift = [&](Access& access) {
      if (*own >= access.strides.size()) return;
      access.offset += access.strides[*own] * start;
      for (auto& guard : access.guards) {
        const std::int64_t moved = guard.coefficient(*own) * start;
        guard.low -= moved;
        guard.high -= moved;
      }
      // A guard that always holds would only be in the way of vector loads.
      std::erase_if(access.guards, [&](const Access::Guard& guard) {
        std::int64_t low = 0, high = 0;
        for (const auto& [d, coefficient] : guard.terms) (coefficient < 0 ? low : high) += coefficient * (space[d] - 1);
        return guard.low <= low && high < guard.high;
      });
    };
    for (Instr& instr : body->instrs) {
      if (instr.kind == Instr::Kind::Load || instr.kind == Instr::Kind::Random) shift(instr.access);
      if (instr.kind == Instr::Kind::Index && instr.dim == *own) instr.access.offset += instr.access.strides[0] * start;
    }
    for (Store& store : body->stores) shift(store.access);
  }
  return part;
}

/// The index of a gather that alone reaches further than `limit` elements of `operand`, as position in the load's arguments.
std::optional<std::size_t> far_index(const Instr& instr, std::uint32_t operand, std::int64_t limit) {
  if (instr.kind != Instr::Kind::Load || instr.operand != operand) return std::nullopt;
  for (std::size_t i = 0; i < instr.access.dynamic.size(); ++i) {
    const auto& [stride, extent] = instr.access.dynamic[i];
    if (stride > 0 && extent > 1 && extent - 1 >= limit / stride) return i;
  }
  return std::nullopt;
}

/// Gathers from `operand`, whose indices reach over more than one descriptor covers, become one gather for each window of at most
/// `limit` elements: every window is an operand of its own, and the index says which one counts. False if there are none.
bool bind_windows(FusedKernel& kernel, std::uint32_t operand, std::int64_t limit) {
  std::map<std::int64_t, std::uint32_t> windows;  // by first element: the operand
  bool any = false;
  for (Body* body : {&kernel.a, &kernel.b, &kernel.body}) {
    if (body->instrs.empty()) continue;
    const std::vector<std::int64_t> space = body_space(kernel, *body);
    Body result;
    result.k = body->k;
    std::vector<std::uint32_t> renamed;
    const auto push = [&](Instr instr) {
      result.instrs.push_back(std::move(instr));
      return static_cast<std::uint32_t>(result.instrs.size() - 1);
    };
    const auto op = [&](std::string_view name, DType dtype, std::vector<std::uint32_t> args) {
      Instr instr;
      instr.kind = Instr::Kind::Op;
      instr.op = &find_op(name);
      instr.dtype = dtype;
      instr.args = std::move(args);
      return push(std::move(instr));
    };
    for (const Instr& old : body->instrs) {
      Instr instr = old;
      for (std::uint32_t& arg : instr.args) arg = renamed[arg];
      const auto far = far_index(old, operand, limit);
      std::int64_t rows = 0;  // of a window
      if (far) {
        // What lies within one row of the index must fit as well; farther strides are left to the row split.
        const std::int64_t stride = old.access.dynamic[*far].stride;
        std::int64_t inner = 1;
        for (std::size_t d = 0; d < old.access.strides.size(); ++d) {
          const std::int64_t s = std::abs(old.access.strides[d]);
          if (s < stride) inner = checked_add(inner, checked_mul(s, std::max<std::int64_t>(space[d] - 1, 0), "a gather"), "a gather");
        }
        rows = inner > limit ? 0 : (limit - inner) / stride + 1;
      }
      if (rows < 1) {
        renamed.push_back(push(std::move(instr)));
        continue;
      }
      any = true;
      const std::int64_t extent = old.access.dynamic[*far].extent;
      const std::uint32_t index = instr.args[*far];
      const DType index_type = result.instrs[index].dtype;
      std::optional<std::uint32_t> value;
      for (std::int64_t first = 0; first < extent; first += rows) {
        Instr window = instr;
        window.access.offset += first * old.access.dynamic[*far].stride;
        window.access.dynamic[*far].extent = std::min(rows, extent - first);
        if (!value) {
          value = push(std::move(window));
          continue;
        }
        Instr number;
        number.kind = Instr::Kind::Literal;
        number.dtype = index_type;
        number.literal = static_cast<double>(first);
        const std::uint32_t literal = push(std::move(number));
        window.args[*far] = op("sub", index_type, {index, literal});
        const auto [entry, fresh] = windows.try_emplace(window.access.offset - old.access.offset, static_cast<std::uint32_t>(kernel.operands.size()));
        if (fresh) kernel.operands.push_back(KernelOperand(kernel.operands[operand]));
        window.operand = entry->second;
        const std::uint32_t here = push(std::move(window));
        value = op("select", instr.dtype, {op("greater_equal", DType::boolean, {index, literal}), here, *value});
      }
      renamed.push_back(*value);
    }
    result.stores = std::move(body->stores);
    for (Store& store : result.stores) store.value = renamed[store.value];
    *body = std::move(result);
  }
  return any;
}

std::string describe(const FusedKernel& kernel) {
  return kernel.anchor != nullptr ? kernel.anchor->name : std::string("kernel");
}

/// Elements of a dtype that one descriptor covers.
std::int64_t most_elements(DType dtype, const Caps& caps) {
  const DeviceUnit unit = device_unit(dtype);
  const std::uint64_t units = caps.max_storage_range / unit.bytes;
  return static_cast<std::int64_t>(
      std::min<std::uint64_t>(units, std::numeric_limits<std::int64_t>::max() / unit.elements) * unit.elements);
}

/// Windows begin at multiples of this many elements: whole units at descriptor offsets.
std::int64_t window_alignment(DType dtype, const Caps& caps) {
  const DeviceUnit unit = device_unit(dtype);
  const std::uint64_t bytes = std::max<std::uint64_t>(caps.storage_alignment, 4);
  return static_cast<std::int64_t>(bytes / std::gcd(bytes, std::uint64_t{unit.bytes})) * unit.elements;
}

void split_by_rows(FusedKernel kernel, const Caps& caps, std::vector<FusedKernel>& out) {
  const auto limit = [&](std::size_t operand) { return most_elements(kernel.operands[operand].dtype, caps); };
  const auto align_down = [&](std::int64_t element, std::size_t operand) {
    const std::int64_t alignment = window_alignment(kernel.operands[operand].dtype, caps);
    return element / alignment * alignment;
  };
  if (kernel.kind == FusedKernel::Kind::Template) {
    for (std::size_t i = 0; i < kernel.operands.size(); ++i) {
      const KernelOperand& operand = kernel.operands[i];
      if (operand.elements <= limit(i)) continue;
      fail(ErrorCode::LimitExceeded, "[{}] an operand of {} elements needs a descriptor of {} bytes; max_storage_range of {} is {} bytes",
           describe(kernel), operand.elements, device_bytes(operand.dtype, operand.elements), caps.device_name, caps.max_storage_range);
    }
    out.push_back(std::move(kernel));
    return;
  }
  const auto touched = windows(kernel);
  std::optional<std::size_t> worst;
  bool whole = true;
  for (std::size_t i = 0; i < touched.size(); ++i) {
    const bool fits_whole = kernel.operands[i].elements <= limit(i);
    whole = whole && fits_whole;
    if (fits_whole || touched[i].empty()) continue;
    if (touched[i].high - align_down(touched[i].low, i) + 1 > limit(i)) worst = i;
  }
  if (whole) {
    out.push_back(std::move(kernel));
    return;
  }
  if (!worst) {
    // Every window fits: operands are seen from the start of their windows.
    for (std::size_t i = 0; i < touched.size(); ++i) {
      if (kernel.operands[i].elements <= limit(i)) continue;
      KernelOperand& operand = kernel.operands[i];
      if (touched[i].empty()) {  // this part reads nothing of it: any small window will do
        operand.elements = std::min(operand.elements, window_alignment(operand.dtype, caps));
        continue;
      }
      operand.first_element = align_down(touched[i].low, i);
      operand.elements = touched[i].high - operand.first_element + 1;
      each_access(kernel, [&](Body&, std::uint32_t index, Access& access) {
        if (index == i) access.offset -= operand.first_element;
      });
    }
    out.push_back(std::move(kernel));
    return;
  }
  if (bind_windows(kernel, static_cast<std::uint32_t>(*worst), limit(*worst) - window_alignment(kernel.operands[*worst].dtype, caps))) {
    split_by_rows(std::move(kernel), caps, out);
    return;
  }
  // The dimension whose halves shrink the worst operand's window most.
  const bool reduction = kernel.kind == FusedKernel::Kind::Reduction;
  const std::size_t candidates = reduction ? kernel.outer_rank : kernel.space.size();
  std::optional<std::size_t> best;
  std::int64_t best_size = touched[*worst].high - touched[*worst].low;
  for (std::size_t d = 0; d < candidates; ++d) {
    if (kernel.space[d] < 2) continue;
    const auto half = windows(rows_of(kernel, d, 0, kernel.space[d] / 2))[*worst];
    const std::int64_t size = half.empty() ? 0 : half.high - half.low;
    if (size < best_size) {
      best_size = size;
      best = d;
    }
  }
  if (!best) {
    // An operand seen at two far places through guards (a concatenation of parts of one tensor): smaller parts see one of them.
    each_access(kernel, [&](const Body& body, std::uint32_t operand, const Access& access) {
      if (operand != *worst || &body != &kernel.body) return;
      for (const auto& guard : access.guards) {
        for (const auto& term : guard.terms) {
          if (!best && term.dim < candidates && kernel.space[term.dim] > 1) best = term.dim;
        }
      }
    });
  }
  if (!best) {
    fail(ErrorCode::LimitExceeded,
         "[{}] an operand of {} elements needs a descriptor of {} bytes and cannot be split by rows; max_storage_range of {} is {} bytes",
         describe(kernel), kernel.operands[*worst].elements,
         device_bytes(kernel.operands[*worst].dtype, touched[*worst].high - touched[*worst].low + 1),
         caps.device_name, caps.max_storage_range);
  }
  const std::int64_t half = kernel.space[*best] / 2;
  split_by_rows(rows_of(kernel, *best, 0, half), caps, out);
  split_by_rows(rows_of(kernel, *best, half, kernel.space[*best] - half), caps, out);
}

KernelSpec choose(const FusedKernel& kernel, const Caps& caps, std::vector<std::string>& notes) {
  const OpDef& anchor = *kernel.anchor;
  if (!anchor.lower) fail(ErrorCode::Internal, "[{}] has no kernel", anchor.name);
  std::string reasons;
  for (Candidate& candidate : anchor.lower(kernel, caps)) {
    if (candidate.rejected.empty()) {
      if (!reasons.empty()) notes.push_back(std::format("{}: chose {}; rejected {}", anchor.name, candidate.spec.variant, reasons));
      return std::move(candidate.spec);
    }
    if (!reasons.empty()) reasons += "; ";
    reasons += candidate.spec.variant + ": " + candidate.rejected;
  }
  fail(ErrorCode::LimitExceeded, "[{}] no kernel variant fits {}: {}", anchor.name, caps.device_name, reasons);
}

}  // namespace

std::vector<std::pair<FusedKernel, KernelSpec>> select(std::vector<FusedKernel> fused, const Caps& caps, bool tiny_tiles,
                                                       std::vector<std::string>& notes) {
  Caps chosen = caps;
  if (tiny_tiles) chosen.compute_units = 0;  // lowering takes the smallest tiles and splits early
  std::vector<std::pair<FusedKernel, KernelSpec>> result;
  for (FusedKernel& kernel : fused) {
    std::vector<FusedKernel> parts;
    split_by_rows(std::move(kernel), caps, parts);
    for (FusedKernel& part : parts) {
      KernelSpec spec = choose(part, chosen, notes);
      result.emplace_back(std::move(part), std::move(spec));
    }
  }
  return result;
}

}  // namespace aeshna

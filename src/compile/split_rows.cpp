// split_by_rows: kernels whose operands exceed what one descriptor covers, or lie in several buffers, are cut along an outer
// dimension of their space until each operand is seen through one window that fits.
//
// A window that is only too long is halved. Where a tensor lies in parts (KernelOperand::part_elements) a window must not reach over
// a cut: the kernel is cut there. A gather from such an operand sees it through several windows, each an operand of its own; so
// does a product whose sum reaches farthest (the gradient by what was multiplied by a large weight), and a kernel that sees parts far
// from each other.
#include <algorithm>
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

/// Elements of a dtype that one descriptor covers.
std::int64_t most_elements(DType dtype, const Caps& caps) {
  const DeviceUnit unit = device_unit(dtype);
  const std::uint64_t units = caps.max_storage_range / unit.bytes;
  return static_cast<std::int64_t>(
      std::min<std::uint64_t>(units, std::numeric_limits<std::int64_t>::max() / unit.elements) * unit.elements);
}

/// Windows begin at multiples of this many elements from the start of their buffer: whole units at descriptor offsets.
std::int64_t window_alignment(DType dtype, const Caps& caps) {
  const DeviceUnit unit = device_unit(dtype);
  const std::uint64_t bytes = std::max<std::uint64_t>(caps.storage_alignment, 4);
  return static_cast<std::int64_t>(bytes / std::gcd(bytes, std::uint64_t{unit.bytes})) * unit.elements;
}

/// What the windows of an operand must observe.
struct Bounds {
  Bounds(const KernelOperand& operand, const Caps& caps)
      : limit(most_elements(operand.dtype, caps)), alignment(window_alignment(operand.dtype, caps)), part(operand.part_elements) {}
  bool whole(const KernelOperand& operand) const { return part == 0 && operand.elements <= limit; }
  std::int64_t part_of(std::int64_t element) const { return part > 0 ? element / part : 0; }
  /// Where a window begins that holds `element`.
  std::int64_t first(std::int64_t element) const {
    const std::int64_t start = part_of(element) * part;
    return start + (element - start) / alignment * alignment;
  }
  bool fit(std::int64_t low, std::int64_t high) const { return part_of(low) == part_of(high) && high - first(low) + 1 <= limit; }

  std::int64_t limit, alignment, part;
};

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

/// The index of a gather from `operand` that is seen through windows, as position in the load's arguments: one that alone reaches
/// over more than a window.
std::optional<std::size_t> far_index(const Instr& instr, std::uint32_t operand, const Bounds& bounds, std::span<const std::int64_t> space) {
  if (instr.kind != Instr::Kind::Load || instr.operand != operand) return std::nullopt;
  const auto& indices = instr.access.dynamic;
  if (bounds.part == 0) {
    const std::int64_t limit = bounds.limit - bounds.alignment;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (indices[i].stride > 0 && indices[i].extent > 1 && indices[i].extent - 1 >= limit / indices[i].stride) return i;
    }
    return std::nullopt;
  }
  const auto touched = reach(instr.access, space);
  if (!touched || bounds.fit(touched->low, touched->high)) return std::nullopt;
  std::optional<std::size_t> far;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices[i].stride > 0 && indices[i].extent > 1 && (!far || indices[i].stride > indices[*far].stride)) far = i;
  }
  if (!far) return std::nullopt;
  for (std::size_t d = 0; d < instr.access.strides.size(); ++d) {  // where rows are farther apart, the row split comes first
    if (space[d] > 1 && std::abs(instr.access.strides[d]) >= indices[*far].stride) return std::nullopt;
  }
  return far;
}

/// The values of index `far` at which the windows of a gather begin; empty if not even one value fits a window.
std::vector<std::int64_t> window_starts(const Access& access, std::size_t far, const Bounds& bounds, std::span<const std::int64_t> space) {
  const auto& [stride, extent] = access.dynamic[far];
  std::vector<std::int64_t> starts;
  if (bounds.part == 0) {
    // What lies within one row of the index must fit as well; farther strides are left to the row split.
    const std::int64_t limit = bounds.limit - bounds.alignment;
    std::int64_t inner = 1;
    for (std::size_t d = 0; d < access.strides.size(); ++d) {
      const std::int64_t s = std::abs(access.strides[d]);
      if (s < stride) inner = checked_add(inner, checked_mul(s, std::max<std::int64_t>(space[d] - 1, 0), "a gather"), "a gather");
    }
    if (inner > limit) return {};
    for (std::int64_t first = 0; first < extent; first += (limit - inner) / stride + 1) starts.push_back(first);
    return starts;
  }
  Access one = access;
  one.dynamic[far].extent = 1;
  const auto row = reach(one, space);
  for (std::int64_t first = 0; row && first < extent;) {
    starts.push_back(first);
    const std::int64_t end = (bounds.part_of(row->low + first * stride) + 1) * bounds.part;
    if (row->high + first * stride >= end) return {};
    first += (end - 1 - row->high - first * stride) / stride + 1;
  }
  return starts;
}

/// A body that is written anew, instruction by instruction.
class BodyCopy {
 public:
  explicit BodyCopy(const Body& old) { result_.k = old.k; }

  std::uint32_t push(Instr instr) {
    result_.instrs.push_back(std::move(instr));
    return static_cast<std::uint32_t>(result_.instrs.size() - 1);
  }
  std::uint32_t op(std::string_view name, DType dtype, std::vector<std::uint32_t> args) {
    Instr instr;
    instr.kind = Instr::Kind::Op;
    instr.op = &find_op(name);
    instr.dtype = dtype;
    instr.args = std::move(args);
    return push(std::move(instr));
  }
  std::uint32_t literal(DType dtype, std::int64_t value) {
    Instr instr;
    instr.kind = Instr::Kind::Literal;
    instr.dtype = dtype;
    instr.literal = static_cast<double>(value);
    return push(std::move(instr));
  }
  /// An old instruction with the new arguments.
  Instr renamed(const Instr& old) const {
    Instr instr = old;
    for (std::uint32_t& arg : instr.args) arg = renamed_[arg];
    return instr;
  }
  /// What stands for the next old instruction.
  void stand_in(std::uint32_t value) { renamed_.push_back(value); }
  DType dtype(std::uint32_t value) const { return result_.instrs[value].dtype; }
  Body finish(std::vector<Store> stores) {
    result_.stores = std::move(stores);
    for (Store& store : result_.stores) store.value = renamed_[store.value];
    return std::move(result_);
  }

 private:
  Body result_;
  std::vector<std::uint32_t> renamed_;
};

/// Gathers from `operand`, whose indices reach over more than one window, become one gather for each: every window is an operand of
/// its own, and the index says which one counts. False if there are none.
bool bind_windows(FusedKernel& kernel, std::uint32_t operand, const Bounds& bounds) {
  std::map<std::int64_t, std::uint32_t> windows;  // by part, or first element: the operand
  if (bounds.part == 0) windows[0] = operand;
  bool any = false;
  for (Body* body : {&kernel.a, &kernel.b, &kernel.body}) {
    if (body->instrs.empty()) continue;
    const std::vector<std::int64_t> space = body_space(kernel, *body);
    BodyCopy copy(*body);
    for (const Instr& old : body->instrs) {
      Instr instr = copy.renamed(old);
      const auto far = far_index(old, operand, bounds, space);
      const std::vector<std::int64_t> starts = far ? window_starts(old.access, *far, bounds, space) : std::vector<std::int64_t>();
      if (starts.empty()) {
        copy.stand_in(copy.push(std::move(instr)));
        continue;
      }
      any = true;
      const std::int64_t extent = old.access.dynamic[*far].extent;
      const std::uint32_t index = instr.args[*far];
      const DType index_type = copy.dtype(index);
      std::optional<std::uint32_t> value;
      for (std::size_t w = 0; w < starts.size(); ++w) {
        const std::int64_t first = starts[w];
        Instr window = instr;
        window.access.offset += first * old.access.dynamic[*far].stride;
        window.access.dynamic[*far].extent = (w + 1 < starts.size() ? starts[w + 1] : extent) - first;
        std::optional<std::uint32_t> literal;
        if (first > 0) {
          literal = copy.literal(index_type, first);
          window.args[*far] = copy.op("sub", index_type, {index, *literal});
        }
        const auto touched = bounds.part > 0 ? reach(window.access, space) : std::nullopt;
        const std::int64_t key = bounds.part == 0 ? window.access.offset - old.access.offset : touched ? bounds.part_of(touched->low) : 0;
        const auto [entry, fresh] = windows.try_emplace(key, windows.empty() ? operand : static_cast<std::uint32_t>(kernel.operands.size()));
        if (fresh && entry->second != operand) kernel.operands.push_back(KernelOperand(kernel.operands[operand]));
        window.operand = entry->second;
        const std::uint32_t here = copy.push(std::move(window));
        value = !value ? here
                       : copy.op("select", instr.dtype,
                                 {copy.op("greater_equal", DType::boolean, {index, *literal}), here, *value});
      }
      copy.stand_in(*value);
    }
    *body = copy.finish(std::move(body->stores));
  }
  return any;
}

/// The contracted dimension along which a load of a product's operand reaches farthest; nullopt: that is another dimension.
std::optional<std::size_t> far_sum(const FusedKernel& kernel, const Body& body, const Access& access) {
  const std::vector<std::int64_t> space = body_space(kernel, body);
  std::optional<std::size_t> far;
  std::int64_t most = 0;
  for (std::size_t d = 0; d < access.strides.size(); ++d) {
    const std::int64_t distance = checked_mul(std::abs(access.strides[d]), space[d] - 1, "offset of an operand");
    if (distance > most) far = d, most = distance;
  }
  const std::size_t first = batch_rank(kernel) + (&body == &kernel.a ? kernel.row_rank : 0);
  const bool contracted = far && *far >= first && *far < first + std::max<std::size_t>(body.k.size(), 1);
  return contracted ? far : std::nullopt;
}

/// Where the windows of an access begin along a dimension, each as long as possible; empty if not even one point fits a window.
std::vector<std::int64_t> range_starts(const Access& access, std::size_t dim, const Bounds& bounds,
                                       std::span<const std::int64_t> space) {
  const auto fits = [&](std::int64_t from, std::int64_t to) {
    Access range = access;
    range.guards.emplace_back(static_cast<std::uint32_t>(dim), from, to);
    const auto touched = reach(range, space);
    return !touched || bounds.fit(touched->low, touched->high);
  };
  std::vector<std::int64_t> starts;
  for (std::int64_t first = 0; first < space[dim];) {
    std::int64_t good = first, bad = space[dim] + 1;  // windows grow with the range
    while (bad - good > 1) {
      const std::int64_t end = good + (bad - good) / 2;
      (fits(first, end) ? good : bad) = end;
    }
    if (good == first) return {};
    starts.push_back(first);
    first = good;
  }
  return starts;
}

/// Loads of a product's operand that reach farthest along the sum, over more than one window, become one load for each window: an
/// operand of its own, which counts for a range of the contracted dimension. False if there are none, or
/// more than a kernel can have.
bool bind_ranges(FusedKernel& kernel, std::uint32_t operand, const Bounds& bounds, const Caps& caps) {
  if (kernel.kind != FusedKernel::Kind::Matmul) return false;
  bool any = false;
  for (Body* body : {&kernel.a, &kernel.b}) {
    const std::vector<std::int64_t> space = body_space(kernel, *body);
    BodyCopy copy(*body);
    for (const Instr& old : body->instrs) {
      Instr instr = copy.renamed(old);
      const bool loads = old.kind == Instr::Kind::Load && old.operand == operand;
      const auto touched = loads ? reach(old.access, space) : std::nullopt;
      const bool too_far = touched && !bounds.fit(touched->low, touched->high);
      const auto far = too_far ? far_sum(kernel, *body, old.access) : std::nullopt;
      const std::vector<std::int64_t> starts =
          far ? range_starts(old.access, *far, bounds, space) : std::vector<std::int64_t>();
      if (starts.empty() || kernel.operands.size() + starts.size() - 1 > caps.max_storage_buffers) {
        copy.stand_in(copy.push(std::move(instr)));
        continue;
      }
      any = true;
      const auto dim = static_cast<std::uint32_t>(*far);
      Instr coordinate;
      coordinate.kind = Instr::Kind::Index;
      coordinate.dtype = DType::i32;
      coordinate.dim = dim;
      coordinate.access.strides = {1};
      const std::uint32_t index = copy.push(std::move(coordinate));
      std::optional<std::uint32_t> value;
      for (std::size_t w = 0; w < starts.size(); ++w) {
        const std::int64_t end = w + 1 < starts.size() ? starts[w + 1] : space[*far];
        Instr window = instr;
        window.access.guards.emplace_back(dim, starts[w], end);
        if (w > 0) {
          window.operand = static_cast<std::uint32_t>(kernel.operands.size());
          kernel.operands.push_back(KernelOperand(kernel.operands[operand]));
        }
        const std::uint32_t here = copy.push(std::move(window));
        if (!value) {
          value = here;
          continue;
        }
        const std::uint32_t counts =
            copy.op("greater_equal", DType::boolean, {index, copy.literal(DType::i32, starts[w])});
        value = copy.op("select", instr.dtype, {counts, here, *value});
      }
      copy.stand_in(*value);
    }
    *body = copy.finish(std::move(body->stores));
  }
  return any;
}

std::string describe(const FusedKernel& kernel) {
  return kernel.anchor != nullptr ? kernel.anchor->name : std::string("kernel");
}

[[noreturn]] void refuse(const FusedKernel& kernel, const KernelOperand& operand, std::int64_t elements, const Caps& caps) {
  if (operand.part_elements > 0) {
    fail(ErrorCode::LimitExceeded,
         "[{}] an operand of {} bytes lies in several buffers, since max_buffer_size of {} is {} bytes, and the kernel cannot be split "
         "by rows so that each part sees one of them",
         describe(kernel), device_bytes(operand.dtype, operand.elements), caps.device_name, caps.max_buffer_size);
  }
  fail(ErrorCode::LimitExceeded,
       "[{}] an operand of {} elements needs a descriptor of {} bytes and cannot be split by rows; max_storage_range of {} is {} bytes",
       describe(kernel), operand.elements, device_bytes(operand.dtype, elements), caps.device_name, caps.max_storage_range);
}

class RowSplitter {
 public:
  RowSplitter(const Caps& caps, std::vector<FusedKernel>& out) : caps_(caps), out_(out) {}

  void split(FusedKernel kernel) {
    if (kernel.kind == FusedKernel::Kind::Template) {
      for (const KernelOperand& operand : kernel.operands) {
        if (!Bounds(operand, caps_).whole(operand)) refuse(kernel, operand, operand.elements, caps_);
      }
      out_.push_back(std::move(kernel));
      return;
    }
    const auto touched = windows(kernel);
    std::optional<std::uint32_t> worst;
    for (std::uint32_t i = 0; i < touched.size(); ++i) {
      const Bounds bounds(kernel.operands[i], caps_);
      if (bounds.whole(kernel.operands[i]) || touched[i].empty()) continue;
      if (!bounds.fit(touched[i].low, touched[i].high)) worst = i;
    }
    if (!worst) {
      see_windows(kernel, touched);
      out_.push_back(std::move(kernel));
      return;
    }
    const Bounds bounds(kernel.operands[*worst], caps_);
    if (bind_windows(kernel, *worst, bounds) || bind_ranges(kernel, *worst, bounds, caps_)) {
      split(std::move(kernel));
      return;
    }
    const std::vector<std::size_t> dims = best_dims(kernel, *worst, bounds);
    if (bounds.part > 0 && split_at_cut(kernel, *worst, bounds, dims)) return;
    std::optional<std::size_t> best = dims.empty() ? std::nullopt : std::optional(dims.front());
    if (!best) best = guarded_dim(kernel, *worst);
    if (!best) refuse(kernel, kernel.operands[*worst], touched[*worst].high - touched[*worst].low + 1, caps_);
    split_at(kernel, *best, kernel.space[*best] / 2);
  }

 private:
  void split_at(const FusedKernel& kernel, std::size_t dim, std::int64_t at) {
    split(rows_of(kernel, dim, 0, at));
    split(rows_of(kernel, dim, at, kernel.space[dim] - at));
  }

  /// Every window fits: operands are seen from the start of their windows.
  void see_windows(FusedKernel& kernel, std::span<const Window> touched) const {
    for (std::size_t i = 0; i < touched.size(); ++i) {
      KernelOperand& operand = kernel.operands[i];
      const Bounds bounds(operand, caps_);
      if (bounds.whole(operand)) continue;
      if (touched[i].empty()) {  // this part reads nothing of it: any small window will do
        operand.elements = std::min(operand.elements, bounds.alignment);
        if (bounds.part > 0) operand.elements = std::min(operand.elements, bounds.part);
        continue;
      }
      operand.first_element = bounds.first(touched[i].low);
      operand.elements = touched[i].high - operand.first_element + 1;
      each_access(kernel, [&](Body&, std::uint32_t index, Access& access) {
        if (index == i) access.offset -= operand.first_element;
      });
    }
  }

  static std::size_t candidate_dims(const FusedKernel& kernel) {
    return kernel.kind == FusedKernel::Kind::Reduction ? kernel.outer_rank : kernel.space.size();
  }

  /// How far the operand's window reaches; of one in parts, the sum over its accesses, which may come to see windows of their own.
  static std::int64_t extent_of(const FusedKernel& kernel, std::uint32_t operand, const Bounds& bounds) {
    if (bounds.part == 0) {
      const Window touched = windows(kernel)[operand];
      return touched.empty() ? 0 : touched.high - touched.low;
    }
    std::int64_t sum = 0;
    each_access(kernel, [&](const Body& body, std::uint32_t index, const Access& access) {
      if (index != operand) return;
      if (const auto touched = reach(access, body_space(kernel, body))) sum += touched->high - touched->low;
    });
    return sum;
  }

  /// Dimensions whose halves shrink that, the one that shrinks it most first.
  static std::vector<std::size_t> best_dims(const FusedKernel& kernel, std::uint32_t operand, const Bounds& bounds) {
    std::vector<std::pair<std::int64_t, std::size_t>> sizes;
    const std::int64_t whole = extent_of(kernel, operand, bounds);
    for (std::size_t d = 0; d < candidate_dims(kernel); ++d) {
      if (kernel.space[d] < 2) continue;
      const std::int64_t size = extent_of(rows_of(kernel, d, 0, kernel.space[d] / 2), operand, bounds);
      if (size < whole) sizes.emplace_back(size, d);
    }
    std::ranges::sort(sizes);
    std::vector<std::size_t> dims;
    for (const auto& [size, d] : sizes) dims.push_back(d);
    return dims;
  }

  /// An operand seen at two far places through guards (a concatenation of parts of one tensor): smaller parts see one of them.
  static std::optional<std::size_t> guarded_dim(const FusedKernel& kernel, std::uint32_t operand) {
    std::optional<std::size_t> dim;
    each_access(kernel, [&](const Body& body, std::uint32_t index, const Access& access) {
      if (index != operand || &body != &kernel.body) return;
      for (const auto& guard : access.guards) {
        for (const auto& term : guard.terms) {
          if (!dim && term.dim < candidate_dims(kernel) && kernel.space[term.dim] > 1) dim = term.dim;
        }
      }
    });
    return dim;
  }

  /// Does each access to the operand by itself stay within one part?
  static bool each_fits(const FusedKernel& kernel, std::uint32_t operand, const Bounds& bounds) {
    bool fits = true;
    each_access(kernel, [&](const Body& body, std::uint32_t index, const Access& access) {
      if (index != operand || !fits) return;
      const auto touched = reach(access, body_space(kernel, body));
      fits = !touched || bounds.fit(touched->low, touched->high);
    });
    return fits;
  }

  /// The most rows at the start of `dim`, or at its end, with which `fits` holds, as a place to split; 0: none.
  template <class Fits>
  static std::int64_t cut_of(const FusedKernel& kernel, std::size_t dim, Fits fits) {
    const std::int64_t extent = kernel.space[dim];
    for (const bool at_end : {false, true}) {
      std::int64_t good = 0, bad = extent;  // windows grow with the rows
      while (bad - good > 1) {
        const std::int64_t rows = good + (bad - good) / 2;
        (fits(rows_of(kernel, dim, at_end ? extent - rows : 0, rows)) ? good : bad) = rows;
      }
      if (good > 0) return at_end ? extent - good : good;
    }
    return 0;
  }

  /// The window of `operand` reaches over a cut between two of its buffers: splits there. False if that is not to be had.
  bool split_at_cut(FusedKernel& kernel, std::uint32_t operand, const Bounds& bounds, std::span<const std::size_t> dims) {
    const auto together = [&](const FusedKernel& part) {
      const Window touched = windows(part)[operand];
      return touched.empty() || bounds.fit(touched.low, touched.high);
    };
    const auto apart = [&](const FusedKernel& part) { return each_fits(part, operand, bounds); };
    for (const std::size_t dim : dims) {
      if (const std::int64_t at = cut_of(kernel, dim, together); at > 0) return split_at(kernel, dim, at), true;
    }
    if (apart(kernel)) {
      see_apart(kernel, operand, bounds);
      split(std::move(kernel));
      return true;
    }
    for (const std::size_t dim : dims) {
      if (const std::int64_t at = cut_of(kernel, dim, apart); at > 0) return split_at(kernel, dim, at), true;
    }
    return false;
  }

  /// Accesses to different parts of the operand become accesses to operands of their own.
  static void see_apart(FusedKernel& kernel, std::uint32_t operand, const Bounds& bounds) {
    std::map<std::int64_t, std::uint32_t> parts;
    std::vector<KernelOperand> added;
    const auto operand_of = [&](const Access& access, std::span<const std::int64_t> space) {
      const auto touched = reach(access, space);
      if (!touched) return operand;
      const auto next = static_cast<std::uint32_t>(kernel.operands.size() + added.size());
      const auto [entry, fresh] = parts.try_emplace(bounds.part_of(touched->low), parts.empty() ? operand : next);
      if (fresh && entry->second != operand) {
        added.push_back(kernel.operands[operand]);
        added.back().in_place_of.reset();
      }
      return entry->second;
    };
    for (Body* body : {&kernel.a, &kernel.b, &kernel.body}) {
      if (body->instrs.empty()) continue;
      const std::vector<std::int64_t> space = body_space(kernel, *body);
      for (Instr& instr : body->instrs) {
        if (instr.kind == Instr::Kind::Load && instr.operand == operand) instr.operand = operand_of(instr.access, space);
      }
      for (Store& store : body->stores) {
        if (store.operand == operand) store.operand = operand_of(store.access, space);
      }
    }
    kernel.operands.insert(kernel.operands.end(), added.begin(), added.end());
  }

  const Caps& caps_;
  std::vector<FusedKernel>& out_;
};

}  // namespace

std::vector<FusedKernel> split_by_rows(FusedKernel kernel, const Caps& caps) {
  std::vector<FusedKernel> parts;
  RowSplitter(caps, parts).split(std::move(kernel));
  return parts;
}

}  // namespace aeshna

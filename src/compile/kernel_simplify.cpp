#include "compile/kernel_simplify.h"

#include <algorithm>

#include "ir/access.h"

namespace aeshna {
namespace {

template <class BodyRef, class F>
void each_body_access(BodyRef& body, F visit) {
  for (auto& instr : body.instrs) {
    if (instr.kind == Instr::Kind::Load || instr.kind == Instr::Kind::Random) visit(instr.access);
  }
  for (auto& store : body.stores) visit(store.access);
}

/// Does nothing in `body` depend on dimension `dim`?
bool is_blind(const Body& body, std::size_t dim) {
  bool blind = true;
  each_body_access(body, [&](const Access& access) { blind = blind && uniform_access(access, dim); });
  for (const Instr& instr : body.instrs) blind = blind && (instr.kind != Instr::Kind::Index || instr.dim != dim);
  return blind;
}

/// Is everything in `body` a function of coordinate[dim] * extent + coordinate[dim + 1], where it looks at them?
bool is_linear(const Body& body, std::size_t dim, std::int64_t extent) {
  bool linear = true;
  each_body_access(body, [&](const Access& access) {
    if (dim + 1 >= access.strides.size()) {  // a store per row: it has the outer dimensions only
      linear = linear && dim >= access.strides.size();
      return;
    }
    linear = linear && access.strides[dim] == access.strides[dim + 1] * extent;
    for (const auto& guard : access.guards)
      linear = linear && guard.coefficient(dim) == guard.coefficient(dim + 1) * extent;
  });
  for (const Instr& instr : body.instrs)
    linear = linear && (instr.kind != Instr::Kind::Index || (instr.dim != dim && instr.dim != dim + 1));
  return linear;
}

/// Removes dimension `dim` from the space of `body`.
void erase_dimension(Body& body, std::size_t dim) {
  each_body_access(body, [&](Access& access) {
    if (dim < access.strides.size()) access.strides.erase(access.strides.begin() + static_cast<std::ptrdiff_t>(dim));
    for (auto& guard : access.guards) {
      std::erase_if(guard.terms, [&](const auto& term) { return term.dim == dim; });
      for (auto& term : guard.terms) term.dim -= term.dim > dim ? 1 : 0;
    }
  });
  for (Instr& instr : body.instrs) {
    if (instr.kind == Instr::Kind::Index && instr.dim > dim) --instr.dim;
  }
}

/// Dimension `from` becomes dimension `to` >= from; those in between move down.
void move_dimension(Body& body, std::size_t from, std::size_t to) {
  const auto renamed = [&](std::uint32_t dim) {
    return dim == from ? static_cast<std::uint32_t>(to) : dim > from && dim <= to ? dim - 1 : dim;
  };
  each_body_access(body, [&](Access& access) {
    const auto first = access.strides.begin() + static_cast<std::ptrdiff_t>(from);
    std::rotate(first, first + 1, access.strides.begin() + static_cast<std::ptrdiff_t>(to) + 1);
    for (auto& guard : access.guards) {
      for (auto& term : guard.terms) term.dim = renamed(term.dim);
    }
  });
  for (Instr& instr : body.instrs) {
    if (instr.kind == Instr::Kind::Index) instr.dim = renamed(instr.dim);
  }
}

void merge_extents(std::vector<std::int64_t>& extents, std::size_t dim) {
  extents[dim + 1] *= extents[dim];
  extents.erase(extents.begin() + static_cast<std::ptrdiff_t>(dim));
}

// ---- products

std::size_t k_rank(const Body& operand) { return std::max<std::size_t>(operand.k.size(), 1); }

/// A batch dimension that an operand does not see belongs to the other operand alone: it is rows or columns.
void free_batch_dimensions(FusedKernel& kernel) {
  for (std::size_t j = batch_rank(kernel); j-- > 0;) {
    const bool rows = is_blind(kernel.b, j), columns = !rows && is_blind(kernel.a, j);
    if (!rows && !columns) continue;
    const std::size_t batch = batch_rank(kernel);
    const std::size_t to = rows ? batch - 1 : batch + kernel.row_rank - 1;
    const auto first = kernel.space.begin() + static_cast<std::ptrdiff_t>(j);
    std::rotate(first, first + 1, kernel.space.begin() + static_cast<std::ptrdiff_t>(to) + 1);
    move_dimension(kernel.body, j, to);
    if (rows) {
      move_dimension(kernel.a, j, batch - 1);
      erase_dimension(kernel.b, j);
      ++kernel.row_rank;
    } else {
      erase_dimension(kernel.a, j);
      move_dimension(kernel.b, j, batch + k_rank(kernel.b) - 1);
      ++kernel.column_rank;
    }
  }
}

void merge_product(FusedKernel& kernel) {
  free_batch_dimensions(kernel);
  const auto merge_pair = [&](std::size_t j, std::size_t in_a, std::size_t in_b, bool seen_by_a, bool seen_by_b) {
    const std::int64_t extent = kernel.space[j + 1];
    if (!is_linear(kernel.body, j, extent) || (seen_by_a && !is_linear(kernel.a, in_a, extent)) ||
        (seen_by_b && !is_linear(kernel.b, in_b, extent))) {
      return false;
    }
    erase_dimension(kernel.body, j);
    if (seen_by_a) erase_dimension(kernel.a, in_a);
    if (seen_by_b) erase_dimension(kernel.b, in_b);
    merge_extents(kernel.space, j);
    return true;
  };
  for (std::size_t j = 0; j + 1 < batch_rank(kernel);) {
    if (!merge_pair(j, j, j, true, true)) ++j;
  }
  const std::size_t batch = batch_rank(kernel);
  for (std::size_t j = 0; j + 1 < kernel.row_rank;) {
    if (merge_pair(batch + j, batch + j, 0, true, false)) {
      --kernel.row_rank;
    } else {
      ++j;
    }
  }
  for (std::size_t j = 0; j + 1 < kernel.column_rank;) {
    if (merge_pair(batch + kernel.row_rank + j, 0, batch + k_rank(kernel.b) + j, false, true)) {
      --kernel.column_rank;
    } else {
      ++j;
    }
  }
  for (Body* operand : {&kernel.a, &kernel.b}) {
    const std::size_t first = batch + (operand == &kernel.a ? kernel.row_rank : 0);
    for (std::size_t j = 0; j + 1 < operand->k.size();) {
      if (is_linear(*operand, first + j, operand->k[j + 1])) {
        erase_dimension(*operand, first + j);
        merge_extents(operand->k, j);
      } else {
        ++j;
      }
    }
    if (operand->k.size() == 1) operand->k.clear();
  }
}

}  // namespace

void merge_dimensions(FusedKernel& kernel) {
  if (kernel.kind == FusedKernel::Kind::Matmul) return merge_product(kernel);
  for (std::size_t j = 0; j + 1 < kernel.space.size();) {
    const bool border = kernel.kind == FusedKernel::Kind::Reduction && j + 1 == kernel.outer_rank;
    if (border || !is_linear(kernel.body, j, kernel.space[j + 1])) {
      ++j;
      continue;
    }
    erase_dimension(kernel.body, j);
    merge_extents(kernel.space, j);
    if (j < kernel.outer_rank) --kernel.outer_rank;
  }
}

}  // namespace aeshna

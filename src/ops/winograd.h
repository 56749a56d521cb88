#pragma once
// 3x3 convolutions of stride 1 by Winograd's tiles (ir/winograd.h), for conv.cpp.
#include <cstdint>
#include <optional>
#include <vector>

#include "ops/build.h"

namespace aeshna {

/// The result of conv_product (w [G, Co, Ci, kernel], x [N, G, Ci, extents], stride and dilation 1) by Winograd's tiles; empty where
/// they do not apply or do not pay.
std::optional<Expr> winograd_product(const Expr& w, const Expr& x, const std::vector<std::int64_t>& before,
                                     const std::vector<std::int64_t>& out);
/// The same of conv_weight_product (dy [N, G, Co, windows], x) for kernels of this size.
std::optional<Expr> winograd_weight_product(const Expr& dy, const Expr& x, const std::vector<std::int64_t>& before,
                                            const std::vector<std::int64_t>& kernel);

}  // namespace aeshna

#pragma once
// The op families. table.cpp concatenates them; nothing registers itself.
#include <vector>

#include "ir/op.h"

namespace aeshna {

std::vector<OpDef> leaf_ops();       ///< leaves.cpp: input parameter state constant assign check
std::vector<OpDef> pointwise_ops();  ///< pointwise.cpp: one table of rows
std::vector<OpDef> shape_ops();      ///< shape.cpp: reshape permute slice expand pad concat iota
std::vector<OpDef> reduce_ops();     ///< reduce.cpp: sum max min prod argmax argmin mean logsumexp
std::vector<OpDef> matmul_ops();     ///< matmul.cpp
std::vector<OpDef> softmax_ops();    ///< softmax.cpp: softmax log_softmax
std::vector<OpDef> loss_ops();       ///< loss.cpp: cross_entropy mse l1 bce_with_logits
std::vector<OpDef> random_ops();     ///< random.cpp: random_bits random_uniform random_normal
std::vector<OpDef> window_ops();      ///< windows.cpp: flip windows
std::vector<OpDef> conv_ops();        ///< conv.cpp: conv conv_weight_gradient
std::vector<OpDef> winograd_ops();    ///< winograd.cpp: winograd_planes winograd_image
std::vector<OpDef> pool_ops();        ///< pool.cpp: max_pool avg_pool
std::vector<OpDef> resize_ops();      ///< resize.cpp: resize
std::vector<OpDef> norm_ops();        ///< norm.cpp: layer_norm rms_norm group_norm instance_norm batch_norm
std::vector<OpDef> attention_ops();   ///< attention.cpp: attention and its gradients
std::vector<OpDef> rope_ops();        ///< rope.cpp: rope
std::vector<OpDef> index_ops();       ///< index.cpp: gather gather_elements embedding one_hot
std::vector<OpDef> scatter_ops();     ///< scatter.cpp: scatter scatter_add, and the kernels they expand to
std::vector<OpDef> order_ops();       ///< order.cpp: cumsum sort topk
std::vector<OpDef> cache_ops();       ///< cache.cpp: cache_write

}  // namespace aeshna

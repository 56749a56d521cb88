#pragma once
// The kernel families: each writes the text of its KernelSpecs from a template under kernels/. codegen.cpp holds the
// table.
#include "codegen/glsl_writer.h"

namespace aeshna {

KernelSource generate_pointwise(KernelWriter& writer);  // pointwise.cpp
KernelSource generate_reduce(KernelWriter& writer);     // reduce.cpp
KernelSource generate_matmul(KernelWriter& writer);     // matmul.cpp
KernelSource generate_gemv(KernelWriter& writer);       // matmul.cpp
KernelSource generate_scan(KernelWriter& writer);       // order.cpp
KernelSource generate_sort_chunks(KernelWriter& writer);  // order.cpp
KernelSource generate_sort_merge(KernelWriter& writer);   // order.cpp
KernelSource generate_place(KernelWriter& writer);      // order.cpp
KernelSource generate_cache(KernelWriter& writer);      // order.cpp
KernelSource generate_winograd(KernelWriter& writer);   // winograd.cpp
KernelSource generate_attention(KernelWriter& writer);           // attention.cpp
KernelSource generate_attention_gradient(KernelWriter& writer);  // attention.cpp
KernelSource generate_index_order(KernelWriter& writer);    // scatter.cpp
KernelSource generate_radix_offsets(KernelWriter& writer);  // scatter.cpp
KernelSource generate_radix_move(KernelWriter& writer);     // scatter.cpp
KernelSource generate_scatter_runs(KernelWriter& writer);   // scatter.cpp
KernelSource generate_scatter_joins(KernelWriter& writer);  // scatter.cpp

}  // namespace aeshna

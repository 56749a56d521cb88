#pragma once
#include "io/onnx/translate.h"

namespace aeshna::onnx {

/// The matrix product as NumPy's matmul, of integers too.
Value product(Value a, Value b);

}  // namespace aeshna::onnx

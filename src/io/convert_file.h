#pragma once
// Tensors from one file to another: GGUF to safetensors, back, and to other dtypes on the way.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "aeshna/dtype.h"

namespace aeshna {

struct ConvertedTensor {
  std::string name;
  DType from, to;
  std::string note = {};  ///< why it did not become what was asked for; empty: it did, or nothing was asked of it
};

/// Reads `from` and writes `to` (".gguf" or ".safetensors"; by extension) with one tensor in memory at a time. `dtype` is what matrices (rank
/// 2 and above) become: a float of 16 or 32 bits or quantized blocks; vectors stay, as they are few and precision counts in norms. Where
/// a row has no multiple of 256 elements, q4_K becomes q5_0 and q6_K becomes q8_0; without a multiple of 32 the tensor stays. Without `dtype` nothing
/// changes, but safetensors has no blocks: they become f32 there.
/// Metadata: between files of one format all of it; from GGUF to safetensors all but arrays, as text; from safetensors to GGUF as strings.
/// Errors: those of both files; Unsupported for other extensions and dtypes; InvalidArgument if both are one file.
std::vector<ConvertedTensor> convert_file(const std::filesystem::path& from, const std::filesystem::path& to,
                                          std::optional<DType> dtype = {});

}  // namespace aeshna

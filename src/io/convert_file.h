#pragma once
// Tensors from one file to another: GGUF to safetensors, back, and to other dtypes on the way.
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "aeshna/attrs.h"

namespace aeshna {

struct ConvertedTensor {
  std::string name;
  DType from, to;
  bool edited = false;
  std::string note = {};  ///< why it did not become what was asked for; empty: it did, or nothing was asked of it
};

/// New values of tensors by name: from f32 to f32 of the same shape.
using TensorEdits = std::map<std::string, std::function<Literal(Literal)>, std::less<>>;

/// Reads `from` and writes `to` (".gguf" or ".safetensors"; by extension) with one tensor in memory at a time. `dtype` is what matrices (rank
/// 2 and above) become: a float of 16 or 32 bits or quantized blocks; vectors stay, as they are few and precision counts in norms. Where
/// a row has no multiple of 256 elements, q4_K becomes q5_0 and q6_K becomes q8_0; without a multiple of 32 the tensor stays. Without `dtype` nothing
/// changes, but safetensors has no blocks: they become f32 there.
/// Metadata: between files of one format all of it; from GGUF to safetensors all but arrays, as text; from safetensors to GGUF as strings.
/// `edits` are applied to the values on their way; each must name a float tensor of `from`.
/// Errors: those of both files; NotFound for an edit of no tensor; Unsupported for other extensions and dtypes; InvalidArgument if both are one file.
std::vector<ConvertedTensor> convert_file(const std::filesystem::path& from, const std::filesystem::path& to,
                                          std::optional<DType> dtype = {}, const TensorEdits& edits = {});

}  // namespace aeshna

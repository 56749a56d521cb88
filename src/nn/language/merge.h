#pragma once
// An adapter folded into the weights that it stands beside.
#include <filesystem>
#include <optional>
#include <vector>

#include "io/convert_file.h"

namespace aeshna {

/// Writes the model with W + scale B A in place of W: a GGUF file from a GGUF file, a folder from a folder of Hugging Face (with the files
/// of its config and tokenizer). Tensors keep their dtypes, or get what `dtype` says as in convert_file(): sums that become blocks or 16-bit
/// floats are rounded to them. Everything else stays as it is, byte for byte. Errors: those of opening both; InvalidArgument if `to` is of
/// the other kind or is what is read; Unsupported for a dtype that the files cannot hold; NonFinite naming a tensor.
std::vector<ConvertedTensor> merge_adapter(const std::filesystem::path& model, const std::filesystem::path& adapter,
                                           const std::filesystem::path& to, std::optional<DType> dtype = {});

}  // namespace aeshna

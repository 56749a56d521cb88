#pragma once
// NumPy's .npy files (NEP 1, "A Simple File Format for NumPy Arrays"; versions 1 to 3).
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "aeshna/attrs.h"

namespace aeshna {

/// Little-endian numbers and booleans, in C or Fortran order. Errors: NotFound or Io, CorruptFile (naming file and field),
/// Unsupported (big-endian, strings, objects, records; a rank above 8).
Literal read_npy(const std::filesystem::path& path);
Literal parse_npy(std::span<const std::byte> bytes, const std::string& name);

/// Version 1, C order; atomic (write_file_atomic). NumPy has no bfloat16: it is written as float32, which is exact. Error(Unsupported)
/// for what NumPy has no dtype for.
void write_npy(const std::filesystem::path& path, const Literal& value);

}  // namespace aeshna

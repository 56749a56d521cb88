#pragma once
// The IDX format of MNIST (http://yann.lecun.com/exdb/mnist/, "the IDX file format"): big-endian header, then the elements.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "aeshna/shape.h"

namespace aeshna {

struct IdxArray {
  Shape shape;
  std::vector<std::uint8_t> values;  ///< row-major
};

/// Unsigned bytes only, which is what MNIST and its relatives use. The header is checked against `rank` and the exact file
/// size before anything is allocated. Errors: CorruptFile, Unsupported (another element type); both name the file.
IdxArray parse_idx(std::span<const std::byte> bytes, int rank, std::string name);

}  // namespace aeshna

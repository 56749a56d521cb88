#include "bench/tensor_math.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace aeshna::bench {
namespace {

constexpr std::int64_t kPiece = 1024;

/// Some elements of a tensor, as doubles.
class Piece {
 public:
  Piece(const Literal& tensor, std::int64_t first) : count_(std::min(kPiece, tensor.type().shape.elements() - first)) {
    for (std::int64_t i = 0; i < count_; ++i) {
      double& value = values_[static_cast<std::size_t>(i)];
      if (tensor.type().dtype == DType::f32) {  // all but always: files of a gigabyte should not take minutes
        float element;
        std::memcpy(&element, tensor.bytes().data() + 4 * (first + i), sizeof element);
        value = static_cast<double>(element);
      } else {
        value = tensor.at(first + i);
      }
    }
  }
  std::span<const double> values() const { return {values_.data(), static_cast<std::size_t>(count_)}; }

 private:
  std::array<double, kPiece> values_;
  std::int64_t count_;
};

}  // namespace

double l2_norm(const Literal& tensor) { return std::sqrt(compare(tensor, tensor).reference); }

double sum(const Literal& tensor) {
  double total = 0;
  for (std::int64_t first = 0; first < tensor.type().shape.elements(); first += kPiece) {
    const Piece piece(tensor, first);
    for (const double value : piece.values()) total += value;
  }
  return total;
}

Squares compare(const Literal& reference, const Literal& candidate) {
  Squares sums;
  for (std::int64_t first = 0; first < reference.type().shape.elements(); first += kPiece) {
    const Piece a(reference, first), b(candidate, first);
    for (std::size_t i = 0; i < a.values().size(); ++i) {
      const double x = a.values()[i], y = b.values()[i];
      sums.reference += x * x;
      sums.candidate += y * y;
      sums.difference += (x - y) * (x - y);
    }
  }
  return sums;
}

}  // namespace aeshna::bench

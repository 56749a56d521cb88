#pragma once
// The linear maps of Winograd's minimal filtering F(2x2, 3x3): 4 results of a tile for 16 products where the definition of a
// convolution takes 36. Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015.
#include <array>
#include <string_view>

namespace aeshna {

/// A map of squares of `in` x `in` to squares of `out` x `out`: `matrix` [out][in], applied along both axes.
struct WinogradTransform {
  std::string_view name;
  bool
      to_planes;  ///< from windows of an image to planes, one for each place of the square; else from planes to squares of an image
  int in, out;
  std::array<std::array<double, 4>, 4> matrix;
};

inline constexpr std::array<WinogradTransform, 5> kWinogradTransforms{{
    {"input", true, 4, 4, {{{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}}}},
    {"weight", true, 3, 4, {{{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}}}},
    {"output", false, 4, 2, {{{1, 1, 1, 0}, {0, 1, -1, -1}}}},
    {"output_gradient", true, 2, 4, {{{1, 0}, {1, 1}, {1, -1}, {0, -1}}}},
    {"weight_gradient", false, 4, 3, {{{1, 0.5, 0.5, 0}, {0, 0.5, -0.5, 0}, {0, 0.5, 0.5, 1}}}},
}};

/// nullptr: there is none of this name.
constexpr const WinogradTransform* find_winograd_transform(std::string_view name) {
  for (const WinogradTransform& t : kWinogradTransforms) {
    if (t.name == name) return &t;
  }
  return nullptr;
}

}  // namespace aeshna

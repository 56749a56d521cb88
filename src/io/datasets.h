#pragma once
// The data sets that the program trains on, as named columns "x" (f32 pictures, scaled to 0..1) and "labels" (i32).
#include <cstdint>
#include <filesystem>
#include <optional>

#include "aeshna/data.h"

namespace aeshna {

/// Pictures and their classes 0 .. classes-1.
struct PictureSet {
  Dataset data;
  std::int64_t height = 0, width = 0;
  std::int64_t classes = 10;
};

/// Optical Recognition of Handwritten Digits (data/README.md): CSV, plain or gzip; each line has 64 integers 0..16 and the
/// class 0..9. Values are divided by 16. Errors: NotFound, Io, CorruptFile naming file, line and column.
PictureSet read_digits(const std::filesystem::path& file);

/// A pair of IDX files (plain or gzip): pictures [n, height, width] and labels [n]. Values are divided by 255. The classes
/// must be 0..9. Errors name the file.
PictureSet read_idx_pictures(const std::filesystem::path& pictures, const std::filesystem::path& labels);

struct Mnist {
  PictureSet train;
  std::optional<PictureSet> test;  ///< absent when the folder has no t10k files
};
/// MNIST, or any set in its form, from `folder`: train-images-idx3-ubyte, train-labels-idx1-ubyte and, if there, t10k-*; each
/// may end in .gz (the plain file is taken first). Error(NotFound) lists the missing files.
Mnist read_mnist(const std::filesystem::path& folder);

}  // namespace aeshna

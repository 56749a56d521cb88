#include "io/datasets.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/fail.h"
#include "io/csv.h"
#include "io/gzip.h"
#include "io/idx.h"

namespace aeshna {
namespace {

PictureSet make_set(std::vector<float> pixels, std::vector<std::int32_t> labels, std::int64_t height,
                    std::int64_t width) {
  std::vector<Dataset::Column> columns(2);
  columns[0] = {.name = "x", .dtype = DType::f32, .row = Shape{height * width}, .f32 = std::move(pixels), .i32 = {}};
  columns[1] = {.name = "labels", .dtype = DType::i32, .row = Shape{}, .f32 = {}, .i32 = std::move(labels)};
  return {.data = Dataset(std::move(columns)), .height = height, .width = width};
}

/// `folder`/`name` or `folder`/`name`.gz; empty when neither is there.
std::filesystem::path plain_or_gzip(const std::filesystem::path& folder, std::string_view name) {
  for (const std::string_view ending : {"", ".gz"}) {
    const std::filesystem::path path = folder / (std::string(name) + std::string(ending));
    std::error_code ignored;  // unreadable counts as absent here; what is missing is listed
    if (std::filesystem::exists(path, ignored)) return path;
  }
  return {};
}

}  // namespace

PictureSet read_digits(const std::filesystem::path& file) {
  constexpr std::int64_t kSide = 8, kPixels = kSide * kSide, kMax = 16, kClasses = 10;
  const std::string name = file.string();
  const std::vector<std::byte> bytes = read_file_maybe_gzip(file);
  const NumberTable table =
      parse_number_csv({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, kPixels + 1, name);
  if (table.rows == 0) fail(ErrorCode::CorruptFile, "{}: no digits in it", name);

  std::vector<float> pixels;
  std::vector<std::int32_t> labels;
  pixels.reserve(static_cast<std::size_t>(table.rows * kPixels));
  for (std::int64_t row = 0; row < table.rows; ++row) {
    for (std::int64_t column = 0; column <= kPixels; ++column) {
      const double value = table.at(row, column);
      const std::int64_t highest = column < kPixels ? kMax : kClasses - 1;
      if (value < 0 || value > static_cast<double>(highest) || value != std::floor(value)) {
        fail(ErrorCode::CorruptFile, "{}: line {}, column {}: {} is not {} 0..{}", name, row + 1, column + 1, value,
             column < kPixels ? "a pixel value" : "a class", highest);
      }
      if (column < kPixels) {
        pixels.push_back(static_cast<float>(value / kMax));
      } else {
        labels.push_back(static_cast<std::int32_t>(value));
      }
    }
  }
  return make_set(std::move(pixels), std::move(labels), kSide, kSide);
}

PictureSet read_idx_pictures(const std::filesystem::path& pictures_file, const std::filesystem::path& labels_file) {
  constexpr int kClasses = 10;
  const IdxArray pictures = parse_idx(read_file_maybe_gzip(pictures_file), 3, pictures_file.string());
  const IdxArray classes = parse_idx(read_file_maybe_gzip(labels_file), 1, labels_file.string());
  if (pictures.shape[0] != classes.shape[0]) {
    fail(ErrorCode::CorruptFile, "{} has {} pictures, but {} has {} labels", pictures_file.string(), pictures.shape[0],
         labels_file.string(), classes.shape[0]);
  }
  if (pictures.values.empty()) fail(ErrorCode::CorruptFile, "{}: no pictures in it", pictures_file.string());

  std::vector<std::int32_t> labels;
  labels.reserve(classes.values.size());
  for (const std::uint8_t label : classes.values) {
    if (label >= kClasses) {
      fail(ErrorCode::CorruptFile, "{}: label {} is {}, not 0..{}", labels_file.string(), labels.size(), label,
           kClasses - 1);
    }
    labels.push_back(label);
  }
  std::vector<float> pixels(pictures.values.size());
  std::ranges::transform(pictures.values, pixels.begin(),
                         [](std::uint8_t value) { return static_cast<float>(value) / 255.0f; });
  return make_set(std::move(pixels), std::move(labels), pictures.shape[1], pictures.shape[2]);
}

Mnist read_mnist(const std::filesystem::path& folder) {
  const auto pair = [&](std::string_view part, std::string& missing) {
    std::pair<std::filesystem::path, std::filesystem::path> files;
    for (auto [path, rest] :
         {std::pair(&files.first, "-images-idx3-ubyte"), std::pair(&files.second, "-labels-idx1-ubyte")}) {
      const std::string name = std::string(part) + rest;
      *path = plain_or_gzip(folder, name);
      if (path->empty()) missing += (missing.empty() ? "" : ", ") + name;
    }
    return files;
  };
  std::string missing, missing_test;
  const auto train = pair("train", missing);
  const auto test = pair("t10k", missing_test);
  const bool has_test = !test.first.empty() || !test.second.empty();
  if (has_test && !missing_test.empty()) missing += (missing.empty() ? "" : ", ") + missing_test;
  if (!missing.empty()) {
    fail(ErrorCode::NotFound, "{}: missing {} (plain or with .gz)", folder.string(), missing);
  }

  Mnist mnist{.train = read_idx_pictures(train.first, train.second), .test = {}};
  if (has_test) {
    mnist.test = read_idx_pictures(test.first, test.second);
    if (mnist.test->height != mnist.train.height || mnist.test->width != mnist.train.width) {
      fail(ErrorCode::CorruptFile, "{}: pictures of {}x{}, but those of {} are {}x{}", test.first.string(),
           mnist.test->height, mnist.test->width, train.first.string(), mnist.train.height, mnist.train.width);
    }
  }
  return mnist;
}

}  // namespace aeshna

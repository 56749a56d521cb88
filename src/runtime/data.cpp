// Datasets in memory, the stratified split and the loader. docs/data.md describes the order of rows.
#include "aeshna/data.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/checked.h"
#include "base/fail.h"
#include "base/names.h"
#include "base/philox.h"

namespace aeshna {
namespace {

/// Fisher-Yates; `stream` makes shuffles of one seed independent of each other.
void shuffle(std::span<std::int64_t> rows, std::uint64_t seed, std::uint64_t stream) {
  PhiloxStream random(seed, stream);
  for (std::size_t i = rows.size(); i > 1; --i) std::swap(rows[i - 1], rows[random.next_below(i)]);
}

}  // namespace

Dataset::Dataset(std::vector<Column> columns) : columns_(std::move(columns)) {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const Column& column = columns_[i];
    if (column.dtype != DType::f32 && column.dtype != DType::i32) {
      fail(ErrorCode::DTypeMismatch, "column '{}' has dtype {}; columns are f32 or i32", column.name,
           dtype_name(column.dtype));
    }
    const auto values = static_cast<std::int64_t>(column.dtype == DType::f32 ? column.f32.size() : column.i32.size());
    const std::int64_t width = column.row.elements();
    if (width == 0 || values % width != 0) {
      fail(ErrorCode::ShapeMismatch, "column '{}' holds {} values, not a whole number of rows of shape {}", column.name,
           values, column.row.to_string());
    }
    const std::int64_t rows = values / width;
    if (i == 0) rows_ = rows;
    if (rows != rows_) {
      fail(ErrorCode::ShapeMismatch, "column '{}' has {} rows, column '{}' has {}", column.name, rows, columns_[0].name,
           rows_);
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (columns_[j].name == column.name) fail(ErrorCode::InvalidArgument, "two columns are named '{}'", column.name);
    }
  }
}

const Dataset::Column& Dataset::column(std::string_view name) const {
  std::vector<std::string> names;
  for (const Column& column : columns_) {
    if (column.name == name) return column;
    names.push_back(column.name);
  }
  fail(ErrorCode::NotFound, "no column '{}' in the dataset{}", name, suggest_names(name, names));
}

Dataset Dataset::subset(std::span<const std::int64_t> rows) const {
  for (const std::int64_t row : rows) {
    if (row < 0 || row >= rows_) fail(ErrorCode::OutOfRange, "row {} of a dataset of {} rows", row, rows_);
  }
  const auto pick = [rows](const auto& from, auto& to, std::size_t width) {
    to.reserve(rows.size() * width);
    for (const std::int64_t row : rows) {
      const auto begin = from.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(row) * width);
      to.insert(to.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
    }
  };
  std::vector<Column> columns;
  for (const Column& column : columns_) {
    Column& part = columns.emplace_back(Column{column.name, column.dtype, column.row, {}, {}});
    const auto width = static_cast<std::size_t>(column.row.elements());
    if (column.dtype == DType::f32) {
      pick(column.f32, part.f32, width);
    } else {
      pick(column.i32, part.i32, width);
    }
  }
  return Dataset(std::move(columns));
}

Split stratified_split(const Dataset& data, std::string_view label_column, std::int64_t test_rows, std::uint64_t seed) {
  const Dataset::Column& labels = data.column(label_column);
  if (labels.dtype != DType::i32 || labels.row.elements() != 1) {
    fail(ErrorCode::DTypeMismatch, "column '{}' must hold one i32 label per row to split by", label_column);
  }
  if (test_rows < 0 || test_rows > data.size()) {
    fail(ErrorCode::InvalidArgument, "a test part of {} rows from a dataset of {}", test_rows, data.size());
  }
  struct Class {
    std::vector<std::int64_t> rows;
    std::int64_t quota = 0, remainder = 0;
  };
  std::map<std::int32_t, Class> classes;
  for (std::int64_t row = 0; row < data.size(); ++row)
    classes[labels.i32[static_cast<std::size_t>(row)]].rows.push_back(row);

  // Largest remainders: whole shares first, then one more row to the classes that lost most by rounding (ties: the
  // lower label).
  std::int64_t left = test_rows;
  std::vector<Class*> by_remainder;
  for (auto& [label, c] : classes) {
    const std::int64_t share = checked_mul(test_rows, static_cast<std::int64_t>(c.rows.size()), "rows of the split");
    c.quota = share / data.size();
    c.remainder = share % data.size();
    left -= c.quota;
    by_remainder.push_back(&c);
    shuffle(c.rows, seed, static_cast<std::uint32_t>(label));
  }
  std::ranges::stable_sort(by_remainder, std::greater{}, &Class::remainder);
  for (std::int64_t i = 0; i < left; ++i) ++by_remainder[static_cast<std::size_t>(i)]->quota;

  std::vector<std::int64_t> train, test;
  for (const auto& [label, c] : classes) {
    const auto middle = c.rows.begin() + static_cast<std::ptrdiff_t>(c.quota);
    test.insert(test.end(), c.rows.begin(), middle);
    train.insert(train.end(), middle, c.rows.end());
  }
  std::ranges::sort(train);
  std::ranges::sort(test);
  return {data.subset(train), data.subset(test)};
}

DataLoader::DataLoader(const Dataset& data, std::int64_t batch_size, bool shuffle_rows, std::uint64_t seed)
    : data_(&data), batch_size_(batch_size), shuffle_(shuffle_rows), order_(static_cast<std::size_t>(data.size())) {
  if (batch_size < 1 || batch_size > data.size()) {
    fail(ErrorCode::InvalidArgument, "batches of {} rows from a dataset of {}", batch_size, data.size());
  }
  position_.seed = seed;
  shuffle_epoch();
}

std::int64_t DataLoader::batches_per_epoch() const { return data_->size() / batch_size_; }

void DataLoader::shuffle_epoch() {
  std::iota(order_.begin(), order_.end(), std::int64_t{0});
  if (shuffle_) shuffle(order_, position_.seed, static_cast<std::uint64_t>(position_.epoch));
}

std::span<const std::int64_t> DataLoader::next() {
  // The order of an epoch is made when its first batch is asked for, so that the last batch's rows stay valid until
  // then.
  if (position_.batch == 0) shuffle_epoch();
  const auto first = static_cast<std::size_t>(position_.batch * batch_size_);
  if (++position_.batch == batches_per_epoch()) {
    position_.batch = 0;
    ++position_.epoch;
  }
  return std::span<const std::int64_t>(order_).subspan(first, static_cast<std::size_t>(batch_size_));
}

void DataLoader::seek(const DataPosition& position) {
  if (position.epoch < 0 || position.batch < 0 || position.batch >= batches_per_epoch()) {
    fail(ErrorCode::InvalidArgument, "no position (epoch {}, batch {}) in a loader of {} batches per epoch",
         position.epoch, position.batch, batches_per_epoch());
  }
  position_ = position;
  shuffle_epoch();
}

}  // namespace aeshna

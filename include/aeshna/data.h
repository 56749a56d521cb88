#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/attrs.h"

namespace aeshna {

/// Named columns of equal length in memory: f32 features and i32 labels, rows dense.
class Dataset {
 public:
  struct Column {
    std::string name;         ///< the graph input it feeds
    DType dtype = DType::f32; ///< f32 or i32
    Shape row = {};           ///< shape of one row
    std::vector<float> f32 = {};
    std::vector<std::int32_t> i32 = {};
  };
  Dataset() = default;
  explicit Dataset(std::vector<Column> columns);  ///< throws Error(ShapeMismatch) on unequal lengths
  std::int64_t size() const { return rows_; }
  std::span<const Column> columns() const { return columns_; }
  const Column& column(std::string_view name) const;
  /// Rows in the given order.
  Dataset subset(std::span<const std::int64_t> rows) const;

 private:
  std::vector<Column> columns_;
  std::int64_t rows_ = 0;
};

struct Split {
  Dataset train, test;
};
/// Shuffles each class by Philox keyed with `seed` and gives `test_rows` rows to the test part, classes in proportion
/// (largest remainders). Documented in docs/data.md; the same on every machine.
Split stratified_split(const Dataset& data, std::string_view label_column, std::int64_t test_rows, std::uint64_t seed);

/// Where a loader stands; goes into checkpoints.
struct DataPosition {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t batch = 0;
};

/// Batches of fixed size; each epoch's order is a Philox shuffle of (seed, epoch). An incomplete last batch is dropped.
class DataLoader {
 public:
  DataLoader(const Dataset& data, std::int64_t batch_size, bool shuffle = true, std::uint64_t seed = 0);
  /// The data must outlive the loader.
  DataLoader(const Dataset&& data, std::int64_t batch_size, bool shuffle = true, std::uint64_t seed = 0) = delete;
  std::int64_t batches_per_epoch() const;
  /// Row indices of the next batch; advances the position, into the next epoch when the last one ends.
  std::span<const std::int64_t> next();
  const DataPosition& position() const { return position_; }
  void seek(const DataPosition& position);
  const Dataset& data() const { return *data_; }
  std::int64_t batch_size() const { return batch_size_; }

 private:
  void shuffle_epoch();
  const Dataset* data_;
  std::int64_t batch_size_;
  bool shuffle_;
  DataPosition position_;
  std::vector<std::int64_t> order_;
};

}  // namespace aeshna

#include "aeshna/data.h"

#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "aeshna/error.h"

namespace aeshna {
namespace {

Dataset numbered(std::int64_t rows, std::int32_t classes = 3) {
  Dataset::Column x{"x", DType::f32, {2}, {}, {}}, y{"y", DType::i32, {}, {}, {}};
  for (std::int64_t i = 0; i < rows; ++i) {
    x.f32.push_back(static_cast<float>(i));
    x.f32.push_back(static_cast<float>(-i));
    y.i32.push_back(static_cast<std::int32_t>(i) % classes);
  }
  return Dataset({x, y});
}

TEST(DatasetTest, ColumnsMustAgree) {
  EXPECT_EQ(numbered(5).size(), 5);
  EXPECT_THROW(numbered(5).column("z"), Error);
  Dataset::Column a{"a", DType::f32, {}, {1, 2}, {}}, b{"b", DType::f32, {}, {1, 2, 3}, {}},
      c{"c", DType::f32, {2}, {1, 2, 3}, {}};
  EXPECT_THROW(Dataset({a, b}), Error);
  EXPECT_THROW(Dataset({c}), Error);
  EXPECT_THROW(Dataset({a, a}), Error);
  Dataset::Column d{"d", DType::f64, {}, {}, {}};
  EXPECT_THROW(Dataset({d}), Error);
}

TEST(DatasetTest, Subset) {
  const std::int64_t rows[] = {4, 0, 4};
  const Dataset part = numbered(5).subset(rows);
  EXPECT_EQ(part.size(), 3);
  EXPECT_EQ(part.column("x").f32, (std::vector<float>{4, -4, 0, 0, 4, -4}));
  EXPECT_EQ(part.column("y").i32, (std::vector<std::int32_t>{1, 0, 1}));
  const std::int64_t bad[] = {5};
  EXPECT_THROW(numbered(5).subset(bad), Error);
}

TEST(StratifiedSplit, ProportionsAndDeterminism) {
  // classes of 50, 30, 20 rows; 7 for the test: 3.5, 2.1, 1.4 -> 4, 2, 1
  Dataset::Column x{"x", DType::f32, {}, {}, {}}, y{"y", DType::i32, {}, {}, {}};
  for (int i = 0; i < 100; ++i) {
    x.f32.push_back(static_cast<float>(i));
    y.i32.push_back(i < 50 ? 7 : i < 80 ? -1 : 3);
  }
  const Dataset data({x, y});
  const Split split = stratified_split(data, "y", 7, 1);
  EXPECT_EQ(split.test.size(), 7);
  EXPECT_EQ(split.train.size(), 93);
  const auto count = [](const Dataset& d, std::int32_t label) { return std::ranges::count(d.column("y").i32, label); };
  EXPECT_EQ(count(split.test, 7), 4);
  EXPECT_EQ(count(split.test, -1), 2);
  EXPECT_EQ(count(split.test, 3), 1);
  std::set<float> all(split.train.column("x").f32.begin(), split.train.column("x").f32.end());
  all.insert(split.test.column("x").f32.begin(), split.test.column("x").f32.end());
  EXPECT_EQ(all.size(), 100u) << "each row is in one part";

  EXPECT_EQ(stratified_split(data, "y", 7, 1).test.column("x").f32, split.test.column("x").f32);
  EXPECT_NE(stratified_split(data, "y", 7, 2).test.column("x").f32, split.test.column("x").f32);
  EXPECT_EQ(stratified_split(data, "y", 0, 1).test.size(), 0);
  EXPECT_EQ(stratified_split(data, "y", 100, 1).train.size(), 0);
  EXPECT_THROW(stratified_split(data, "y", 101, 1), Error);
  EXPECT_THROW(stratified_split(data, "x", 7, 1), Error);
}

std::vector<std::int64_t> epoch_of(DataLoader& loader) {
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
    for (const std::int64_t row : loader.next()) rows.push_back(row);
  }
  return rows;
}

TEST(DataLoaderTest, EpochsAreShuffledDifferentlyAndDropTheRest) {
  const Dataset data = numbered(23);
  DataLoader loader(data, 5, true, 9);
  EXPECT_EQ(loader.batches_per_epoch(), 4);
  const std::vector<std::int64_t> first = epoch_of(loader), second = epoch_of(loader);
  EXPECT_EQ(std::set<std::int64_t>(first.begin(), first.end()).size(), 20u);
  EXPECT_NE(first, second);
  EXPECT_FALSE(std::ranges::is_sorted(first));
  EXPECT_EQ(loader.position().epoch, 2);
  EXPECT_EQ(loader.position().batch, 0);

  DataLoader again(data, 5, true, 9), other(data, 5, true, 10), ordered(data, 5, false, 9);
  EXPECT_EQ(epoch_of(again), first);
  EXPECT_NE(epoch_of(other), first);
  EXPECT_TRUE(std::ranges::is_sorted(epoch_of(ordered)));
  EXPECT_EQ(epoch_of(ordered).front(), 0) << "without shuffling the rest is dropped from each epoch";
}

TEST(DataLoaderTest, SeekContinuesExactly) {
  const Dataset data = numbered(23);
  DataLoader loader(data, 5, true, 9);
  for (int i = 0; i < 6; ++i) loader.next();
  const DataPosition position = loader.position();
  EXPECT_EQ(position.epoch, 1);
  EXPECT_EQ(position.batch, 2);
  DataLoader resumed(data, 5, true, 0);
  resumed.seek(position);
  for (int i = 0; i < 9; ++i) {
    const auto want = loader.next(), got = resumed.next();
    EXPECT_TRUE(std::ranges::equal(want, got)) << i;
  }
  EXPECT_THROW(loader.seek({9, 0, 4}), Error);
  EXPECT_THROW(loader.seek({9, -1, 0}), Error);
}

TEST(DataLoaderTest, RowsStayValidUntilTheNextCall) {
  const Dataset data = numbered(6);
  DataLoader loader(data, 3, true, 1);
  loader.next();
  const auto last = loader.next();  // the epoch ends here
  const std::vector<std::int64_t> copy(last.begin(), last.end());
  EXPECT_EQ(loader.position().epoch, 1);
  EXPECT_TRUE(std::ranges::equal(last, copy));
}

TEST(DataLoaderTest, RefusesEmptyEpochs) {
  const Dataset data = numbered(3);
  EXPECT_THROW(DataLoader(data, 4), Error);
  EXPECT_THROW(DataLoader(data, 0), Error);
}

}  // namespace
}  // namespace aeshna

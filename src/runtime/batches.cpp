#include "runtime/batches.h"

#include <algorithm>

#include "base/fail.h"
#include "runtime/session_impl.h"

namespace aeshna {
namespace {

template <class T>
void gather(const std::vector<T>& from, std::size_t width, std::span<const std::int64_t> rows, std::vector<T>& to) {
  to.resize(rows.size() * width);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(rows[i]) * width), width,
                to.begin() + static_cast<std::ptrdiff_t>(i * width));
  }
}

}  // namespace

BatchFeeder::BatchFeeder(Session& session, const Dataset& data) : session_(session) {
  for (const SessionInput& input : session.impl().inputs) {
    if (input.hidden) continue;
    const auto columns = data.columns();
    const auto column = std::ranges::find(columns, input.name, &Dataset::Column::name);
    if (column == columns.end()) {
      if (!input.set && !input.buffers.empty()) {
        fail(ErrorCode::NotFound, "input '{}' {} has neither a column in the dataset nor a value", input.name,
             input.type.to_string());
      }
      continue;
    }
    const std::span<const std::int64_t> dims = input.type.shape.dims();
    const bool fits = !dims.empty() && std::ranges::equal(dims.subspan(1), column->row.dims());
    if (!fits || column->dtype != input.type.dtype) {
      fail(fits ? ErrorCode::DTypeMismatch : ErrorCode::ShapeMismatch,
           "input '{}' expects {}; its column has {} rows of {} {}", input.name, input.type.to_string(), data.size(),
           dtype_name(column->dtype), column->row.to_string());
    }
    if (columns_.empty()) batch_size_ = dims[0];
    if (dims[0] != batch_size_) {
      fail(ErrorCode::ShapeMismatch, "input '{}' has batch size {}, input '{}' has {}", input.name, dims[0],
           columns_[0]->name, batch_size_);
    }
    columns_.push_back(&*column);
  }
  if (columns_.empty()) fail(ErrorCode::NotFound, "no column of the dataset has the name of an input");
}

void BatchFeeder::set(std::span<const std::int64_t> rows) {
  for (const Dataset::Column* column : columns_) {
    const auto width = static_cast<std::size_t>(column->row.elements());
    if (column->dtype == DType::f32) {
      gather(column->f32, width, rows, f32_);
      session_.set(column->name, std::span<const float>(f32_));
    } else {
      gather(column->i32, width, rows, i32_);
      session_.set(column->name, std::span<const std::int32_t>(i32_));
    }
  }
}

}  // namespace aeshna

#pragma once
// Rows of a dataset -> inputs of a session.
#include <cstdint>
#include <span>
#include <vector>

#include "aeshna/data.h"
#include "aeshna/session.h"

namespace aeshna {

/// Feeds the graph inputs that have a column of their name in the dataset; the others must have been set by the caller.
class BatchFeeder {
 public:
  /// Throws Error that names the input for a column of another dtype or row shape, for an input that has neither a
  /// column nor a value, and when the inputs disagree about the batch size.
  BatchFeeder(Session& session, const Dataset& data);
  std::int64_t batch_size() const { return batch_size_; }
  /// Sets the inputs to these rows, which are batch_size() in number.
  void set(std::span<const std::int64_t> rows);

 private:
  Session& session_;
  std::vector<const Dataset::Column*> columns_;
  std::int64_t batch_size_ = 0;
  std::vector<float> f32_;
  std::vector<std::int32_t> i32_;
};

}  // namespace aeshna

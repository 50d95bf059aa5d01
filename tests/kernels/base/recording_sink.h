// A sink that copies what it is shown as finished, the moment that it is.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/base/result_sink.h"

namespace spaid::kernels {

// Thread-compatible, as calls come one at a time.
class RecordingSink final : public ResultSink {
 public:
  void OnPattern(std::span<const int64_t> pointers, std::span<const int32_t> rows,
                 std::span<const double> numbers) override {
    EXPECT_FALSE(there) << "shown twice";
    there = true;
    ++patterns;
    data = numbers.data();
    col_ptr.assign(pointers.begin(), pointers.end());
    row_idx.assign(rows.begin(), rows.end());
    source_ = numbers;
    values.clear();
    marks.clear();
    if (on_news) on_news();
  }
  void OnColumns(int64_t columns) override {
    ASSERT_TRUE(there);
    const int64_t before = marks.empty() ? 0 : marks.back();
    EXPECT_GT(columns, before);
    ASSERT_LT(columns, static_cast<int64_t>(col_ptr.size()));
    marks.push_back(columns);
    const auto end = static_cast<size_t>(col_ptr[static_cast<size_t>(columns)]);
    values.insert(values.end(), source_.begin() + static_cast<int64_t>(values.size()),
                  source_.begin() + static_cast<int64_t>(end));
    if (on_news) on_news();
  }
  void OnWithdrawn() override {
    EXPECT_TRUE(there);
    there = false;
    ++withdrawals;
  }

  int64_t columns() const { return marks.empty() ? 0 : marks.back(); }

  std::function<void()> on_news;  // after each pattern and each mark
  bool there = false;
  int patterns = 0, withdrawals = 0;
  const double* data = nullptr;  // where the values are
  std::vector<int64_t> col_ptr, marks;
  std::vector<int32_t> row_idx;
  std::vector<double> values;  // of finished columns, copied when they were shown

 private:
  std::span<const double> source_;
};

}  // namespace spaid::kernels

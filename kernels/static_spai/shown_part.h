// Shows a device's part of M while it is copied to the host, column by column from its first one.
// Internal to this room.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/base/result_sink.h"
#include "kernels/base/split.h"

namespace spaid::kernels {

// Columns that were left to the host, those without a flag, are not shown. Not thread-safe.
class ShownPart {
 public:
  // `col_ptr`: M's. All is borrowed; the flags of the part are there before the first value.
  ShownPart(IndexRange columns, std::span<const int64_t> col_ptr, std::span<const uint8_t> flags,
            ShownResult& shown)
      : left_(columns), col_ptr_(col_ptr), flags_(flags), shown_(shown) {}

  // Shows the columns that are whole: M's entries before this one are on the host.
  void Arrived(int64_t entry) {
    if (!shown_.showing()) return;
    const auto first = col_ptr_.begin() + left_.begin, end = col_ptr_.begin() + left_.end + 1;
    ShowTo(std::upper_bound(first, end, entry) - col_ptr_.begin() - 1);
  }
  // Shows the rest.
  void ArrivedAll() {
    if (shown_.showing()) ShowTo(left_.end);
  }

 private:
  void ShowTo(int64_t column) {
    const auto begin = flags_.begin() + left_.begin, end = flags_.begin() + column;
    for (auto at = begin; at != end;) {
      const auto left = std::find(at, end, 0);
      if (left != at) shown_.Finished(at - flags_.begin(), left - flags_.begin());
      at = std::find_if(left, end, [](uint8_t flag) { return flag != 0; });
    }
    left_.begin = column;
  }

  IndexRange left_;  // not shown yet
  const std::span<const int64_t> col_ptr_;
  const std::span<const uint8_t> flags_;
  ShownResult& shown_;
};

}  // namespace spaid::kernels

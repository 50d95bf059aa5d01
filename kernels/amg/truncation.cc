#include "kernels/amg/truncation.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace spaid::kernels {

// By which the columns that stay are multiplied.
template <class Stays>
double Truncation::Scale(std::span<const int32_t> columns, std::span<const double> values,
                         const Stays& stays) const {
  double all = 0, left = 0;
  for (size_t p = 0; p < columns.size(); ++p) {
    const double part =
        values[p] * (coarse_.ones() ? 1.0 : coarse_.values[static_cast<size_t>(columns[p])]);
    all += part;
    if (stays(columns[p])) left += part;
  }
  return size_ == 1 && left != 0 && all / left > 0 ? all / left : 1;
}

void Truncation::Add(std::span<const int32_t> columns, std::span<const double> values,
                     RowSink& sink) const {
  std::vector<std::pair<double, int32_t>> groups;  // minus the norm, aggregate
  for (size_t p = 0; p < columns.size(); ++p) {
    const int32_t group = columns[p] / size_;
    if (groups.empty() || groups.back().second != group) groups.emplace_back(0, group);
    groups.back().first -= values[p] * values[p];
  }
  if (groups.size() <= most_) {
    for (size_t p = 0; p < columns.size(); ++p) sink.Add(columns[p], values[p]);
    return;
  }
  std::nth_element(groups.begin(), groups.begin() + static_cast<std::ptrdiff_t>(most_) - 1,
                   groups.end());
  const auto last = groups[most_ - 1];
  std::vector<int32_t> kept;
  for (const auto& group : groups) {
    if (group <= last) kept.push_back(group.second);
  }
  std::sort(kept.begin(), kept.end());
  const auto stays = [&](int32_t column) {
    return std::binary_search(kept.begin(), kept.end(), column / size_);
  };
  const double scale = Scale(columns, values, stays);
  for (size_t p = 0; p < columns.size(); ++p) {
    if (stays(columns[p])) sink.Add(columns[p], values[p] * scale);
  }
}

void Truncation::Fill(std::span<const int32_t> columns, std::span<const double> values,
                      std::span<const int32_t> kept, double* to) const {
  if (kept.size() == columns.size()) {
    std::copy(values.begin(), values.end(), to);
    return;
  }
  const double scale = Scale(columns, values, [&](int32_t column) {
    return std::binary_search(kept.begin(), kept.end(), column);
  });
  for (size_t p = 0, q = 0; q < kept.size(); ++p) {
    if (columns[p] == kept[q]) to[q++] = values[p] * scale;
  }
}

}  // namespace spaid::kernels

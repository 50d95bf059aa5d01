#include "kernels/base/result_sink.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace spaid::kernels {
namespace {

// Columns are counted by blocks: so many of them, of at most so many columns.
constexpr int64_t kBlocks = 256, kMostColumns = 1024;

}  // namespace

struct ShownResult::State {
  ResultSink* sink;
  int64_t n, block;
  std::mutex mutex;           // guards all below, and calls of the sink
  std::vector<int32_t> left;  // columns of each block that are not finished
  size_t first_open = 0;      // the first block that has some
};

ShownResult::ShownResult() = default;
ShownResult::~ShownResult() {
  if (state_ != nullptr) state_->sink->OnWithdrawn();
}
ShownResult::ShownResult(ShownResult&&) noexcept = default;
ShownResult& ShownResult::operator=(ShownResult&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}
ShownResult& ShownResult::operator=(const ShownResult& other) {
  if (this != &other) *this = ShownResult();
  return *this;
}

void ShownResult::Show(ResultSink* sink, std::span<const int64_t> col_ptr,
                       std::span<const int32_t> row_idx, std::span<const double> values) {
  if (sink == nullptr) return;
  auto state = std::make_unique<State>();
  state->sink = sink;
  state->n = static_cast<int64_t>(col_ptr.size()) - 1;
  state->block = std::clamp<int64_t>(state->n / kBlocks, 1, kMostColumns);
  for (int64_t k = 0; k < state->n; k += state->block) {
    state->left.push_back(static_cast<int32_t>(std::min(state->block, state->n - k)));
  }
  state_ = std::move(state);
  sink->OnPattern(col_ptr, row_idx, values);
}

void ShownResult::Finished(int64_t begin, int64_t end) {
  if (state_ == nullptr) return;
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  for (int64_t k = begin; k < end;) {
    const int64_t block = k / s.block, next = std::min(end, (block + 1) * s.block);
    s.left[static_cast<size_t>(block)] -= static_cast<int32_t>(next - k);
    k = next;
  }
  const size_t before = s.first_open;
  while (s.first_open < s.left.size() && s.left[s.first_open] == 0) ++s.first_open;
  if (s.first_open > before) {
    s.sink->OnColumns(std::min(s.n, static_cast<int64_t>(s.first_open) * s.block));
  }
}

void ShownResult::FinishedAll() {
  if (state_ == nullptr) return;
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  if (s.first_open == s.left.size()) return;
  s.first_open = s.left.size();
  s.sink->OnColumns(s.n);
}

void ShownResult::Keep() { state_ = nullptr; }

}  // namespace spaid::kernels

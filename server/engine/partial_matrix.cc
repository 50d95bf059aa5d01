#include "server/engine/partial_matrix.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace spaid::server {
namespace {

// Values that are worth waking a stream: a chunk of them.
constexpr int64_t kWorthTelling = (int64_t{1} << 20) / static_cast<int64_t>(sizeof(double));

// A piece of a pattern that is digested while a build may wait: under a tenth of a millisecond.
constexpr size_t kDigestedAtOnce = size_t{1} << 16;

// The next elements of an array behind `at`, which moves on.
template <class T>
std::span<const T> NextPiece(std::span<const T> array, size_t* at) {
  const size_t begin = *at;
  *at = std::min(array.size(), begin + kDigestedAtOnce);
  return array.subspan(begin, *at - begin);
}

}  // namespace

PartialMatrix::PartialMatrix(std::shared_ptr<const kernels::Preconditioner> kernel) {
  Finish(std::move(kernel));
}

std::shared_ptr<const kernels::Preconditioner> PartialMatrix::owner() const {
  const std::lock_guard lock(mutex_);
  return owner_;
}

void PartialMatrix::Finish(std::shared_ptr<const kernels::Preconditioner> kernel) {
  const kernels::CscView m = kernel->matrix();
  {
    const std::lock_guard lock(mutex_);
    // The same arrays that were shown, or the first that are.
    if (!there_ || view_.m.values.data() != m.values.data()) ++view_.version;
    there_ = true;
    view_.m = m;
    view_.is_factor = kernel->is_factor();
    finished_.store(m.nnz());
    owner_ = std::move(kernel);
  }
  if (on_news_) on_news_();
}

void PartialMatrix::OnPattern(std::span<const int64_t> col_ptr, std::span<const int32_t> row_idx,
                              std::span<const double> values) {
  col_ptr_ = col_ptr;
  told_ = 0;
  const auto n = static_cast<int64_t>(col_ptr.size()) - 1;
  {
    const std::lock_guard lock(mutex_);
    ++view_.version;
    there_ = true;
    view_.m = {kernels::PatternView{n, n, col_ptr, row_idx}, values};
    finished_.store(0);
  }
  if (on_news_) on_news_();
}

void PartialMatrix::OnColumns(int64_t columns) {
  const int64_t entries = col_ptr_[static_cast<size_t>(columns)];
  finished_.store(entries);
  const bool all = columns + 1 == static_cast<int64_t>(col_ptr_.size());
  if (!all && entries - told_ < kWorthTelling) return;
  if (!awaited_.exchange(false)) return;
  told_ = entries;
  if (on_news_) on_news_();
}

void PartialMatrix::OnWithdrawn() {
  const std::lock_guard lock(mutex_);
  there_ = false;
  view_.m = {};
}

std::optional<Digest> PatternDigestOf(const PartialMatrix& m, int64_t version) {
  std::optional<Digester> digester;
  size_t pointers = 0, indices = 0;
  for (bool whole = false; !whole;) {
    bool same = false;
    m.Read([&](const PartialMatrix::View& view) {
      same = view.version == version;
      if (!same) return;
      if (!digester) digester = PatternDigester(view.m.n_cols, view.m.nnz());
      if (pointers < view.m.col_ptr.size()) {
        digester->Update(NextPiece(view.m.col_ptr, &pointers));
      } else {
        digester->Update(NextPiece(view.m.row_idx, &indices));
      }
      whole = pointers == view.m.col_ptr.size() && indices == view.m.row_idx.size();
    });
    if (!same) return std::nullopt;
  }
  return digester->Finish();
}

}  // namespace spaid::server

#include "kernels/sparse/equilibrate.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"

namespace spaid::kernels {
namespace {

// Logarithms of base two, eight bits behind the point.
constexpr int kFractionBits = 8;
constexpr int32_t kOne = 1 << kFractionBits;
// That of no entry: below any sum of a logarithm and two factors.
constexpr int32_t kNone = -(1 << 28);
// Norms that need no further iteration. Rounding factors to powers of two moves them by 2^±1.
constexpr int32_t kTolerance = kOne / 4;
constexpr int kMinExponent = std::numeric_limits<double>::min_exponent - 1;  // of normal numbers
constexpr int kMaxExponent = std::numeric_limits<double>::max_exponent - 1;

constexpr int64_t kEntriesPerBatch = int64_t{1} << 16;
constexpr int64_t kRowsPerBatch = int64_t{1} << 14;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

bool IsNone(int32_t size) { return size < kNone / 2; }

// Zero, subnormal, infinite or NaN.
int32_t OddLogSize(double v) {
  if (v == 0 || !std::isfinite(v)) return kNone;
  const auto bits = std::bit_cast<uint64_t>(std::abs(v) * 0x1p64);
  return static_cast<int32_t>(bits >> (52 - kFractionBits)) - ((1023 + 64) << kFractionBits);
}

// log2 |v|, linear between powers of two: at most 0.087 too small, and monotone.
inline int32_t LogSize(double v) {
  const uint64_t bits = std::bit_cast<uint64_t>(v) & ~(uint64_t{1} << 63);
  if ((bits >> 52) - 1 >= 0x7fe) [[unlikely]] {
    return OddLogSize(v);
  }
  return static_cast<int32_t>(bits >> (52 - kFractionBits)) - (1023 << kFractionBits);
}

int Exponent(int32_t log_size) { return (log_size + kOne / 2) >> kFractionBits; }

bool InRange(int exponent) { return exponent >= kMinExponent && exponent <= kMaxExponent; }

// Maximum norms of rows and columns of D_r A D_c, in one scan.
class NormScan {
 public:
  NormScan(const CscView& a, bool with_rows, const Context& context)
      : a_(a), with_rows_(with_rows), context_(context) {
    context_.progress = nullptr;  // a step of something else
    // A thread has a norm for each row: more threads than entries a row would merge more than scan.
    const int64_t worthwhile =
        std::min(a.nnz() / kEntriesPerBatch, a.nnz() / std::max<int64_t>(1, a.n_rows));
    context_.threads = static_cast<int>(
        std::clamp<int64_t>(worthwhile, 1, static_cast<int64_t>(ResolveThreads(context.threads))));
    columns_per_batch_ =
        std::max<int64_t>(1, a.n_cols * kEntriesPerBatch / std::max<int64_t>(1, a.nnz()));
    column.resize(Z(a.n_cols));
    if (!with_rows) return;
    row.resize(Z(a.n_rows));
    largest_.resize(Z(context_.threads));
    for (Array<int32_t>& of_worker : largest_) of_worker.assign(Z(a.n_rows), kNone);
  }

  // `r`, `c`: logarithms of the factors. row, column: of the norms.
  StopReason Run(const int32_t* r, const int32_t* c) {
    const StopReason stopped = ParallelFor(
        a_.n_cols, columns_per_batch_, context_, Stage::kPlan,
        [&](int64_t begin, int64_t end, int worker) {
          for (int64_t j = begin; j < end; ++j) {
            column[Z(j)] = with_rows_ ? Column<true>(j, r, c[j], largest_[Z(worker)].data()) + c[j]
                                      : Column<false>(j, r, c[j], nullptr) + c[j];
          }
        });
    if (stopped != StopReason::kNone || !with_rows_) return stopped;
    return ParallelFor(a_.n_rows, kRowsPerBatch, context_, Stage::kPlan,
                       [&](int64_t begin, int64_t end, int) {
                         for (int64_t i = begin; i < end; ++i) {
                           int32_t largest = kNone;
                           for (Array<int32_t>& of_worker : largest_) {
                             largest = std::max(largest, std::exchange(of_worker[Z(i)], kNone));
                           }
                           row[Z(i)] = largest + r[i];
                         }
                       });
  }

  const Context& context() const { return context_; }

  Array<int32_t> row, column;

 private:
  template <bool kRows>
  int32_t Column(int64_t j, const int32_t* r, int32_t c, int32_t* largest) const {
    int32_t norm = kNone;
    const int64_t end = a_.col_ptr[Z(j) + 1];
    for (int64_t p = a_.col_ptr[Z(j)]; p < end; ++p) {
      const int32_t i = a_.row_idx[Z(p)];
      const int32_t size = LogSize(a_.values[Z(p)]);
      norm = std::max(norm, size + r[i]);
      if (kRows) largest[i] = std::max(largest[i], size + c);
    }
    return norm;
  }

  const CscView a_;
  const bool with_rows_;
  Context context_;
  int64_t columns_per_batch_ = 1;
  std::vector<Array<int32_t>> largest_;  // of each worker: row norms but for the row's factor
};

struct Range {
  int32_t least = -kNone, largest = kNone;

  void Add(int32_t norm) {
    if (IsNone(norm)) return;
    least = std::min(least, norm);
    largest = std::max(largest, norm);
  }
  void Add(const Range& other) {
    least = std::min(least, other.least);
    largest = std::max(largest, other.largest);
  }
  bool none() const { return IsNone(largest); }
  int32_t FromZero() const { return none() ? 0 : std::max(std::abs(least), std::abs(largest)); }
};

// The range of the norms; where `change`, divides the factors by their square roots.
Range Relax(const Array<int32_t>& norms, bool change, int threads, Array<int32_t>& factors) {
  std::mutex mutex;
  Range range;
  ParallelFor(std::ssize(norms), kRowsPerBatch, threads, [&](int64_t begin, int64_t end, int) {
    Range part;
    for (int64_t i = begin; i < end; ++i) {
      part.Add(norms[Z(i)]);
      if (change && !IsNone(norms[Z(i)])) factors[Z(i)] -= norms[Z(i)] / 2;
    }
    const std::lock_guard lock(mutex);
    range.Add(part);
  });
  return range;
}

// Nearest powers of two; those out of range, which are cut, make `converged` false.
Array<double> PowersOfTwo(const Array<int32_t>& factors, int threads, bool& converged) {
  Array<double> powers(factors.size());
  std::atomic<bool> cut{false};
  ParallelFor(std::ssize(factors), kRowsPerBatch, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int exponent = Exponent(factors[Z(i)]);
      if (!InRange(exponent)) cut = true;
      powers[Z(i)] = std::ldexp(1.0, std::clamp(exponent, kMinExponent, kMaxExponent));
    }
  });
  converged = converged && !cut;
  return powers;
}

}  // namespace

Result<Equilibration> Equilibrate(const CscView& a, const EquilibrateOptions& options,
                                  const Context& context) {
  NormScan scan(a, !options.symmetric, context);
  const int threads = scan.context().threads;
  Array<int32_t> r, c;
  c.assign(Z(a.n_cols), 0);
  if (!options.symmetric) r.assign(Z(a.n_rows), 0);
  Equilibration out;
  for (;;) {
    const StopReason stopped = scan.Run(options.symmetric ? c.data() : r.data(), c.data());
    if (stopped != StopReason::kNone) return StopStatus(stopped, "the equilibration");
    const bool last = out.iterations >= options.max_iterations;
    // Looks first, so that norms near 1 are left alone.
    const Range columns = Relax(scan.column, false, threads, c);
    const Range rows = options.symmetric ? columns : Relax(scan.row, false, threads, r);
    out.converged = std::max(columns.FromZero(), rows.FromZero()) <= kTolerance;
    if (out.converged || last) break;
    Relax(scan.column, true, threads, c);
    if (!options.symmetric) Relax(scan.row, true, threads, r);
    ++out.iterations;
  }
  out.column = PowersOfTwo(c, threads, out.converged);
  out.row = options.symmetric ? out.column : PowersOfTwo(r, threads, out.converged);
  return out;
}

Result<ScaledNorms> MeasureNorms(const CscView& a, std::span<const double> row,
                                 std::span<const double> column,
                                 std::span<const int32_t> column_of_row, const Context& context) {
  NormScan scan(a, true, context);
  Array<int32_t> r, c;
  r.assign(Z(a.n_rows), 0);
  c.assign(Z(a.n_cols), 0);
  for (size_t i = 0; i < row.size(); ++i) r[i] = LogSize(row[i]);
  const auto at = [&](int64_t k) { return column_of_row.empty() ? Z(k) : Z(column_of_row[Z(k)]); };
  for (int64_t k = 0; k < std::ssize(column); ++k) c[at(k)] = LogSize(column[Z(k)]);
  const StopReason stopped = scan.Run(r.data(), c.data());
  if (stopped != StopReason::kNone) return StopStatus(stopped, "the measuring of norms");
  const int threads = scan.context().threads;
  const Range rows = Relax(scan.row, false, threads, r);
  const Range columns = Relax(scan.column, false, threads, c);
  ScaledNorms norms;
  if (rows.none()) return norms;
  const auto real = [](int32_t size) { return static_cast<double>(size) / kOne; };
  norms.min_row = real(rows.least);
  norms.max_row = real(rows.largest);
  norms.min_column = real(columns.least);
  norms.max_column = real(columns.largest);
  if (a.n_rows != a.n_cols) return norms;
  std::mutex mutex;
  ParallelFor(a.n_cols, kRowsPerBatch, threads, [&](int64_t begin, int64_t end, int) {
    int64_t weak = 0;
    for (int64_t k = begin; k < end; ++k) {
      const auto j = static_cast<int64_t>(at(k));
      if (IsNone(scan.column[Z(j)])) continue;
      const auto rows_of_column = a.column(j);
      const auto found = std::lower_bound(rows_of_column.begin(), rows_of_column.end(), k);
      int32_t size = kNone;
      if (found != rows_of_column.end() && *found == k) {
        size = LogSize(a.column_values(j)[Z(found - rows_of_column.begin())]) + r[Z(k)] + c[Z(j)];
      }
      weak += size < scan.column[Z(j)] - kWeakDiagonal * kOne;
    }
    const std::lock_guard lock(mutex);
    norms.weak_diagonals += weak;
  });
  return norms;
}

}  // namespace spaid::kernels

#include "kernels/fsai/fsai_pattern.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/base/parallel.h"
#include "kernels/fsai/fsai_checks.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels {
namespace {

constexpr int64_t kColumns = 2048;  // a batch

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// count(i) entries of column i, which fill(i, out) writes.
template <class Count, class Fill>
Result<Pattern> MakePattern(int64_t n, const Context& with_progress, const Count& count,
                            const Fill& fill) {
  Context context = with_progress;
  context.progress = nullptr;  // a step of something else
  Pattern out;
  out.n_rows = out.n_cols = n;
  out.col_ptr.resize(Z(n) + 1);
  out.col_ptr[0] = 0;
  StopReason stopped =
      ParallelFor(n, kColumns, context, Stage::kPlan, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) out.col_ptr[Z(i) + 1] = count(i);
      });
  if (stopped != StopReason::kNone) return StopStatus(stopped, "the pattern of FSAI");
  for (int64_t i = 0; i < n; ++i) out.col_ptr[Z(i) + 1] += out.col_ptr[Z(i)];
  out.row_idx.resize(Z(out.col_ptr[Z(n)]));
  stopped = ParallelFor(n, kColumns, context, Stage::kPlan, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) fill(i, out.row_idx.data() + out.col_ptr[Z(i)]);
  });
  if (stopped != StopReason::kNone) return StopStatus(stopped, "the pattern of FSAI");
  return Result<Pattern>(std::move(out));
}

std::span<const int32_t> Above(const PatternView& p, int64_t i) {
  const auto column = p.column(i);
  return column.first(Z(std::lower_bound(column.begin(), column.end(), i) - column.begin()));
}

// The rows' entries before the diagonal, and it.
Result<Pattern> RowsToDiagonal(const PatternView& rows, const Context& context) {
  return MakePattern(
      rows.n_cols, context,
      [&](int64_t i) { return static_cast<int64_t>(Above(rows, i).size()) + 1; },
      [&](int64_t i, int32_t* out) {
        const auto above = Above(rows, i);
        *std::copy(above.begin(), above.end(), out) = static_cast<int32_t>(i);
      });
}

// Entries |a_ij| >= τ √(a_ii a_jj), and the diagonal.
Result<Pattern> Prefiltered(const CscView& a, std::span<const double> diagonal, double tau,
                            const Context& context) {
  const auto visit = [&, tau](int64_t j, const auto& use) {
    const auto rows = a.column(j);
    const auto values = a.column_values(j);
    const double least = tau * std::sqrt(diagonal[Z(j)]);
    for (size_t p = 0; p < rows.size(); ++p) {
      if (rows[p] == j || std::abs(values[p]) >= least * std::sqrt(diagonal[Z(rows[p])])) {
        use(rows[p]);
      }
    }
  };
  return MakePattern(
      a.n_cols, context,
      [&](int64_t j) {
        int64_t count = 0;
        visit(j, [&](int32_t) { ++count; });
        return count;
      },
      [&](int64_t j, int32_t* out) { visit(j, [&](int32_t i) { *out++ = i; }); });
}

}  // namespace

Result<Pattern> LowerPattern(const CscView& a, const PatternView* user,
                             std::span<const double> diagonal, bool symmetric,
                             const FsaiOptions& options, const Context& context) {
  if (user != nullptr) {
    if (user->n_rows != a.n_rows || user->n_cols != a.n_cols) {
      return Status(StatusCode::kInvalidArgument, "PATTERN_SIZE_MISMATCH",
                    "the pattern and the matrix are of different sizes")
          .At("pattern");
    }
    return RowsToDiagonal(*user, context);
  }
  Pattern filtered, power;
  PatternView whole = a;
  if (options.drop_tol > 0) {
    auto kept = Prefiltered(a, diagonal, options.drop_tol, context);
    if (!kept.ok()) return kept;
    filtered = *std::move(kept);
    whole = filtered;
  }
  if (options.power > 1) {
    PatternOptions pattern_options;
    pattern_options.power = options.power;
    auto built = BuildPattern(a, &whole, pattern_options, context);
    if (!built.ok()) return built;
    power = *std::move(built);
    whole = power;
  }
  // Powers of a symmetric pattern are symmetric; a filter may treat an entry and its mirror
  // differently.
  if ((symmetric && options.drop_tol == 0) || IsSymmetricPattern(whole, context.threads)) {
    return RowsToDiagonal(whole, context);
  }
  const Result<Pattern> rows = Transpose(whole, context);
  if (!rows.ok()) return rows.status();
  return RowsToDiagonal(*rows, context);
}

Result<Pattern> FsaiPattern(const CscView& a, const PatternView* user, const FsaiOptions& options,
                            const Context& context) {
  return GuardMemory("pattern of FSAI", [&]() -> Result<Pattern> {
    if (Status status = CheckFsai(a, options); !status.ok()) return status;
    Diagonal diagonal;
    if (user == nullptr && options.drop_tol > 0) {
      auto positive = PositiveDiagonal(a, context.threads);
      if (!positive.ok()) return positive.status();
      diagonal = *std::move(positive);
    }
    return LowerPattern(a, user, diagonal.values, /*symmetric=*/false, options, context);
  });
}

}  // namespace spaid::kernels

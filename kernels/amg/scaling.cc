#include "kernels/amg/scaling.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/amg/set_up_rules.h"
#include "kernels/base/reasons.h"
#include "kernels/sparse/make_rows.h"

namespace spaid::kernels {
namespace {

constexpr double kDependent = 1e-8;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

Pattern CopyPattern(const PatternView& a, const Context& context) {
  Pattern copy{.n_rows = a.n_rows, .n_cols = a.n_cols, .col_ptr = {}, .row_idx = {}};
  copy.col_ptr.assign(a.col_ptr.begin(), a.col_ptr.end());
  copy.row_idx.resize(a.row_idx.size());
  ParallelCopy(a.row_idx, copy.row_idx, context.threads);
  return copy;
}

bool SamePattern(const PatternView& a, const PatternView& b, const Context& context) {
  if (a.n_cols != b.n_cols || a.nnz() != b.nnz()) return false;
  std::atomic<bool> same{true};
  ForRows(a.n_cols, context, [&](int64_t j) {
    const auto left = a.column(j), right = b.column(j);
    if (!std::equal(left.begin(), left.end(), right.begin(), right.end())) {
      same.store(false, std::memory_order_relaxed);
    }
  });
  return same;
}

double DiagonalOf(const CscView& rows, int64_t i) {
  const auto columns = rows.column(i);
  const auto at = std::lower_bound(columns.begin(), columns.end(), static_cast<int32_t>(i));
  if (at == columns.end() || *at != i) return 0;
  return rows.column_values(i)[static_cast<size_t>(at - columns.begin())];
}

// Sums of the rows' absolute values over the diagonal, the largest.
double Beta(const CscView& rows, const Array<double>& diagonal, const Context& context) {
  Array<double> of_block(Z((rows.n_cols + kRowsOfOneThread - 1) / kRowsOfOneThread), 0.0);
  ParallelFor(rows.n_cols, kRowsOfOneThread, context.threads, [&](int64_t begin, int64_t end, int) {
    double most = 0;
    for (int64_t i = begin; i < end; ++i) {
      double sum = 0;
      for (const double value : rows.column_values(i)) sum += std::fabs(value);
      most = std::max(most, sum / std::fabs(diagonal[Z(i)]));
    }
    of_block[Z(begin / kRowsOfOneThread)] = most;
  });
  return of_block.empty() ? 0 : *std::max_element(of_block.begin(), of_block.end());
}

// Checks the diagonal of A; names the first element that is not as the others.
Status CheckDiagonal(const Array<double>& diagonal, bool symmetric) {
  for (size_t i = 0; i < diagonal.size(); ++i) {
    if (diagonal[i] == 0) {
      return Status(StatusCode::kFailedPrecondition, "ZERO_DIAGONAL",
                    "multigrid needs a diagonal without zeros; that of row " + std::to_string(i) +
                        " is zero or not stored. Take BiCGSTAB with static-spai or dynamic-spai")
          .At("values", static_cast<int64_t>(i));
    }
    if (symmetric && (diagonal[i] > 0) != (diagonal[0] > 0)) {
      return Status(StatusCode::kFailedPrecondition, "NOT_POSITIVE_DEFINITE",
                    "multigrid needs a symmetric matrix to be definite; its diagonal changes sign "
                    "at row " +
                        std::to_string(i) +
                        ". Take BiCGSTAB with static-spai or dynamic-spai, or MINRES")
          .At("values", static_cast<int64_t>(i));
    }
  }
  return {};
}

// cᵀ A c / cᵀ c.
double RayleighQuotient(const CscView& rows, const double* c, const Context& context) {
  const auto blocks = Z((rows.n_cols + kRowsOfOneThread - 1) / kRowsOfOneThread);
  Array<double> above(blocks, 0.0), below(blocks, 0.0);
  ParallelFor(rows.n_cols, kRowsOfOneThread, context.threads, [&](int64_t begin, int64_t end, int) {
    double energy = 0, squares = 0;
    for (int64_t i = begin; i < end; ++i) {
      double sum = 0;
      const auto columns = rows.column(i);
      const auto values = rows.column_values(i);
      for (size_t p = 0; p < columns.size(); ++p) sum += values[p] * c[columns[p]];
      energy += c[i] * sum;
      squares += c[i] * c[i];
    }
    above[Z(begin / kRowsOfOneThread)] = energy;
    below[Z(begin / kRowsOfOneThread)] = squares;
  });
  double energy = 0, squares = 0;
  for (size_t k = 0; k < blocks; ++k) energy += above[k], squares += below[k];
  return squares > 0 ? energy / squares : 0;
}

Status BadNearNull(std::string what, int64_t index = -1) {
  return Status(StatusCode::kInvalidArgument, "BAD_NEAR_NULL_SPACE", std::move(what))
      .At("near_null_space", index);
}
Status BadCoordinates(std::string what, int64_t index = -1) {
  return Status(StatusCode::kInvalidArgument, "BAD_COORDINATES", std::move(what))
      .At("coordinates", index);
}

// The first value that is not finite; -1: none.
int64_t FirstNotFinite(std::span<const double> values) {
  const auto at =
      std::find_if(values.begin(), values.end(), [](double v) { return !std::isfinite(v); });
  return at == values.end() ? -1 : at - values.begin();
}

Status CheckNearNull(int64_t n, const NearNullInput& input) {
  if (input.count < 1 || input.count > kMostNearNull ||
      static_cast<int64_t>(input.vectors.size()) != n * input.count) {
    return BadNearNull("the near-null space is n x k numbers, column-major, k from 1 to " +
                       std::to_string(kMostNearNull) + ": here n is " + std::to_string(n) +
                       ", and there are " + std::to_string(input.vectors.size()));
  }
  if (const int64_t at = FirstNotFinite(input.vectors); at >= 0) {
    return BadNearNull("element " + std::to_string(at) + " of the near-null space is not finite",
                       at);
  }
  // Gram-Schmidt over whole columns.
  std::vector<std::vector<double>> basis;
  for (int k = 0; k < input.count; ++k) {
    const auto column = input.vectors.subspan(Z(k * n), Z(n));
    std::vector<double> v(column.begin(), column.end());
    double before = 0, after = 0;
    for (const double x : v) before += x * x;
    for (int pass = 0; pass < 2; ++pass) {
      for (const auto& q : basis) {
        double along = 0;
        for (size_t i = 0; i < v.size(); ++i) along += q[i] * v[i];
        for (size_t i = 0; i < v.size(); ++i) v[i] -= along * q[i];
      }
    }
    for (const double x : v) after += x * x;
    if (!(after > kDependent * kDependent * before)) {
      return Status(
                 StatusCode::kInvalidArgument, "RANK_DEFICIENT",
                 "column " + std::to_string(k) +
                     " of the near-null space depends on those before it, or is zero; leave it out")
          .At("near_null_space", k);
    }
    for (double& x : v) x /= std::sqrt(after);
    basis.push_back(std::move(v));
  }
  return {};
}

// Translations and rotations; n = nodes * dimension.
constexpr int MotionsOf(int dimension) { return dimension == 2 ? 3 : 6; }

// Coordinates by columns, centred, over the largest distance.
Result<Array<double>> Centred(int64_t n, const NearNullInput& input, int block) {
  const int d = input.dimension;
  if ((d != 2 && d != 3) || d != block) {
    return BadCoordinates(
        "coordinates are of 2 or 3 dimensions, as many as a node has unknowns: here there are " +
        std::to_string(d) + ", and " + std::to_string(block) + " unknowns (node_size)");
  }
  const int64_t nodes = n / d;
  if (static_cast<int64_t>(input.coordinates.size()) != n) {
    return BadCoordinates("coordinates are nodes x dimension numbers, here " +
                          std::to_string(nodes) + " x " + std::to_string(d) + "; there are " +
                          std::to_string(input.coordinates.size()));
  }
  if (const int64_t at = FirstNotFinite(input.coordinates); at >= 0) {
    return BadCoordinates("element " + std::to_string(at) + " of the coordinates is not finite",
                          at);
  }
  Array<double> x(input.coordinates.begin(), input.coordinates.end());
  double farthest = 0;
  for (int k = 0; k < d; ++k) {
    double mean = 0;
    for (int64_t i = 0; i < nodes; ++i) mean += x[Z(k * nodes + i)];
    mean /= static_cast<double>(std::max<int64_t>(1, nodes));
    for (int64_t i = 0; i < nodes; ++i) {
      x[Z(k * nodes + i)] -= mean;
      farthest = std::max(farthest, std::fabs(x[Z(k * nodes + i)]));
    }
  }
  if (farthest > 0) {
    for (double& value : x) value /= farthest;
  }
  return x;
}

Result<NearNull> RigidBodyModes(int64_t n, const NearNullInput& input, int block) {
  auto centred = Centred(n, input, block);
  if (!centred.ok()) return centred.status();
  const Array<double>& x = *centred;
  const int d = input.dimension;
  const int64_t nodes = n / d;
  NearNull modes{.n = n, .count = MotionsOf(d), .values = {}};
  modes.values.assign(Z(n * modes.count), 0.0);
  const auto set = [&](int mode, int64_t node, int component, double value) {
    modes.values[Z(mode * n + node * d + component)] = value;
  };
  for (int64_t i = 0; i < nodes; ++i) {
    for (int k = 0; k < d; ++k) set(k, i, k, 1);
    const double px = x[Z(i)], py = x[Z(nodes + i)], pz = d == 3 ? x[Z(2 * nodes + i)] : 0;
    set(d, i, 0, -py), set(d, i, 1, px);
    if (d == 2) continue;
    set(4, i, 1, -pz), set(4, i, 2, py);
    set(5, i, 0, pz), set(5, i, 2, -px);
  }
  return modes;
}

void Unscale(const UnitScaled& a, const Context& context, NearNull& of) {
  if (a.scale.empty()) return;
  ForRows(of.n, context, [&](int64_t i) {
    for (int k = 0; k < of.count; ++k) of.values[Z(k * of.n + i)] /= a.scale[Z(i)];
  });
}

NearNull UnitVectors(int64_t n, int block) {
  NearNull units{.n = n, .count = block, .values = {}};
  units.values.assign(Z(n * block), 0.0);
  for (int k = 0; k < block; ++k) {
    for (int64_t i = k; i < n; i += block) units.values[Z(k * n + i)] = 1;
  }
  return units;
}

}  // namespace

Result<UnitScaled> ScaleToUnitDiagonal(const CscView& a, bool symmetric, KeptRows& kept,
                                       const Context& context) {
  return GuardMemory("the scaled matrix", [&]() -> Result<UnitScaled> {
    UnitScaled made;
    made.symmetric = symmetric;
    SharedPattern by_columns = symmetric ? kept.pattern : kept.by_rows ? kept.by_rows->of : nullptr;
    // No columns are kept of 2^31 entries or more that are not symmetric: then sizes must do.
    const bool other = by_columns != nullptr
                           ? !SamePattern(*by_columns, a, context)
                           : kept.pattern != nullptr && (kept.pattern->n_cols != a.n_cols ||
                                                         kept.pattern->nnz() != a.nnz());
    if (other) {
      return Status(StatusCode::kInvalidArgument, reason::kPlanMismatch,
                    "the plan of multigrid is of a matrix with another pattern; plan anew");
    }
    if (by_columns == nullptr) {
      by_columns = std::make_shared<Pattern>(CopyPattern(a, context));
    }
    SharedMatrix columns{.pattern = std::move(by_columns), .values = {}};
    columns.values.resize(a.values.size());
    if (symmetric) {
      made.rows = std::move(columns);
    } else {
      ParallelCopy(a.values, columns.values, context.threads);
      auto rows = Transpose(columns, kept.by_rows, context);
      if (!rows.ok()) return rows.status();
      made.rows = *std::move(rows);
    }
    kept.pattern = made.rows.pattern;
    const CscView from = symmetric ? a : CscView(made.rows);
    Array<double> diagonal(Z(a.n_cols));
    ForRows(a.n_cols, context, [&](int64_t i) { diagonal[Z(i)] = DiagonalOf(from, i); });
    if (Status status = CheckDiagonal(diagonal, symmetric); !status.ok()) return status;
    made.beta = Beta(from, diagonal, context);
    if (!symmetric) return made;
    made.sign = a.n_cols > 0 && diagonal[0] < 0 ? -1 : 1;
    made.scale.resize(Z(a.n_cols));
    ForRows(a.n_cols, context,
            [&](int64_t i) { made.scale[Z(i)] = 1 / std::sqrt(std::fabs(diagonal[Z(i)])); });
    ForRows(a.n_cols, context, [&](int64_t i) {
      for (int64_t p = a.col_ptr[Z(i)]; p < a.col_ptr[Z(i) + 1]; ++p) {
        const int32_t j = a.row_idx[Z(p)];
        // The product of both factors first: symmetric to the last bit, as A is.
        made.rows.values[Z(p)] =
            j == i ? 1 : made.sign * a.values[Z(p)] * (made.scale[Z(i)] * made.scale[Z(j)]);
      }
    });
    return made;
  });
}

Result<NearNull> GivenNearNull(int64_t n, const NearNullInput& input, int block) {
  if (!input.coordinates.empty() && input.vectors.empty()) return RigidBodyModes(n, input, block);
  NearNull given{.n = n, .count = 1, .values = {}};
  if (input.vectors.empty()) return given;
  if (Status status = CheckNearNull(n, input); !status.ok()) return status;
  given.count = input.count;
  given.values.assign(input.vectors.begin(), input.vectors.end());
  return given;
}

Result<GivenVectors> VectorsToMake(int64_t n, const NearNullInput& input, int block) {
  if (input.coordinates.empty() || !input.vectors.empty()) {
    auto given = GivenNearNull(n, input, block);
    if (!given.ok()) return given.status();
    return GivenVectors{.count = given->count, .values = std::move(given->values), .centred = {}};
  }
  auto centred = Centred(n, input, block);
  if (!centred.ok()) return centred.status();
  return GivenVectors{
      .count = MotionsOf(input.dimension), .values = {}, .centred = *std::move(centred)};
}

Result<NearNull> MakeNearNull(const UnitScaled& a, const NearNullInput& input, int block,
                              const Context& context, double* rayleigh) {
  return GuardMemory("the near-null space", [&]() -> Result<NearNull> {
    const int64_t n = a.rows.n();
    auto given = GivenNearNull(n, input, block);
    if (!given.ok()) return given.status();
    NearNull made = given->ones() ? UnitVectors(n, block) : *std::move(given);
    Unscale(a, context, made);
    *rayleigh = 0;
    for (int k = 0; k < made.count; ++k) {
      *rayleigh =
          std::max(*rayleigh, RayleighQuotient(a.rows, made.values.data() + k * n, context));
    }
    if (made.count > 1) return made;
    if (input.vectors.empty()) {
      const std::vector<double> ones(Z(n), 1.0);
      const double plain = RayleighQuotient(a.rows, ones.data(), context);
      if (plain < kMuchLessRayleigh * *rayleigh) {
        *rayleigh = plain;
        made.values.assign(Z(n), 1.0);
      }
    }
    // A constant is one of ones, whose values nobody has to keep.
    const double first = n > 0 ? made.values[0] : 1;
    const bool constant =
        std::all_of(made.values.begin(), made.values.end(), [&](double v) { return v == first; });
    if (constant && first != 0) made.values = {};
    return made;
  });
}

}  // namespace spaid::kernels

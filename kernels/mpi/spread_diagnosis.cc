#include "kernels/mpi/spread_diagnosis.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "kernels/mpi/halo.h"
#include "kernels/mpi/ranks.h"

namespace spaid::kernels::mpi {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

constexpr double kZeroSum = 1e-12, kNoise = 1e-12;  // as diagnosis.h has them
constexpr double kRounding = 8 * std::numeric_limits<double>::epsilon() / 2;

void Note(Occurrence& o, int64_t index) {
  if (o.count++ == 0) o.first = index;
}

// The findings of one rank in its columns and rows.
struct Part {
  Diagnosis d;
  double largest_difference = 0, largest_relative = 0;
  // The first places whose pattern and whose value are not symmetric; none: n.
  int64_t pattern_column = 0, pattern_row = -1, value_column = 0, value_row = -1;
};

// Sums of a column or row whose diagonal entry is number `own`.
struct Sums {
  double all = 0, off_diagonal = 0, diagonal = 0;
  bool any = false;

  Sums(std::span<const int32_t> indices, std::span<const double> values, int64_t own) {
    for (size_t p = 0; p < indices.size(); ++p) {
      all += values[p];
      any = any || values[p] != 0;
      if (indices[p] == own) {
        diagonal = values[p];
      } else {
        off_diagonal += std::abs(values[p]);
      }
    }
  }
  bool zero() const {
    return any && std::abs(all) <= kZeroSum * (off_diagonal + std::abs(diagonal));
  }
};

void Compare(const SpreadMatrix& a, const Numbering& of, const Array<double>& diagonal,
             Part& part) {
  const CscView columns = a.columns;
  const auto root = [&](int64_t i) {
    return std::sqrt(std::abs(diagonal[Z(of.Local(static_cast<int32_t>(i)))]));
  };
  part.pattern_column = part.value_column = a.n;
  EachRow(a.rows.get(), [&](int64_t k, auto across, auto across_values) {
    const int64_t j = a.own().begin + k;
    const auto down = columns.column(k);
    size_t p = 0, q = 0;
    while (p < down.size() || q < across.size()) {
      const bool left = q == across.size() || (p < down.size() && down[p] <= across[q]);
      const bool right = p == down.size() || (q < across.size() && across[q] <= down[p]);
      const int32_t i = left ? down[p] : across[q];
      const double v = left ? columns.column_values(k)[p++] : 0;
      const double w = right ? across_values[q++] : 0;
      const double difference = std::abs(v - w), larger = std::max(std::abs(v), std::abs(w));
      if ((!left || !right) && part.pattern_column == a.n) {
        part.pattern_column = j;
        part.pattern_row = i;
      }
      part.largest_difference = std::max(part.largest_difference, difference);
      if (difference > 0) {
        part.largest_relative = std::max(part.largest_relative, difference / larger);
      }
      if (difference > kNoise * larger && difference > kRounding * root(i) * root(j) &&
          part.value_column == a.n) {
        part.value_column = j;
        part.value_row = i;
      }
      part.d.structurally_symmetric = part.d.structurally_symmetric && left && right;
    }
  });
}

constexpr Occurrence Diagnosis::*kOccurrences[] = {
    &Diagnosis::missing_diagonal, &Diagnosis::zero_diagonal,    &Diagnosis::negative_diagonal,
    &Diagnosis::empty_rows,       &Diagnosis::empty_columns,    &Diagnosis::not_dominant_rows,
    &Diagnosis::zero_sum_rows,    &Diagnosis::zero_sum_columns, &Diagnosis::dense_rows,
    &Diagnosis::dense_columns};

Diagnosis PutTogether(const SpreadMatrix& a, const Part& part) {
  const Diagnosis& own = part.d;
  Diagnosis d;
  d.n = a.n;
  d.nnz = a.nnz;
  constexpr size_t kCount = std::size(kOccurrences);
  int64_t counts[kCount + 1], firsts[kCount + 2];
  for (size_t f = 0; f < kCount; ++f) {
    counts[f] = (own.*kOccurrences[f]).count;
    firsts[f] = counts[f] > 0 ? (own.*kOccurrences[f]).first : a.n;
  }
  counts[kCount] = own.explicit_zeros;
  firsts[kCount] = part.pattern_column;
  firsts[kCount + 1] = part.value_column;
  double most[6] = {own.max_abs_value,
                    -own.min_abs_value,
                    part.largest_difference,
                    part.largest_relative,
                    static_cast<double>(own.max_row_entries),
                    static_cast<double>(own.max_column_entries)};
  int symmetric = own.structurally_symmetric ? 1 : 0;
  Must(MPI_Allreduce(MPI_IN_PLACE, counts, kCount + 1, MPI_INT64_T, MPI_SUM, a.comm));
  Must(MPI_Allreduce(MPI_IN_PLACE, firsts, kCount + 2, MPI_INT64_T, MPI_MIN, a.comm));
  Must(MPI_Allreduce(MPI_IN_PLACE, most, 6, MPI_DOUBLE, MPI_MAX, a.comm));
  Must(MPI_Allreduce(MPI_IN_PLACE, &symmetric, 1, MPI_INT, MPI_MIN, a.comm));
  for (size_t f = 0; f < kCount; ++f) {
    d.*kOccurrences[f] = {counts[f], counts[f] > 0 ? firsts[f] : -1};
  }
  d.explicit_zeros = counts[kCount];
  d.structurally_symmetric = symmetric == 1;
  d.numerically_symmetric = d.structurally_symmetric && firsts[kCount + 1] == a.n;
  const bool by_pattern = firsts[kCount + 1] == a.n;  // the values are symmetric
  const int64_t column = by_pattern ? firsts[kCount] : firsts[kCount + 1];
  if (column < a.n) {
    int64_t row = by_pattern ? (part.pattern_column == column ? part.pattern_row : -1)
                             : (part.value_column == column ? part.value_row : -1);
    Must(MPI_Allreduce(MPI_IN_PLACE, &row, 1, MPI_INT64_T, MPI_MAX, a.comm));
    d.asymmetry_column = column;
    d.asymmetry_row = row;
  }
  d.max_abs_value = most[0];
  d.min_abs_value = std::isfinite(most[1]) ? -most[1] : 0;
  d.max_asymmetry = d.max_abs_value > 0 ? most[2] / d.max_abs_value : 0;
  d.max_row_entries = static_cast<int64_t>(most[4]);
  d.max_column_entries = static_cast<int64_t>(most[5]);
  d.constants_in_null_space =
      d.zero_sum_rows.count > 0 && d.zero_sum_rows.count + d.empty_rows.count == d.n;
  d.constants_in_left_null_space =
      d.zero_sum_columns.count > 0 && d.zero_sum_columns.count + d.empty_columns.count == d.n;
  if (d.zero_diagonal.count == 0) d.structural_rank = d.n;
  TellFindings(most[3], d);
  return d;
}

}  // namespace

Result<Diagnosis> DiagnoseSpread(const SpreadMatrix& a) {
  constexpr char kWhat[] = "diagnosis over several ranks";
  Part part;
  Array<double> own_diagonal;
  Numbering seen(a.n);
  Status status = Locally(a.comm, kWhat, [&]() -> Status {
    Diagnosis& d = part.d;
    d.n = a.n;
    d.nnz = a.nnz;
    d.structurally_symmetric = true;
    d.min_abs_value = std::numeric_limits<double>::infinity();
    const double dense = DenseFrom(d);
    const CscView columns = a.columns;
    for (const double v : columns.values) {
      const double size = std::abs(v);
      d.explicit_zeros += v == 0 ? 1 : 0;
      d.max_abs_value = std::max(d.max_abs_value, size);
      if (v != 0) d.min_abs_value = std::min(d.min_abs_value, size);
    }
    EachRow(a.rows.get(), [&](int64_t k, auto row, auto row_values) {
      const int64_t j = a.own().begin + k;
      const Sums down(columns.column(k), columns.column_values(k), j);
      const Sums across(row, row_values, j);
      const bool stored = std::ranges::binary_search(columns.column(k), static_cast<int32_t>(j));
      own_diagonal.push_back(down.diagonal);
      if (!down.any) Note(d.empty_columns, j);
      if (!across.any) Note(d.empty_rows, j);
      if (!stored) Note(d.missing_diagonal, j);
      if (down.diagonal == 0) Note(d.zero_diagonal, j);
      if (down.diagonal < 0) Note(d.negative_diagonal, j);
      if (std::abs(across.diagonal) < across.off_diagonal) Note(d.not_dominant_rows, j);
      if (across.zero()) Note(d.zero_sum_rows, j);
      if (down.zero()) Note(d.zero_sum_columns, j);
      const auto in_column = std::ssize(columns.column(k)), in_row = std::ssize(row);
      d.max_column_entries = std::max<int64_t>(d.max_column_entries, in_column);
      d.max_row_entries = std::max<int64_t>(d.max_row_entries, in_row);
      if (static_cast<double>(in_column) > dense) Note(d.dense_columns, j);
      if (static_cast<double>(in_row) > dense) Note(d.dense_rows, j);
      seen.Insert(row);
    });
    seen.Insert(columns.row_idx);
    for (int64_t j = a.own().begin; j < a.own().end; ++j) seen.Insert(static_cast<int32_t>(j));
    seen.Close();
    return {};
  });
  if (!status.ok()) return status;
  const Halo of_seen(a.comm, a.begin, a.columns.col_ptr, seen.global());
  const Array<double> diagonal = of_seen.Items<double>(own_diagonal);
  Compare(a, seen, diagonal, part);
  return PutTogether(a, part);
}

}  // namespace spaid::kernels::mpi

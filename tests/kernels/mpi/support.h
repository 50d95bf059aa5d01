// Shared by the tests of matrices over several ranks. Every rank makes the same whole matrices; no
// ASSERT may leave a test on one rank alone, as the others would wait.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/mpi/hybrid_spai.h"
#include "kernels/mpi/ranks.h"
#include "kernels/mpi/spread_krylov.h"
#include "kernels/mpi/spread_matrix.h"
#include "kernels/sparse/transpose.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels::mpi {

inline int Rank() { return RankOf(PETSC_COMM_WORLD); }
inline int Ranks() { return RanksOf(PETSC_COMM_WORLD); }

inline SpreadMatrix Spread(const CscMatrix& whole) {
  const CscView view = whole;
  Result<SpreadMatrix> a = SpreadWhole(PETSC_COMM_WORLD, Rank() == 0 ? &view : nullptr, {});
  EXPECT_TRUE(a.ok()) << a.status().message();
  return a.ok() ? *std::move(a) : SpreadMatrix{};
}

struct Entry {
  int32_t column, row;
  double value;
};

// The entries of all ranks, as a matrix on rank 0; empty elsewhere.
inline CscMatrix Gather(int64_t n, const Array<Entry>& own) {
  std::vector<Array<Entry>> to(static_cast<size_t>(Ranks()));
  to[0] = own;
  Array<Entry> all = ExchangeAll(PETSC_COMM_WORLD, std::move(to));
  CscMatrix m;
  if (Rank() != 0) return m;
  std::ranges::sort(all, [](const Entry& x, const Entry& y) {
    return std::pair(x.column, x.row) < std::pair(y.column, y.row);
  });
  m.n_rows = m.n_cols = n;
  m.col_ptr.assign(static_cast<size_t>(n) + 1, 0);
  for (const Entry& entry : all) {
    ++m.col_ptr[static_cast<size_t>(entry.column) + 1];
    m.row_idx.push_back(entry.row);
    m.values.push_back(entry.value);
  }
  for (size_t k = 1; k < m.col_ptr.size(); ++k) m.col_ptr[k] += m.col_ptr[k - 1];
  return m;
}

// The columns of M that the ranks have computed.
inline CscMatrix Gather(int64_t n, const HybridSpaiResult& result) {
  Array<Entry> own;
  for (size_t i = 0; i < result.here.size(); ++i) {
    for (auto p = static_cast<size_t>(result.columns.col_ptr[i]);
         p < static_cast<size_t>(result.columns.col_ptr[i + 1]); ++p) {
      own.push_back({result.here[i], result.columns.row_idx[p], result.columns.values[p]});
    }
  }
  return Gather(n, own);
}

// The rows that PETSc has.
inline CscMatrix Gather(int64_t n, Mat rows) {
  Array<Entry> own;
  PetscInt begin = 0, end = 0;
  Must(MatGetOwnershipRange(rows, &begin, &end));
  for (PetscInt i = begin; i < end; ++i) {
    PetscInt count = 0;
    const PetscInt* columns = nullptr;
    const PetscScalar* values = nullptr;
    Must(MatGetRow(rows, i, &count, &columns, &values));
    for (PetscInt p = 0; p < count; ++p) own.push_back({columns[p], i, values[p]});
    Must(MatRestoreRow(rows, i, &count, &columns, &values));
  }
  return Gather(n, own);
}

// Bit for bit; on rank 0.
inline void ExpectSame(const CscMatrix& found, const CscMatrix& expected, const std::string& what) {
  if (Rank() != 0) return;
  ASSERT_EQ(found.col_ptr, expected.col_ptr) << what;
  ASSERT_EQ(found.row_idx, expected.row_idx) << what;
  int64_t different = 0;
  for (size_t p = 0; p < found.values.size(); ++p) {
    different +=
        std::bit_cast<uint64_t>(found.values[p]) != std::bit_cast<uint64_t>(expected.values[p]);
  }
  EXPECT_EQ(different, 0) << what << ": of " << found.values.size() << " entries";
}

// The Status that all ranks must have.
inline void ExpectRefused(const Status& status, StatusCode code, const std::string& reason,
                          const std::string& field = "", int64_t index = -1) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_EQ(status.reason(), reason) << status.message();
  EXPECT_EQ(status.field(), field) << status.message();
  EXPECT_EQ(status.index(), index) << status.message();
}

}  // namespace spaid::kernels::mpi

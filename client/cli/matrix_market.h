// Reads and writes Matrix Market files, plain or gzip. Nothing in a file is silently skipped:
// errors name the reason, the file and the line.
//
//   auto a = ReadMatrix("A.mtx.gz");
//   if (!a.ok()) return Fail(a.error());   // one line: file, line, what, cure
//
// All functions are thread-safe. Every error is INVALID_ARGUMENT with one of these reasons:
// FILE_NOT_FOUND, FILE_UNREADABLE, FILE_EMPTY, GZIP_CORRUPT, NOT_MATRIX_MARKET, LINE_TOO_LONG,
// BAD_SIZE_LINE, BAD_ENTRY, INDEX_OUT_OF_RANGE, TOO_MANY_ENTRIES, FILE_TRUNCATED, NOT_SQUARE,
// MATRIX_COMPLEX, MATRIX_PATTERN, MATRIX_SKEW_SYMMETRIC, MATRIX_HERMITIAN, MATRIX_DENSE,
// DUPLICATE_ENTRY, NON_FINITE_VALUE (magnitudes from 1e308 on, too), FILE_UNWRITABLE; or
// RESOURCE_EXHAUSTED/OUT_OF_MEMORY.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/cpp/spaid/types.h"

namespace spaid::cli {

struct ReadOptions {
  bool pattern = false;         // only the pattern is meant: `pattern` files too; values stay empty
  bool sum_duplicates = false;  // sum entries given twice instead of refusing them
};

// Reads a square sparse matrix into CSC with sorted rows. Explicit zeros stay; a symmetric file
// (either triangle) is expanded to both. An entry given in both triangles of a symmetric file is
// refused.
Expected<CscMatrix> ReadMatrix(const std::string& path, const ReadOptions& options = {});

// Right-hand sides or solutions: rows x columns, column-major.
struct Vectors {
  int64_t rows = 0, columns = 0;
  std::vector<double> values;
};

// Reads an `array` file, or a `coordinate` one whose missing entries are zeros.
Expected<Vectors> ReadVectors(const std::string& path);

// Write files from which every double comes back the same; explicit zeros stay. A symmetric matrix
// (values included) is written as one triangle.
std::optional<Error> WriteMatrix(const std::string& path, const CscView& a);
std::optional<Error> WriteMatrix(const std::string& path, const CscMatrix& a);  // of any shape
std::optional<Error> WriteVectors(const std::string& path, int64_t rows, int64_t columns,
                                  std::span<const double> values);

}  // namespace spaid::cli

// A small reader of Matrix Market coordinate files (plain or gzip) for tests on real matrices.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/sparse/matrix.h"

namespace spaid::oracle {

// Real or integer, general or symmetric coordinate files; symmetric ones are expanded. Nothing for
// any other kind (arrays, complex, pattern) or a broken file.
std::optional<kernels::CscMatrix> ReadMatrixMarket(const std::string& path);

// Paths of all *.mtx and *.mtx.gz of a folder, sorted; none where it does not exist.
std::vector<std::string> MatrixMarketFiles(const std::string& folder);

}  // namespace spaid::oracle

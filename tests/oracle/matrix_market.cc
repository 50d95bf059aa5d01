#include "tests/oracle/matrix_market.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <tuple>

namespace spaid::oracle {
namespace {

std::optional<std::string> ReadAll(const std::string& path) {
  const gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return std::nullopt;
  std::string text;
  char block[1 << 16];
  int got = 0;
  while ((got = gzread(file, block, sizeof block)) > 0)
    text.append(block, static_cast<size_t>(got));
  gzclose(file);
  if (got < 0) return std::nullopt;
  return text;
}

}  // namespace

std::optional<kernels::CscMatrix> ReadMatrixMarket(const std::string& path) {
  const std::optional<std::string> text = ReadAll(path);
  if (!text) return std::nullopt;
  const size_t first_line = text->find('\n');
  if (first_line == std::string::npos) return std::nullopt;
  std::istringstream banner(text->substr(0, first_line));
  std::string mark, object, format, field, symmetry;
  banner >> mark >> object >> format >> field >> symmetry;
  if (mark != "%%MatrixMarket" || object != "matrix" || format != "coordinate" ||
      (field != "real" && field != "integer") ||
      (symmetry != "general" && symmetry != "symmetric")) {
    return std::nullopt;
  }
  size_t at = first_line + 1;
  while (at < text->size() && (*text)[at] == '%') {
    at = text->find('\n', at);
    if (at == std::string::npos) return std::nullopt;
    ++at;
  }
  const char* p = text->c_str() + at;
  char* end = nullptr;
  int64_t sizes[3];
  for (int64_t& size : sizes) {
    size = std::strtoll(p, &end, 10);
    if (end == p) return std::nullopt;
    p = end;
  }
  std::vector<std::tuple<int32_t, int32_t, double>> entries;  // column, row, value
  for (int64_t e = 0; e < sizes[2]; ++e) {
    const int64_t i = std::strtoll(p, &end, 10);
    if (end == p) return std::nullopt;
    p = end;
    const int64_t j = std::strtoll(p, &end, 10);
    if (end == p) return std::nullopt;
    p = end;
    const double value = std::strtod(p, &end);
    if (end == p || i < 1 || j < 1 || i > sizes[0] || j > sizes[1]) return std::nullopt;
    p = end;
    entries.emplace_back(static_cast<int32_t>(j - 1), static_cast<int32_t>(i - 1), value);
    if (symmetry == "symmetric" && i != j) {
      entries.emplace_back(static_cast<int32_t>(i - 1), static_cast<int32_t>(j - 1), value);
    }
  }
  std::sort(entries.begin(), entries.end());
  kernels::CscMatrix a;
  a.n_rows = sizes[0];
  a.n_cols = sizes[1];
  a.col_ptr.assign(static_cast<size_t>(sizes[1]) + 1, 0);
  for (const auto& [j, i, value] : entries) {
    ++a.col_ptr[static_cast<size_t>(j) + 1];
    a.row_idx.push_back(i);
    a.values.push_back(value);
  }
  for (size_t j = 0; j < static_cast<size_t>(sizes[1]); ++j) a.col_ptr[j + 1] += a.col_ptr[j];
  return a;
}

std::vector<std::string> MatrixMarketFiles(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string path = entry.path().string();
    if (path.ends_with(".mtx") || path.ends_with(".mtx.gz")) paths.push_back(path);
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace spaid::oracle

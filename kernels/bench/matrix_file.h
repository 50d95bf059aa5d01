// Matrix files of the bench programs: n and nnz (int64), column pointers (int32), row indices
// (int32), values (fp64). They end the program where they cannot be read.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/sparse/matrix.h"

namespace spaid::kernels::bench {

[[noreturn]] inline void Die(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(1);
}

template <class T>
std::vector<T> Take(std::FILE* file, size_t count) {
  std::vector<T> array(count);
  if (std::fread(array.data(), sizeof(T), count, file) != count) Die("the file is cut short");
  return array;
}

inline CscMatrix ReadMatrix(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) Die("cannot read " + path);
  const auto header = Take<int64_t>(file, 2);
  const auto pointers = Take<int32_t>(file, static_cast<size_t>(header[0]) + 1);
  const auto indices = Take<int32_t>(file, static_cast<size_t>(header[1]));
  const auto values = Take<double>(file, static_cast<size_t>(header[1]));
  std::fclose(file);
  CscMatrix a;
  a.n_rows = a.n_cols = header[0];
  a.col_ptr.assign(pointers.begin(), pointers.end());
  a.row_idx.assign(indices.begin(), indices.end());
  a.values.assign(values.begin(), values.end());
  return a;
}

}  // namespace spaid::kernels::bench

// A matrix by rows on the first CUDA device (kernels/krylov/cuda/csr.h), with what the library
// keeps to itself: how its products are formed. For benchmarks and tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/sparse/matrix.h"

namespace spaid::kernels::bench {

// SliceLoop of kernels/krylov/cuda/csr.h.
enum class RowsLoop : int32_t { kPlain, kShortChunks, kLongChunks };

// How rows lie that differ in length so much that slices would hold many ends of rows.
enum class RowsLayout : int32_t { kByRule, kSlices, kTiles };

struct RowsOptions {
  bool fp32 = false;      // values are stored so
  bool as_large = false;  // laid out as if the caches could not keep it
  // kTiles: of what streams, whatever the lengths of its rows.
  RowsLayout layout = RowsLayout::kByRule;
};

// Every call throws std::exception where the device fails.
class RowsOnDevice {
 public:
  // A square canonical CSC with values.
  RowsOnDevice(const CscView& a, const RowsOptions& options);
  ~RowsOnDevice();
  RowsOnDevice(const RowsOnDevice&) = delete;
  RowsOnDevice& operator=(const RowsOnDevice&) = delete;

  bool in_tiles() const;
  double stored() const;  // entries with the ends of slices, for each entry
  RowsLoop loop() const;
  void set_loop(RowsLoop loop);  // of kShortChunks and kLongChunks, where it is laid out as large
  void Update(const double* values);

  // y = A x, and xᵀ y as it is summed beside, of n elements each, on the host.
  void Multiply(const double* x, double* y, double* dot);
  // The same of 1, 2 or 4 vectors at once, interleaved, x[columns i + v]; `dot` has as many.
  void MultiplyColumns(int columns, const double* x, double* y, double* dot);
  // The median of so many products, each between the updates of CG's vectors, in milliseconds by
  // the device's clock; with xᵀ y beside y, or y alone.
  double Time(int products, bool with_dot);
  // The shortest of so many layouts of the same matrix, which is on the device by columns, in
  // milliseconds by the host's clock.
  double TimeLayout(int times);

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace spaid::kernels::bench

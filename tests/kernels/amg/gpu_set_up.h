// Shared by tests of the set-up on a CUDA device: its levels beside the host's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/amg/amg_cuda.h"
#include "tests/kernels/amg/gpu_apply.h"
#include "tests/kernels/amg/hierarchies.h"
#include "tests/kernels/amg/problems.h"
#include "tests/kernels/sparse/matrices.h"

namespace spaid::kernels {

using Vector = std::vector<double>;
using Device = std::shared_ptr<CudaDevice>;

inline const Device& TheDevice() {
  static const Device device = OpenGpu().value();
  return device;
}

// Null: the set-up is the host's.
inline std::optional<AmgResult> There(const CscMatrix& a, const AmgOptions& options,
                                      const NearNullInput& near = {},
                                      const Device& device = TheDevice()) {
  auto built = BuildAmgOnCuda(device, a, near, options, Threads(2));
  EXPECT_TRUE(built.ok()) << built.status().message();
  return built.ok() ? *std::move(built) : std::nullopt;
}

inline void ExpectEqual(const CscMatrix& there, const CscMatrix& here) {
  EXPECT_EQ(there.n_rows, here.n_rows);
  EXPECT_TRUE(there.col_ptr == here.col_ptr);
  EXPECT_TRUE(there.row_idx == here.row_idx);
  ASSERT_EQ(there.values.size(), here.values.size());
  int64_t others = 0;
  double distance = 0;
  for (size_t p = 0; p < here.values.size(); ++p) {
    if (there.values[p] == here.values[p]) continue;
    ++others;
    distance = std::max(distance, std::fabs(there.values[p] - here.values[p]));
  }
  EXPECT_EQ(others, 0) << "of " << here.values.size() << ", by up to " << distance;
}

// Values to rounding.
inline void ExpectRounded(const CscMatrix& there, const CscMatrix& here) {
  ASSERT_TRUE(there.col_ptr == here.col_ptr && there.row_idx == here.row_idx);
  double distance = 0, largest = 0;
  for (size_t p = 0; p < here.values.size(); ++p) {
    distance = std::max(distance, std::fabs(there.values[p] - here.values[p]));
    largest = std::max(largest, std::fabs(here.values[p]));
  }
  EXPECT_LE(distance, 1e-7 * largest);  // fp32 has 6e-8
}

// Whether G is the smoother: the host's to rounding, wherever no tie decides of its pattern.
inline bool IsFactored(SmootherKind kind) {
  return kind == SmootherKind::kFsai || kind == SmootherKind::kAfsai;
}
inline void ExpectNear(double there, double here, double share) {
  EXPECT_NEAR(there, here, share * std::fabs(here));
}

inline void ExpectTheHosts(const AmgResult& there, const AmgResult& here) {
  const AmgQuality &q = there.quality, &h = here.quality;
  ASSERT_EQ(q.levels.size(), h.levels.size());
  const bool factored = IsFactored(h.smoother);
  for (size_t l = 0; l < h.levels.size(); ++l) {
    SCOPED_TRACE("level " + std::to_string(l));
    EXPECT_EQ(q.levels[l].rows, h.levels[l].rows);
    EXPECT_EQ(q.levels[l].nnz, h.levels[l].nnz);
    EXPECT_EQ(q.levels[l].aggregates, h.levels[l].aggregates);
    EXPECT_EQ(q.levels[l].isolated, h.levels[l].isolated);
    EXPECT_EQ(q.levels[l].guarded, h.levels[l].guarded);
    EXPECT_EQ(q.levels[l].boxes, h.levels[l].boxes);
    EXPECT_EQ(q.levels[l].rho, h.levels[l].rho);
    EXPECT_EQ(q.levels[l].nnz_p, h.levels[l].nnz_p);
    ExpectNear(static_cast<double>(q.levels[l].nnz_smoother),
               static_cast<double>(h.levels[l].nnz_smoother), factored ? 0.02 : 0);
  }
  EXPECT_EQ(q.smoother, h.smoother);
  EXPECT_EQ(q.precision, h.precision);
  EXPECT_EQ(q.block_size, h.block_size);
  EXPECT_EQ(q.operator_complexity, h.operator_complexity);
  EXPECT_EQ(q.grid_complexity, h.grid_complexity);
  EXPECT_EQ(q.beta, h.beta);
  EXPECT_EQ(q.singular_coarse_pivots, h.singular_coarse_pivots);
  EXPECT_EQ(q.inverted, h.inverted);
  const AmgHierarchy &m = *there.hierarchy, &m_here = *here.hierarchy;
  EXPECT_EQ(m.n(), m_here.n());
  ExpectNear(static_cast<double>(m.nnz()), static_cast<double>(m_here.nnz()), factored ? 0.02 : 0);
  EXPECT_EQ(m.symmetric(), m_here.symmetric());
  EXPECT_GT(m.device_bytes(), 0);
  EXPECT_NEAR(static_cast<double>(m.bytes_per_apply()),
              static_cast<double>(m_here.bytes_per_apply()),
              0.2 * static_cast<double>(m_here.bytes_per_apply()) + 1000);
  const std::vector<AmgPart> parts = m.parts(), parts_here = m_here.parts();
  ASSERT_EQ(parts.size(), parts_here.size());
  const auto vectors = std::find_if(parts.begin(), parts.end(), [](const AmgPart& part) {
    return part.kind == AmgPartKind::kNearNull;
  });
  // Quotients of several vectors are summed in another order.
  EXPECT_NEAR(q.near_null_rayleigh, h.near_null_rayleigh,
              vectors->cols > 1 ? 1e-12 * h.near_null_rayleigh + 1e-15 : 0);
  for (size_t k = 0; k < parts.size(); ++k) {
    const AmgPart &part = parts[k], &other = parts_here[k];
    SCOPED_TRACE(std::string(Name(other.kind)) + " of level " + std::to_string(other.level));
    EXPECT_EQ(part.level, other.level);
    EXPECT_EQ(part.kind, other.kind);
    EXPECT_EQ(part.rows, other.rows);
    EXPECT_EQ(part.cols, other.cols);
    EXPECT_EQ(part.smoother, other.smoother);
    if (part.kind == AmgPartKind::kSmoother && IsFactored(part.smoother)) {
      ExpectNear(part.rho, other.rho, 0.05);
      EXPECT_EQ(part.omega, kSmootherStep / part.rho);
      continue;
    }
    EXPECT_EQ(part.nnz, other.nnz);
    EXPECT_EQ(part.rho, other.rho);
    EXPECT_EQ(part.coefficients, other.coefficients);
    const auto values = m.Part(part.level, part.kind),
               values_here = m_here.Part(part.level, part.kind);
    ASSERT_TRUE(values.ok() && values_here.ok());
    if (part.kind == AmgPartKind::kSmoother && part.smoother == SmootherKind::kStaticSpai) {
      ExpectRounded(*values, *values_here);
    } else {
      ExpectEqual(*values, *values_here);
    }
  }
  EXPECT_GE(static_cast<double>(m.host_bytes()),
            (factored ? 0.98 : 1) * static_cast<double>(m_here.host_bytes()));
}

// Stops a computation at its report of that number.
struct StopAt final : ProgressSink {
  explicit StopAt(int report) : at(report) {}

  StopSource source;
  const int at;
  int reports = 0;
  void OnProgress(Stage, int64_t, int64_t) override {
    if (++reports == at) source.Request(StopReason::kCancelled);
  }
  void OnResidual(const ResidualPoint&) override {}
};

// D A D with a little more on the diagonal.
inline CscMatrix Stiffer(const CscMatrix& a) {
  const auto d = [](int64_t k) { return 1 + 0.5 * std::sin(0.001 * static_cast<double>(k)); };
  CscMatrix other = a;
  size_t p = 0;
  ForEntries(a, [&](int64_t i, int64_t j, double v) {
    other.values[p++] = v * d(i) * d(j) * (i == j ? 1.001 : 1);
  });
  return other;
}

// Laid out from where they are, levels do what they do after a download; `beside`: in its order.
inline void ExpectCyclesOfTheDownload(const CscMatrix& a, const AmgOptions& options,
                                      const CudaOperator* beside) {
  const auto there = There(a, options);
  ASSERT_TRUE(there.has_value());
  const auto placed = PlaceAmgOnCuda(TheDevice(), *there->hierarchy, Context(), beside);
  ASSERT_TRUE(placed.ok()) << placed.status().message();
  const std::vector<double> r = RandomVector(a.n_cols, 3), z = AppliedThere(**placed, r);
  there->hierarchy->DropDeviceCopy();
  EXPECT_EQ(there->hierarchy->device_bytes(), 0);
  const auto again = PlaceAmgOnCuda(TheDevice(), *there->hierarchy, Context(), beside);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(AppliedThere(**again, r), z);
  if (beside != nullptr) return;  // the vectors are in its order
  const std::vector<double> here = Applied(*there->hierarchy, r);
  double distance = 0, largest = 0;
  for (size_t i = 0; i < here.size(); ++i) {
    distance = std::max(distance, std::fabs(here[i] - z[i]));
    largest = std::max(largest, std::fabs(here[i]));
  }
  EXPECT_LE(distance, (options.hierarchy_precision == Precision::kFp64 ? 1e-11 : 1e-4) * largest);
}

inline NearNullInput One(const Vector& vector) {
  return {.vectors = vector, .count = 1, .coordinates = {}, .dimension = 0};
}

inline AmgOptions InFp64(AmgOptions options = {}) {
  options.hierarchy_precision = Precision::kFp64;
  return options;
}

inline void ExpectTheHosts(const CscMatrix& a, bool symmetric, const AmgOptions& options,
                           const NearNullInput& near = {}) {
  const auto there = There(a, options, near);
  ASSERT_TRUE(there.has_value());
  ExpectTheHosts(*there, Build(a, symmetric, options, near));
}

}  // namespace spaid::kernels

// Other values on the aggregates of a set-up on a CUDA device, against the host's RebuildAmg, bit
// for bit. Without a device every test is skipped (gpu_test.cc).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/amg/amg_cuda.h"
#include "kernels/amg/amg_estimate.h"
#include "kernels/sparse/cuda/kept_patterns.h"
#include "tests/kernels/amg/gpu_apply.h"
#include "tests/kernels/amg/gpu_set_up.h"
#include "tests/kernels/amg/hierarchies.h"
#include "tests/kernels/amg/problems.h"
#include "tests/kernels/sparse/matrices.h"

namespace spaid::kernels {
namespace {

using Plan = std::shared_ptr<const AmgPlanThere>;

std::optional<AmgResult> Again(const Plan& plan, const CscMatrix& a, const NearNullInput& near = {},
                               const Device& device = TheDevice()) {
  auto built = RebuildAmgOnCuda(device, plan, a, near, Threads(2));
  EXPECT_TRUE(built.ok()) << built.status().message();
  return built.ok() ? *std::move(built) : std::nullopt;
}

struct Case {
  std::string name;
  CscMatrix a;
  bool symmetric;
  AmgOptions options;
  Vector near = {};

  NearNullInput input() const { return near.empty() ? NearNullInput() : One(near); }
};

std::vector<Case> Cases(bool small) {
  std::vector<Case> all;
  const auto add = [&](std::string name, const gallery::Matrix& a, bool symmetric,
                       AmgOptions options = With(SmootherKind::kL1Jacobi)) {
    options.max_coarse_size = small ? 20 : 60;
    options.hierarchy_precision = Precision::kFp64;
    all.push_back({std::move(name), From(a), symmetric, options});
  };
  const int64_t m = small ? 9 : 22;
  const gallery::Matrix grid = gallery::ConvectionDiffusion3d(m, 0);
  for (const SmootherKind kind :
       {SmootherKind::kL1Jacobi, SmootherKind::kJacobi, SmootherKind::kChebyshev}) {
    add("grid, " + std::string(Name(kind)), grid, true, With(kind));
  }
  add("jumps", gallery::Jumps3d(small ? 8 : 24, 4, 3), true);
  all.push_back(all.back());
  all.back().name = "a vector of the caller's";
  all.back().near = RandomVector(all.back().a.n_cols, 5);
  for (double& v : all.back().near) v += 2;
  for (size_t i = 0; i < all.back().near.size(); i += 3) all.back().near[i] = 0;
  // Whole aggregates: coarse rows without entries.
  for (size_t i = 0; i < all.back().near.size() / 5; ++i) all.back().near[i] = 0;
  add("Neumann", gallery::Jumps3d(small ? 8 : 16, 4, 3, 1, gallery::Boundary::kNeumann), true);
  add("convection", gallery::ConvectionDiffusion3d(small ? 9 : 20, 20), false);
  add("circuit", small ? gallery::Circuit(600, 6, 60) : gallery::Circuit(20000, 12, 700), false);
  add("hubs", gallery::GraphLaplacian(small ? 400 : 5000), true);
  if (small) return all;
  add("irregular", gallery::RandomIrregular(4000), false);
  add("bad scaling", gallery::BadlyScaled2d(60, 6), true);
  add("27 points", gallery::Laplace27(16), true);
  gallery::Matrix mesh = gallery::ConvectionDiffusion3d(20, 0);
  gallery::PermuteNodes({mesh.col_ptr, mesh.row_idx, mesh.values}, 1, mesh.n);
  add("in random order", mesh, true);
  gallery::Matrix plane = gallery::RotatedAnisotropy2d(150, 1e-3, 0.5236);
  gallery::Symmetrize({plane.col_ptr, plane.row_idx, plane.values});
  add("anisotropy", plane, true);
  AmgOptions options = With(SmootherKind::kL1Jacobi);
  options.coarsening = Coarsening::kPlainAggregation;
  add("plain", grid, true, options);
  options = With(SmootherKind::kL1Jacobi);
  options.max_growth = 0.1;
  add("guarded", grid, true, options);
  add("guarded, not symmetric", gallery::ConvectionDiffusion3d(20, 20), false, options);
  options = With(SmootherKind::kL1Jacobi);
  options.max_levels = 2;
  add("two levels", grid, true, options);
  add("two levels, not symmetric", gallery::ConvectionDiffusion3d(20, 20), false, options);
  return all;
}

// f(i, j), of which f(j, i) is the same, times the entries.
template <class Factor>
CscMatrix Times(const CscMatrix& a, const Factor& f) {
  CscMatrix other = a;
  size_t p = 0;
  ForEntries(a, [&](int64_t i, int64_t j, double v) { other.values[p++] = v * f(i, j); });
  return other;
}

CscMatrix Changed(const CscMatrix& a) {
  const auto d = [](int64_t k) { return 1 + 0.5 * std::sin(0.001 * static_cast<double>(k)); };
  return Times(a, [&](int64_t i, int64_t j) { return d(i) * d(j) * (i == j ? 1.001 : 1); });
}

// Couplings that were strong are none, and others are.
CscMatrix Flipped(const CscMatrix& a) {
  return Times(a, [](int64_t i, int64_t j) {
    const auto hash = static_cast<uint64_t>(i + j) * 0x9e3779b97f4a7c15u ^
                      static_cast<uint64_t>(i * j) * 0xbf58476d1ce4e5b9u;
    return i == j ? 1.5 : (hash >> 60) % 4 == 0 ? -0.01 : (hash >> 60) % 4 == 1 ? 0.02 : 1;
  });
}

void ExpectTheHosts(const Case& of) {
  SCOPED_TRACE(of.name);
  const AmgResult here = Build(of.a, of.symmetric, of.options, of.input());
  const auto there = There(of.a, of.options, of.input());
  ASSERT_TRUE(there.has_value());
  ASSERT_NE(there->there, nullptr);
  EXPECT_FALSE(there->quality.reused);
  for (const CscMatrix& a : {of.a, Changed(of.a), Flipped(of.a), of.a}) {
    const auto again = Again(there->there, a, of.input());
    ASSERT_TRUE(again.has_value());
    EXPECT_TRUE(again->quality.reused);
    EXPECT_EQ(again->there, there->there);
    const auto truth = RebuildAmg(here.plan, a, of.input(), Threads(2));
    ASSERT_TRUE(truth.ok()) << truth.status().message();
    ExpectTheHosts(*again, *truth);
  }
}

TEST(GpuRebuild, IsTheHosts) {
  for (const Case& of : Cases(/*small=*/false)) ExpectTheHosts(of);
}

// For compute-sanitizer.
TEST(GpuRebuild, SmallSystems) {
  for (const Case& of : Cases(/*small=*/true)) ExpectTheHosts(of);
}

TEST(GpuRebuild, WithTheSameValuesIsTheBuild) {
  for (const Case& of : Cases(/*small=*/true)) {
    SCOPED_TRACE(of.name);
    const auto first = There(of.a, of.options, of.input());
    ASSERT_TRUE(first.has_value());
    const auto again = Again(first->there, of.a, of.input());
    ASSERT_TRUE(again.has_value());
    for (const AmgPart& part : first->hierarchy->parts()) {
      ExpectEqual(*again->hierarchy->Part(part.level, part.kind),
                  *first->hierarchy->Part(part.level, part.kind));
    }
  }
}

// Laid out from where it lies, before and after the plan has gone.
TEST(GpuRebuild, CyclesAreThoseOfTheHostsLevels) {
  for (const bool symmetric : {true, false}) {
    const CscMatrix a = From(gallery::ConvectionDiffusion3d(18, symmetric ? 0 : 20));
    const CscMatrix other = Changed(a);
    AmgOptions options = With(SmootherKind::kL1Jacobi, Precision::kFp64);
    options.max_coarse_size = 40;
    const AmgResult here = Build(a, symmetric, options);
    const auto truth = RebuildAmg(here.plan, other, {}, Threads(2));
    auto there = There(a, options);
    ASSERT_TRUE(truth.ok() && there.has_value());
    const auto again = Again(there->there, other);
    ASSERT_TRUE(again.has_value());
    const Vector r = RandomVector(a.n_cols, 3);
    const auto applied = [&](const AmgHierarchy& hierarchy) {
      const auto placed = PlaceAmgOnCuda(TheDevice(), hierarchy, Threads(2), nullptr);
      EXPECT_TRUE(placed.ok()) << placed.status().message();
      return AppliedThere(**placed, r);
    };
    const Vector z = applied(*truth->hierarchy);
    EXPECT_EQ(applied(*again->hierarchy), z);
    there.reset();
    EXPECT_EQ(applied(*again->hierarchy), z);
  }
}

TEST(GpuRebuild, TellsTheBytesOfWhatIsKept) {
  for (const Case& of : Cases(/*small=*/true)) {
    SCOPED_TRACE(of.name);
    const Device device = OpenGpu().value();
    auto built = There(of.a, of.options, of.input(), device);
    ASSERT_TRUE(built.has_value());
    const int64_t kept = built->there->device_bytes(), bytes = built->hierarchy->device_bytes();
    EXPECT_GT(kept, 4 * of.a.n_cols);
    EXPECT_EQ(UsedNow(*device), bytes + kept);
    auto again = Again(built->there, of.a, of.input(), device);
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(again->hierarchy->device_bytes(), bytes);
    EXPECT_EQ(UsedNow(*device), 2 * bytes + kept);
    built->hierarchy = nullptr;
    EXPECT_EQ(UsedNow(*device), bytes + kept);
    built.reset();
    again->there = nullptr;
    EXPECT_EQ(UsedNow(*device), bytes) << "a hierarchy outlives the plan";
    again->hierarchy->DropDeviceCopy();
    EXPECT_EQ(UsedNow(*device), 0);
  }
}

TEST(GpuRebuild, IsNothingWhereAllIsToBeBuiltAnew) {
  const CscMatrix a = From(gallery::ConvectionDiffusion3d(12, 0));
  const AmgOptions options = With(SmootherKind::kL1Jacobi, Precision::kFp64);
  const auto built = There(a, options);
  ASSERT_TRUE(built.has_value());
  // Symmetric no more.
  CscMatrix other = a;
  other.values[1] *= 1.5;
  EXPECT_FALSE(Again(built->there, other).has_value());
  // Without a diagonal, or with one of both signs: the host says what is wrong.
  for (int j = 0; j < 2; ++j) {
    other = Times(a, [&](int64_t i, int64_t k) { return i == k && i == 500 ? -j : 1; });
    EXPECT_FALSE(Again(built->there, other).has_value());
  }
  // Zeros elsewhere.
  Vector zeros(static_cast<size_t>(a.n_cols), 1.0);
  zeros[77] = 0;
  EXPECT_FALSE(Again(built->there, a, One(zeros)).has_value());
  for (double& v : zeros) v += 1;
  EXPECT_TRUE(Again(built->there, a, One(zeros)).has_value());
  EXPECT_TRUE(Again(built->there, a).has_value());
}

TEST(GpuRebuild, RefusesAsTheHostDoes) {
  const CscMatrix a = From(gallery::ConvectionDiffusion3d(20, 20));
  AmgOptions options = With(SmootherKind::kL1Jacobi);
  options.max_coarse_size = 60;
  const AmgResult here = Build(a, false, options);
  const auto there = There(a, options);
  ASSERT_TRUE(there.has_value());
  const int64_t before = UsedNow(*TheDevice());
  const auto refused = [&](const CscMatrix& other, const NearNullInput& near = {}) {
    const auto again = RebuildAmgOnCuda(TheDevice(), there->there, other, near, Threads(2));
    const auto truth = RebuildAmg(here.plan, other, near, Threads(2));
    EXPECT_FALSE(again.ok() || truth.ok());
    EXPECT_EQ(again.status().reason(), truth.status().reason());
    EXPECT_EQ(UsedNow(*TheDevice()), before);
    return again.status().message() == truth.status().message() ? again.status().reason()
                                                                : again.status().message();
  };
  for (const double bad : {std::numeric_limits<double>::infinity(), -std::nan("")}) {
    CscMatrix other = a;
    other.values[3000] = bad;
    EXPECT_EQ(refused(other), "NON_FINITE_VALUE");
  }
  EXPECT_EQ(refused(Times(a, [](int64_t, int64_t) { return 1e60; })), "FLOAT32_OVERFLOW");
  const Vector zeros(static_cast<size_t>(a.n_cols), 0.0);
  EXPECT_EQ(refused(a, One(zeros)), "RANK_DEFICIENT");
  // As many entries in as many columns.
  const auto built = There(oracle::Laplacian2d(20, 40), With(SmootherKind::kL1Jacobi));
  const auto other =
      RebuildAmgOnCuda(TheDevice(), built->there, oracle::Laplacian2d(40, 20), {}, Threads(1));
  EXPECT_EQ(other.status().reason(), "PLAN_MISMATCH");
  const Device second = OpenGpu().value();
  EXPECT_EQ(RebuildAmgOnCuda(second, there->there, a, {}, Threads(1)).status().reason(),
            "PLAN_MISMATCH");
}

TEST(GpuRebuild, Stops) {
  const CscMatrix a = From(gallery::ConvectionDiffusion3d(14, 0));
  const auto built = There(a, {});
  ASSERT_TRUE(built.has_value());
  StopSource source;
  source.Request(StopReason::kCancelled);
  Context context = Threads(2);
  context.stop = source.token();
  const auto again = RebuildAmgOnCuda(TheDevice(), built->there, a, {}, context);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.status().reason(), "CANCELLED");
}

// A transpose on a known pattern, of any shape.
TEST(GpuRebuild, TransposesOnKnownPatterns) {
  CscMatrix a = From(gallery::RandomIrregular(3000));
  const auto lock = TheDevice()->Lock();
  const Status status = cuda::Guard(*TheDevice(), [&](cuda::Context& on) {
    const cuda::RowMatrix there = cuda::UploadRows(on, a, a.values.data());
    cuda::Transposition kept;
    const cuda::RowMatrix first = cuda::Transpose(on, there, kept);
    ExpectEqual(cuda::DownloadRows(on, first), Transpose(CscView(a)));
    a = Changed(a);
    const cuda::RowMatrix other = cuda::UploadRows(on, a, a.values.data());
    ExpectEqual(cuda::DownloadRows(on, cuda::TransposeOn(on, other, kept)), Transpose(CscView(a)));
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace spaid::kernels

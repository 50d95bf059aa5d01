// How a solve stores M: what is asked for, and what AUTO chooses.
#include "kernels/engine/m_storage.h"

#include "kernels/krylov/operators.h"
#include "tests/kernels/engine/helpers.h"

namespace spaid::kernels::engine_test {
namespace {

// The rule alone, of an M that fp32 serves well unless a test says otherwise.
class MStorageRule : public ::testing::Test {
 protected:
  MStorageCase m_{.bytes_fp64 = 2e8, .bytes_fp32 = 1.6e8, .fits_fp32 = [this] {
                    ++asked_whether_it_fits_;
                    return fits_;
                  }};
  Status fits_;
  int asked_whether_it_fits_ = 0;
};

TEST_F(MStorageRule, WhatIsAskedForIsDone) {
  for (const Storage storage : {Storage::kFp64, Storage::kFp32}) {
    const auto chosen = ChooseMStorage(m_, storage);
    ASSERT_TRUE(chosen.ok());
    EXPECT_EQ(chosen->storage, storage);
    EXPECT_EQ(chosen->reason, "");
  }
  EXPECT_EQ(asked_whether_it_fits_, 1) << "of fp32 alone";
  fits_ = Status(StatusCode::kFailedPrecondition, "FLOAT32_OVERFLOW", "too large");
  EXPECT_EQ(ChooseMStorage(m_, Storage::kFp32).status().reason(), "FLOAT32_OVERFLOW");
  EXPECT_TRUE(ChooseMStorage(m_, Storage::kFp64).ok());
}

TEST_F(MStorageRule, Fp32WhereItSparesATwentieth) {
  for (const double share : {0.8, 0.949, 0.951}) {
    m_.bytes_fp32 = share * m_.bytes_fp64;
    const auto chosen = ChooseMStorage(m_, Storage::kAuto);
    ASSERT_TRUE(chosen.ok());
    EXPECT_EQ(chosen->storage, share < 0.95 ? Storage::kFp32 : Storage::kFp64) << share;
  }
  m_.bytes_fp32 = 1.6e8;
  EXPECT_EQ(ChooseMStorage(m_, Storage::kAuto)->reason,
            "fp32: an iteration moves 160 MB, 200 with fp64");
}

TEST_F(MStorageRule, Fp64WhereFp32CannotPay) {
  const auto expect_fp64 = [&](const char* why) {
    const auto chosen = ChooseMStorage(m_, Storage::kAuto);
    ASSERT_TRUE(chosen.ok());
    EXPECT_EQ(chosen->storage, Storage::kFp64);
    EXPECT_EQ(chosen->reason.rfind("fp64: ", 0), 0u) << chosen->reason;
    EXPECT_NE(chosen->reason.find(why), std::string::npos) << chosen->reason;
  };
  m_.bytes_fp64 = 1e6;
  m_.bytes_fp32 = 8e5;
  expect_fp64("an iteration moves 1 MB");
  m_.bytes_fp64 = 2e8;
  m_.bytes_fp32 = 1.95e8;
  expect_fp64("not worth it");
  EXPECT_EQ(asked_whether_it_fits_, 0);
  m_.bytes_fp32 = 1.6e8;
  fits_ = Status(StatusCode::kFailedPrecondition, "FLOAT32_OVERFLOW", "column 7 of M is too large");
  expect_fp64("column 7 of M");
}

// With a real M: arithmetic is fp64, so that nothing but M differs.
TEST(MStorage, EveryStorageConvergesToTheSameTolerance) {
  const CscMatrix a = oracle::ConvectionDiffusion(150, 140, 0.7);
  const Vector b = SmoothRhs(a);
  const auto engine = MakeCpuEngine();
  const BuildResult built = MustBuild(*engine, Spai(), a);
  for (const Method method : {Method::kBicgstab, Method::kGmres}) {
    for (const Storage storage : {Storage::kFp64, Storage::kFp32, Storage::kAuto}) {
      const SolveOptions options{.method = method, .rtol = 1e-10, .m_storage = storage};
      Array<double> x;
      for (const int threads : {1, 2}) {
        const Context context{.stop = {}, .progress = nullptr, .threads = threads};
        const auto solved = engine->Solve(a, built.preconditioner.get(), b, {}, options, context);
        ASSERT_TRUE(solved.ok()) << solved.status().message();
        EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged);
        EXPECT_LE(TrueRelative(a, solved->x, b), 1.01e-10);
        EXPECT_NE(solved->m_storage, Storage::kAuto);
        EXPECT_TRUE(storage == Storage::kAuto || solved->m_storage == storage);
        EXPECT_EQ(solved->storage_reason.empty(), storage != Storage::kAuto);
        if (threads == 1) x = solved->x;
        EXPECT_EQ(solved->x, x) << "the same bits";
      }
    }
  }
}

TEST(MStorage, Fp32IsTheSameSolveWithARoundedM) {
  const CscMatrix a = oracle::ConvectionDiffusion(40, 30, 0.7);
  const Vector b = SmoothRhs(a);
  const auto engine = MakeCpuEngine();
  const BuildResult built = MustBuild(*engine, Spai(), a);
  CscMatrix rounded = built.preconditioner->matrix();
  bool differs = false;
  for (double& value : rounded.values) {
    differs = differs || value != static_cast<float>(value);
    value = static_cast<float>(value);
  }
  ASSERT_TRUE(differs);
  const SolveOptions options{.rtol = 1e-9, .m_storage = Storage::kFp32};
  const auto solved = engine->Solve(a, built.preconditioner.get(), b, {}, options, {});
  const auto expected = Solve(CsrOperator::FromColumns(a), nullptr, b, {}, options, {});
  const CsrOperator m = CsrOperator::FromColumns(rounded);
  const auto with_rounded = Solve(CsrOperator::FromColumns(a), &m, b, {}, options, {});
  ASSERT_TRUE(solved.ok() && expected.ok() && with_rounded.ok());
  EXPECT_EQ(solved->x, with_rounded->x);
  EXPECT_NE(solved->rhs[0].iterations, expected->rhs[0].iterations) << "M does something";
}

TEST(MStorage, AnMBeyondFp32IsRefusedOrStaysInFp64) {
  // M of a diagonal matrix, about its inverse.
  CscMatrix a = oracle::ConvectionDiffusion(220, 200, 0.3);
  for (double& value : a.values) value *= 1e-45;
  Vector b = SmoothRhs(a);
  const auto engine = MakeCpuEngine();
  for (const double scale : {1.0, 1e90}) {
    for (double& value : a.values) value *= scale;
    for (double& value : b) value *= scale;
    const BuildResult built = MustBuild(*engine, Spai(), a);
    SolveOptions options{.rtol = 1e-8, .m_storage = Storage::kFp32};
    const auto refused = engine->Solve(a, built.preconditioner.get(), b, {}, options, {});
    const std::string reason = scale == 1 ? "FLOAT32_OVERFLOW" : "FLOAT32_UNDERFLOW";
    EXPECT_EQ(refused.status().reason(), reason);
    EXPECT_EQ(refused.status().field(), "preconditioner_storage");
    EXPECT_EQ(refused.status().index(), 0);
    options.m_storage = Storage::kAuto;
    const auto solved = engine->Solve(a, built.preconditioner.get(), b, {}, options, {});
    ASSERT_TRUE(solved.ok());
    EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
    EXPECT_EQ(solved->m_storage, Storage::kFp64);
    EXPECT_NE(solved->storage_reason.find("range of fp32"), std::string::npos)
        << solved->storage_reason;
  }
}

TEST(MStorage, OfADiagonalThereIsNothingToSay) {
  const CscMatrix a = oracle::Laplacian2d(60, 60);
  const auto engine = MakeCpuEngine();
  const BuildResult jacobi = MustBuild(*engine, Spec(EngineKind::kJacobi), a);
  const Preconditioner* const none = nullptr;
  for (const Preconditioner* m : {none, jacobi.preconditioner.get()}) {
    const SolveOptions options{.method = Method::kCg, .m_storage = Storage::kFp32};
    const auto solved = engine->Solve(a, m, Ones(a.n_cols), {}, options, {});
    ASSERT_TRUE(solved.ok()) << solved.status().message();
    EXPECT_EQ(solved->m_storage, Storage::kAuto);
    EXPECT_EQ(solved->storage_reason, "");
  }
}

TEST(Figures, AreOfThisSolve) {
  const CscMatrix a = oracle::ConvectionDiffusion(100, 90, 0.7);
  const auto engine = MakeCpuEngine();
  const BuildResult built = MustBuild(*engine, Spai(), a);
  Vector b = SmoothRhs(a);
  b.insert(b.end(), b.begin(), b.end());
  const SolveOptions options{.rtol = 1e-9, .m_storage = Storage::kFp32};
  const auto solved = engine->Solve(a, built.preconditioner.get(), b, {}, options, {});
  ASSERT_TRUE(solved.ok());
  const SolveFigures& f = solved->figures;
  const int64_t each = solved->rhs[0].iterations;
  EXPECT_EQ(f.iterations, 2 * each);
  const double n = static_cast<double>(a.n_cols);
  const double nnz_m = static_cast<double>(built.preconditioner->matrix().nnz());
  const double product = 12 * static_cast<double>(a.nnz()) + 8 * nnz_m + 2 * 24 * n;
  EXPECT_DOUBLE_EQ(f.bytes, static_cast<double>(2 * each) * (2 * product + 19 * 8 * n));
  EXPECT_GT(f.place_ms, 0);
  EXPECT_GT(f.iterate_ms, 0);
  EXPECT_GT(f.check_ms, 0);
  EXPECT_LE(f.place_ms + f.iterate_ms + f.check_ms, solved->solve_ms);
  EXPECT_GT(f.place_ms + f.iterate_ms + f.check_ms, 0.5 * solved->solve_ms);
}

TEST(Figures, ACopyIsMeasuredOnce) {
  const auto engine = MakeCpuEngine();
  const double first = engine->CopyBytesPerSecond({}, /*on_host=*/true);
  EXPECT_GT(first, 1e7);
  EXPECT_EQ(engine->CopyBytesPerSecond({}, /*on_host=*/true), first);
}

}  // namespace
}  // namespace spaid::kernels::engine_test

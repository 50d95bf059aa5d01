// How a solve stores M: what is asked for, and what AUTO makes of a trial.
#include "kernels/engine/m_storage.h"

#include <cmath>
#include <limits>

#include "kernels/krylov/operators.h"
#include "tests/kernels/engine/helpers.h"

namespace spaid::kernels::engine_test {
namespace {

class Heard : public ProgressSink {
 public:
  void OnProgress(Stage, int64_t, int64_t) override {}
  void OnResidual(const ResidualPoint& point) override { points.push_back(point); }
  std::vector<ResidualPoint> points;
};

// Solves whose residual falls by a factor an iteration, which the storage decides.
class Trial : public ::testing::Test {
 protected:
  struct Call {
    Storage storage;
    size_t rhs;
    int64_t iterations;
    bool stopped;
  };

  Result<SolveResult> Solve(const SolveOptions& options, size_t rhs = 1, const Context& with = {}) {
    const Vector b(rhs, 1.0);
    Context context = with;
    context.progress = &heard_;
    return SolveByStorage(
        m_, b, options, context,
        [this](Storage storage, std::span<const double> of, const SolveOptions& own,
               const Context& given) { return Run(storage, of.size(), own, given); });
  }

  Result<SolveResult> Run(Storage storage, size_t rhs, const SolveOptions& options,
                          const Context& context) {
    if (storage == Storage::kFp64 && no_room_for_fp64_) {
      return Status(StatusCode::kResourceExhausted, "DEVICE_OUT_OF_MEMORY", "no room");
    }
    SolveResult result;
    result.rhs.resize(rhs);
    Call call{storage, rhs, 0, false};
    const double factor = storage == Storage::kFp32 ? factor_fp32_ : factor_fp64_;
    if (at_once_) {
      // As a block on a GPU: the second falls half as fast, the others as the first.
      for (int32_t i = 0; !call.stopped; ++i) {
        bool any = false;
        for (int32_t k = 0; k < static_cast<int32_t>(rhs); ++k) {
          const double norm = std::pow(factor, k == 1 ? i / 2.0 : i);
          if (i > 0 && norm <= options.rtol * factor) continue;  // was over the iteration before
          if (context.progress != nullptr) context.progress->OnResidual({k, i, norm});
          any = true;
        }
        call.stopped = context.stop.stop_requested();
        if (!any) break;
        call.iterations = i;
      }
      calls_.push_back(call);
      return result;
    }
    for (size_t k = 0; k < rhs && !call.stopped; ++k) {
      RhsResult& own = result.rhs[k];
      double norm = 1;
      const auto report = [&] {
        const ResidualPoint point{static_cast<int32_t>(k), static_cast<int32_t>(own.iterations),
                                  norm};
        if (options.keep_history) own.history.push_back(point);
        if (context.progress != nullptr) context.progress->OnResidual(point);
      };
      report();
      while (norm > options.rtol && own.iterations < options.max_iterations) {
        if (context.stop.stop_requested()) {
          own.outcome = Outcome::kCancelled;
          call.stopped = true;
          break;
        }
        norm *= own.iterations < 2 ? std::sqrt(first_steps_) * factor : factor;
        ++own.iterations;
        report();
      }
      call.iterations = own.iterations;
      if (norm <= options.rtol) own.outcome = Outcome::kConverged;
    }
    calls_.push_back(call);
    return result;
  }

  MStorageCase m_{.n = 1, .bytes_fp64 = 2e8, .bytes_fp32 = 1.6e8, .fits_fp32 = [this] {
                    ++asked_whether_it_fits_;
                    return fits_;
                  }};
  double factor_fp32_ = 0.5, factor_fp64_ = 0.5;
  double first_steps_ = 1;  // by which the first two bring the residual down besides
  bool no_room_for_fp64_ = false, at_once_ = false;
  Status fits_;
  int asked_whether_it_fits_ = 0;
  Heard heard_;
  std::vector<Call> calls_;
};

TEST_F(Trial, WhatIsAskedForIsDoneWithoutOne) {
  for (const Storage storage : {Storage::kFp64, Storage::kFp32}) {
    calls_.clear();
    const auto solved = Solve({.rtol = 1e-300, .m_storage = storage});
    ASSERT_TRUE(solved.ok());
    ASSERT_EQ(calls_.size(), 1u);
    EXPECT_EQ(calls_[0].storage, storage);
    EXPECT_EQ(solved->m_storage, storage);
    EXPECT_EQ(solved->storage_reason, "");
  }
  EXPECT_EQ(asked_whether_it_fits_, 1) << "of fp32 alone";
  fits_ = Status(StatusCode::kFailedPrecondition, "FLOAT32_OVERFLOW", "too large");
  EXPECT_EQ(Solve({.rtol = 0.1, .m_storage = Storage::kFp32}).status().reason(),
            "FLOAT32_OVERFLOW");
  EXPECT_TRUE(Solve({.rtol = 0.1, .m_storage = Storage::kFp64}).ok());
}

TEST_F(Trial, AShortSolveGoesOnInFp32) {
  // 0.5^34 = 5.8e-11: 34 iterations.
  const auto solved = Solve({.rtol = 1e-10}, /*rhs=*/2);
  ASSERT_TRUE(solved.ok());
  ASSERT_EQ(calls_.size(), 1u);
  EXPECT_FALSE(calls_[0].stopped);
  EXPECT_EQ(solved->m_storage, Storage::kFp32);
  EXPECT_EQ(solved->storage_reason,
            "fp32: after 10 iterations the residual was 0.000977, so that some 33 were to be "
            "expected, too few to try fp64; an iteration moves 160 MB, 200 with fp64");
  EXPECT_EQ(solved->figures.trial_ms, 0);
  ASSERT_EQ(heard_.points.size(), 70u);
  for (size_t i = 0; i < heard_.points.size(); ++i) {
    EXPECT_EQ(heard_.points[i].rhs, static_cast<int32_t>(i / 35));
    EXPECT_EQ(heard_.points[i].iteration, static_cast<int32_t>(i % 35));
  }
}

TEST_F(Trial, ASolveThatEndsBeforeItIsTold) {
  const auto solved = Solve({.rtol = 0.2}, /*rhs=*/2);  // three iterations
  ASSERT_TRUE(solved.ok());
  EXPECT_EQ(solved->m_storage, Storage::kFp32);
  EXPECT_NE(solved->storage_reason.find("ended before"), std::string::npos);
  EXPECT_EQ(heard_.points.size(), 8u);
}

TEST_F(Trial, TheFirstOfABlockDecides) {
  at_once_ = true;
  const auto brief = Solve({.rtol = 1e-10}, /*rhs=*/3);
  ASSERT_TRUE(brief.ok());
  ASSERT_EQ(calls_.size(), 1u);
  EXPECT_NE(brief->storage_reason.find("too few to try fp64"), std::string::npos)
      << brief->storage_reason;
  ASSERT_EQ(heard_.points.size(), 35u + 69u + 35u);  // 0.5^34 = 5.8e-11
  for (size_t i = 0; i < 30; ++i) {                  // as they came
    EXPECT_EQ(heard_.points[i].rhs, static_cast<int32_t>(i % 3));
    EXPECT_EQ(heard_.points[i].iteration, static_cast<int32_t>(i / 3));
  }
  // The first is over before it could tell.
  heard_.points.clear();
  const auto told_by_none = Solve({.rtol = 1e-2}, /*rhs=*/2);
  ASSERT_TRUE(told_by_none.ok());
  EXPECT_NE(told_by_none->storage_reason.find("ended before"), std::string::npos);
  EXPECT_EQ(heard_.points.size(), 8u + 16u);
  // A long one ends for the trial, of which nothing is heard.
  calls_.clear();
  heard_.points.clear();
  factor_fp32_ = 0.99;
  at_once_ = true;
  (void)Solve({.rtol = 1e-10, .max_iterations = 5000}, /*rhs=*/2, {});
  ASSERT_GE(calls_.size(), 1u);
  EXPECT_TRUE(calls_[0].stopped);
  EXPECT_LE(calls_[0].iterations, 11);
}

TEST_F(Trial, ALongSolveIsDecidedByDigitsForBytes) {
  struct Case {
    double fp32, fp64;
    Storage expected;
  };
  // 0.99^n = 1e-10 takes 2291 iterations. fp32 spares a fifth of the bytes.
  for (const Case& c : {Case{0.99, 0.99, Storage::kFp32}, Case{0.99, 0.988, Storage::kFp32},
                        Case{0.99, 0.98, Storage::kFp64}, Case{1.01, 0.99, Storage::kFp64},
                        Case{1.01, 1.01, Storage::kFp32}}) {
    calls_.clear();
    heard_.points.clear();
    factor_fp32_ = c.fp32;
    factor_fp64_ = c.fp64;
    const auto solved = Solve({.rtol = 1e-10, .max_iterations = 3000}, /*rhs=*/2);
    ASSERT_TRUE(solved.ok());
    ASSERT_EQ(calls_.size(), 3u);
    EXPECT_EQ(calls_[0].storage, Storage::kFp32);
    EXPECT_TRUE(calls_[0].stopped);
    EXPECT_EQ(calls_[0].iterations, kTrialIterations);
    EXPECT_EQ(calls_[1].storage, Storage::kFp64);
    EXPECT_EQ(calls_[1].rhs, 1u) << "the first one alone";
    EXPECT_EQ(calls_[1].iterations, kTrialIterations);
    EXPECT_EQ(calls_[2].storage, c.expected) << c.fp32 << " " << c.fp64;
    EXPECT_EQ(calls_[2].rhs, 2u);
    EXPECT_EQ(solved->m_storage, c.expected);
    EXPECT_EQ(solved->storage_reason.substr(0, 4), c.expected == Storage::kFp32 ? "fp32" : "fp64");
    EXPECT_GT(solved->figures.trial_ms, 0);
    const int64_t each = calls_[2].iterations + 1;
    ASSERT_EQ(static_cast<int64_t>(heard_.points.size()), 2 * each) << "nothing of the trial";
    for (int64_t i = 0; i < 2 * each; ++i) {
      ASSERT_EQ(heard_.points[static_cast<size_t>(i)].iteration, static_cast<int32_t>(i % each));
    }
  }
}

// One that begins well tells nothing of its end.
TEST_F(Trial, ItIsTheLaterIterationsThatPredict) {
  factor_fp32_ = factor_fp64_ = 0.99;
  first_steps_ = 1e-3;
  const auto solved = Solve({.rtol = 1e-10, .max_iterations = 3000});
  ASSERT_TRUE(solved.ok());
  EXPECT_EQ(calls_.size(), 3u) << "some 1600 are to come";
}

TEST_F(Trial, WhereFp32CannotPayThereIsNone) {
  factor_fp32_ = factor_fp64_ = 0.99;
  const auto expect_fp64 = [&](const char* why) {
    calls_.clear();
    const auto solved = Solve({.rtol = 1e-10});
    ASSERT_TRUE(solved.ok());
    ASSERT_EQ(calls_.size(), 1u) << why;
    EXPECT_EQ(solved->m_storage, Storage::kFp64);
    EXPECT_NE(solved->storage_reason.find(why), std::string::npos) << solved->storage_reason;
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

TEST_F(Trial, WithoutRoomForFp64ThereIsNone) {
  factor_fp32_ = 0.99;
  no_room_for_fp64_ = true;
  const auto solved = Solve({.rtol = 1e-10});
  ASSERT_TRUE(solved.ok()) << solved.status().message();
  EXPECT_EQ(solved->m_storage, Storage::kFp32);
  EXPECT_NE(solved->storage_reason.find("no room"), std::string::npos);
}

TEST_F(Trial, TheCallersStopIsHeeded) {
  StopSource cancel;
  cancel.Request(StopReason::kCancelled);
  factor_fp32_ = 0.99;
  const Context context{.stop = cancel.token()};
  const auto solved = Solve({.rtol = 1e-10}, 1, context);
  ASSERT_TRUE(solved.ok());
  EXPECT_EQ(solved->rhs[0].outcome, Outcome::kCancelled);
  ASSERT_EQ(calls_.size(), 1u);
  EXPECT_EQ(calls_[0].iterations, 0);
  EXPECT_EQ(heard_.points.size(), 1u);
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
  EXPECT_EQ(f.trial_ms, 0);
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
